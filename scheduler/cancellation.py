"""A task that is cancelled ends.

Libraries lose cancellations: `asyncio.wait_for` before Python 3.12 answers with the result when a cancellation
meets the completion it waits for, and the task then goes on as if nobody had asked it to end. Nothing of this
package uses it; around what others do, these make sure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for a command: Ctrl-C raises KeyboardInterrupt, whatever error ending made of it."""

    async def heedful() -> T:
        with heed_cancellation():
            return await work

    return asyncio.run(heedful())


class heed_cancellation:  # noqa: N801 - used like a function: `with heed_cancellation(): …`
    """Raises CancelledError at the end of a block whose task was cancelled inside it, if the block lost that.

    Only cancellations that came inside the block count: a task that cleans up because it is being cancelled may
    use it as well. What `asyncio.timeout` cancels is taken back when its block ends, and counts no longer."""

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
    """Cancel all of them, and return when all have ended, however they ended.

    One that is still there after `patience_seconds` has lost its cancellation, or cleans up for long: it is said,
    and cancelled once more."""
    tasks = pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=patience_seconds)
        for task in pending:
            log.warning("a task did not end when cancelled; cancelling it again", extra={"task": task.get_name()})
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: nothing is logged about it later
