"""Work that outlives its caller: a confirm or a cancel that goes on when the one who wanted it has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from scheduler.errors import SchedulerError
from scheduler.observability.logging import get_logger

log = get_logger(__name__)

T = TypeVar("T")


class Background:
    """Runs work as tasks of its own, and waits for them when the client closes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T], wait_seconds: float | None) -> T:
        """The work's result. Raises TimeoutError when it takes longer, or the client closes first.

        The work itself goes on, as it does when the waiting task is cancelled; how it ends is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=wait_seconds)
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


def _log_end(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        log.warning("given up because the client closed; the reservation is held until its deadline")
    elif isinstance(error := task.exception(), SchedulerError):
        log.warning("failed after its caller had left", code=error.code, detail=error.detail, **_ids(error))
    elif error is not None:
        log.error("failed after its caller had left", exc_info=error)


def _ids(error: SchedulerError) -> dict[str, Any]:
    reservation = error.facts.get("reservation")
    return {
        "sandbox_id": error.facts.get("sandbox_id"),
        "reservation_id": getattr(reservation, "reservation_id", None),
        "node_id": getattr(reservation, "node_id", None),
    }
