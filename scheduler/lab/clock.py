"""Time that moves only when the lab says so, and the agenda that moves it.

No simulation sleeps to let time pass; only the live demo does, which is meant to be watched. An
action is put on the agenda for an instant; running the agenda jumps from one instant to the next, so
150 days cost as much as what happens in them.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable
from itertools import count

# An arbitrary, round instant: traces start at 0, but a ledger whose clock reads 0 would not
# tell "never" from "at the start".
EPOCH_MS = 1_700_000_000_000

Action = Callable[[], Awaitable[None]]


class VirtualClock:
    """Milliseconds since the Unix epoch, as a callable: the shape the ledger takes a clock in."""

    def __init__(self, start_ms: int = EPOCH_MS) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        return self._now_ms

    def advance_to(self, instant_ms: int) -> None:
        """Move forward; an instant that has passed already changes nothing."""
        self._now_ms = max(self._now_ms, instant_ms)


class Agenda:
    """What is still to happen, in time order; equal instants keep the order they were added in.

    The order is total, so two runs of the same plan are the same run.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._entries: list[tuple[int, int, Action]] = []
        self._ticket = count()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def now_ms(self) -> int:
        return self.clock()

    def at(self, instant_ms: int, action: Action) -> None:
        """Put `action` down for `instant_ms`; one in the past runs at the next opportunity."""
        heapq.heappush(self._entries, (instant_ms, next(self._ticket), action))

    def after(self, delay_ms: int, action: Action) -> None:
        self.at(self.now_ms + delay_ms, action)

    async def run_until(self, instant_ms: int) -> None:
        """Run everything due up to and including `instant_ms`, what it adds included."""
        while self._entries and self._entries[0][0] <= instant_ms:
            due_ms, _, action = heapq.heappop(self._entries)
            self.clock.advance_to(due_ms)
            await action()
        self.clock.advance_to(instant_ms)


class PacedAgenda(Agenda):
    """The same agenda in real time: it sleeps until the next instant instead of jumping to it."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(wall_ms()))

    async def run_until(self, instant_ms: int) -> None:
        while self._entries and self._entries[0][0] <= instant_ms:
            due_ms = self._entries[0][0]
            await self._sleep_until(due_ms)
            await super().run_until(due_ms)
        await self._sleep_until(instant_ms)
        self.clock.advance_to(instant_ms)

    async def _sleep_until(self, instant_ms: int) -> None:
        if (delay_ms := instant_ms - wall_ms()) > 0:
            await asyncio.sleep(delay_ms / 1000)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
