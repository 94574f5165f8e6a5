"""Cancels a task at a chosen suspension, at a chosen instant of it.

What a coroutine waits for is seen before its task sees it, so the cancellation can meet the completion in one
turn of the loop: there `asyncio.wait_for` before Python 3.12 loses it.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from enum import StrEnum
from typing import Any


class Instant(StrEnum):
    AT_ONCE = "at once"
    A_TURN_LATER = "a turn later"
    TWO_TURNS_LATER = "two turns later"
    AS_IT_COMPLETES = "as it completes"
    A_TURN_BEFORE_THE_TASK_HEARS = "a turn after it completes"


class Interruption:
    """Cancels the task that runs `around(work)` when `work` suspends for the `number`th time."""

    def __init__(self, number: int, instant: Instant) -> None:
        self.number = number
        self.instant = instant
        self.suspensions = 0
        self.happened = False
        """The cancellation was sent while the work was still going on."""
        self._over = False

    async def around(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        try:
            return await self._watched(work, task)
        finally:
            self._over = True

    @types.coroutine
    def _watched(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> Generator[Any, Any, Any]:
        steps = work.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waited_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as returned:
                return returned.value
            self.suspensions += 1
            if self.suspensions == self.number:
                self._plan(waited_for, task)
            thrown = None
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001 - handed on to the work
                thrown = error

    def _plan(self, waited_for: asyncio.Future[Any] | None, task: asyncio.Task[Any]) -> None:
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            if not self._over:
                self.happened = True
                task.cancel()

        if waited_for is None or self.instant is Instant.AT_ONCE:  # None: a bare yield, over in the next turn
            loop.call_soon(cancel)
        elif self.instant is Instant.A_TURN_LATER:
            loop.call_soon(loop.call_soon, cancel)
        elif self.instant is Instant.TWO_TURNS_LATER:
            loop.call_soon(loop.call_soon, loop.call_soon, cancel)
        elif self.instant is Instant.AS_IT_COMPLETES:
            # Ahead of the task's own callback: it is cancelled when what it waits for is done, and it does not know.
            waited_for.add_done_callback(lambda _: cancel())
        else:
            waited_for.add_done_callback(lambda _: loop.call_soon(cancel))
