"""Time and work that goes on by itself, for asyncio. `_sync/waiting.py` is the same with threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from agentenv_scheduler_client.late import GIVEN_UP, log, log_late
from agentenv_scheduler_client.nodes import NodeAddress

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]
Start = Callable[[NodeAddress], Awaitable[str]]
Stop = Callable[[NodeAddress, str], Awaitable[object]]

# What a caller that must leave at once is told so by.
Left = asyncio.CancelledError


class AsyncWaiting:
    """Runs work as tasks of its own where the caller may leave, and waits for them when the client closes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, work: Work[T]) -> T:
        """What the work answers. Raises TimeoutError after so many seconds; the work has then ended too."""
        async with asyncio.timeout(seconds):
            return await work()

    async def until(self, instant: float | None, work: Work[T]) -> T:
        """What the work answers. Raises TimeoutError at that instant; for work that is the caller's own."""
        async with asyncio.timeout_at(instant):
            return await work()

    def check_left(self) -> None:
        """Raises CancelledError when this task was cancelled, and something made another error of it."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

    async def detach(self, work: Work[T], seconds: float | None) -> T:
        """What the work answers. Raises TimeoutError when that takes longer, or the client closes first.

        The work itself goes on, as it does when the waiting task is cancelled; how it ends is then logged."""
        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.add_done_callback(_log_end)
            raise
        if not done:
            task.add_done_callback(_log_end)
            raise TimeoutError
        if task.cancelled():
            raise TimeoutError("the client was closed meanwhile")
        return task.result()

    async def finish(self, seconds: float) -> None:
        """Waits for what is under way, then gives it up."""
        tasks = list(self._tasks)
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=seconds)
        finally:
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _log_end(task: asyncio.Future[Any]) -> None:
    if task.cancelled():
        log.warning(GIVEN_UP)
    else:
        log_late(task.exception())
