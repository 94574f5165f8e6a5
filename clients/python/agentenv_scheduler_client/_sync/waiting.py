"""Time and work that goes on by itself, with threads. `_async/waiting.py` is the same for asyncio.

A blocking read cannot be interrupted, so whatever has a deadline runs in a thread of its own and its caller waits no
longer than that. The threads are daemons: none keeps the interpreter from ending.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from agentenv_scheduler_client.errors import DeadlineExceeded
from agentenv_scheduler_client.late import GIVEN_UP, log, log_late
from agentenv_scheduler_client.nodes import NodeAddress

T = TypeVar("T")
Work = Callable[[], T]
Start = Callable[[NodeAddress], str]
Stop = Callable[[NodeAddress, str], object]

# What a caller that must leave at once is told so by.
Left = KeyboardInterrupt


class Waiting:
    """Runs work in threads of its own where the caller may leave, and waits for them when the client closes."""

    def __init__(self) -> None:
        self._detached: set[_Job[Any]] = set()
        self._closing = threading.Event()

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Raises DeadlineExceeded when the client closes meanwhile."""
        if self._closing.wait(seconds):
            raise DeadlineExceeded("the client was closed meanwhile")

    def within(self, seconds: float, work: Work[T]) -> T:
        """What the work answers. Raises TimeoutError after so many seconds; what it answers later is dropped."""
        job: _Job[T] = _Job(work, lambda job: None)
        return job.wait(seconds)

    def until(self, instant: float | None, work: Work[T]) -> T:
        """Work of the caller's own, in the caller's own thread: nothing interrupts it."""
        return work()

    def check_left(self) -> None:
        """An interrupt is an error of its own here, and nothing makes another one of it."""

    def detach(self, work: Work[T], seconds: float | None) -> T:
        """What the work answers. Raises TimeoutError when that takes longer.

        The work itself goes on, as it does when the waiting thread is interrupted; how it ends is then logged."""
        job: _Job[T] = _Job(work, self._ended)
        self._detached.add(job)
        if job.ended:
            self._detached.discard(job)
        return job.wait(seconds)

    def finish(self, seconds: float) -> None:
        """Waits for what is under way, then gives it up."""
        until = time.monotonic() + seconds
        for job in tuple(self._detached):
            job.join(max(0.0, until - time.monotonic()))
        self._closing.set()

    def _ended(self, job: _Job[Any]) -> None:
        self._detached.discard(job)
        if not job.left:
            return
        if self._closing.is_set() and job.error is not None:
            log.warning(GIVEN_UP)
        else:
            log_late(job.error)


class _Job(Generic[T]):
    """Work in a thread of its own, begun at once. `left`: nobody waits for it any more."""

    def __init__(self, work: Work[T], ended: Callable[[_Job[T]], None]) -> None:
        self._work = work
        self._on_end = ended
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._result: T
        self.error: BaseException | None = None
        self.left = False
        # The caller's context goes along, so that what it traces or logs is told as the caller's.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run,), daemon=True, name="agentenv-scheduler-client").start()

    @property
    def ended(self) -> bool:
        return self._done.is_set()

    def join(self, seconds: float) -> None:
        self._done.wait(seconds)

    def wait(self, seconds: float | None) -> T:
        """The result, or the error raised. Raises TimeoutError."""
        try:
            self._done.wait(seconds)
        except BaseException:  # an interrupt
            self._leave()
            raise
        if self._leave():
            raise TimeoutError
        if self.error is not None:
            raise self.error
        return self._result

    def _leave(self) -> bool:
        """Whether it goes on by itself now; False: it has ended."""
        with self._lock:
            self.left = not self._done.is_set()
            return self.left

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - whoever waits is told, and the log otherwise
            self.error = error
        with self._lock:
            self._done.set()
        self._on_end(self)
