"""Makes sure that a cancelled task ends.

Some libraries lose cancellations: `asyncio.wait_for` before Python 3.12 returns the result when a cancellation
arrives together with it, and the task then continues. This package does not use it, and wraps calls of libraries
that may.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

# What a shell tells of a program that SIGTERM has ended.
TERMINATED = 128 + signal.SIGTERM


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for a command. Ctrl-C always raises KeyboardInterrupt, SIGTERM SystemExit; both cancel the work
    first, so that it ends what it has started. A second SIGTERM does not disturb it in that."""
    terminated = False

    async def heedful() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def terminate() -> None:
            nonlocal terminated
            if task is not None and not terminated:
                terminated = True
                task.cancel()
                loop.call_soon_threadsafe(lambda: None)  # a loop that waits for nothing else wakes up

        with on_sigterm(terminate), heed_cancellation():
            return await work

    try:
        return asyncio.run(heedful())
    except asyncio.CancelledError:
        if terminated:
            exit_terminated()
        raise


def exit_terminated() -> NoReturn:
    raise SystemExit(TERMINATED)


@contextmanager
def on_sigterm(told: Callable[[], object]) -> Iterator[None]:
    """Calls `told` when SIGTERM comes during the block, instead of what would be done without. Only the main thread
    hears signals; in another one the block is just run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: told())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class heed_cancellation:  # noqa: N801 - used like a function: `with heed_cancellation(): …`
    """Raises CancelledError at the end of a block during which its task was cancelled, if the block lost that.

    Only cancellations inside the block count, so a task that cleans up because it was cancelled may use it as well.
    A cancellation by `asyncio.timeout` no longer counts once its block has ended."""

    __slots__ = ("_before", "_task")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "outside of a task nothing can be cancelled"  # noqa: S101 - a mistake of ours
        self._task = task
        self._before = task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task.cancelling() > self._before and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], *, patience_seconds: float = 5.0) -> None:
    """Cancel all tasks, and return when all have ended, however they ended.

    A task still running after `patience_seconds` has lost its cancellation, or cleans up for long: this is logged,
    and the task is cancelled again."""
    tasks = pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=patience_seconds)
        for task in pending:
            log.warning("a task did not end when cancelled; cancelling it again", extra={"task": task.get_name()})
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so asyncio does not log it later
