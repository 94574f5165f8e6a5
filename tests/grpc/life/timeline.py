"""Virtual time: what is due happens in order, and the clock of the ledger moves along."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Awaitable, Callable

from tests.support.clock import VirtualClock

Happening = Callable[[], Awaitable[None]]


class Timeline:
    """Things happen one after the other; a call takes no virtual time, only waiting does."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._due: list[tuple[int, int, Happening]] = []
        self._order = itertools.count()

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    def after(self, ms: int, happening: Happening) -> None:
        heapq.heappush(self._due, (self.now_ms + ms, next(self._order), happening))

    def every(self, ms: int, happening: Happening) -> None:
        async def again() -> None:
            await happening()
            self.after(ms, again)

        self.after(ms, again)

    async def run_for(self, ms: int) -> None:
        ends_ms = self.now_ms + ms
        while self._due and self._due[0][0] <= ends_ms:
            due_ms, _, happening = heapq.heappop(self._due)
            self.clock.advance(max(0, due_ms - self.now_ms))
            await happening()
        self.clock.advance(max(0, ends_ms - self.now_ms))
