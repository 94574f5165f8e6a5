"""Time that moves only when the lab says so, and the agenda that moves it.

No simulation sleeps to let time pass; only the live demo does, which is meant to be watched. An
action is put on the agenda for an instant; running the agenda jumps from one instant to the next, so
150 days cost as much as what happens in them.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Self

# An arbitrary, round instant: traces start at 0, but a ledger whose clock reads 0 would not
# tell "never" from "at the start".
EPOCH_MS = 1_700_000_000_000
# Later than any instant of a run.
FAR_AWAY_MS = 1 << 62
_LAST_CALLS_SECONDS = 5.0

Action = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Spread:
    """A duration that differs from case to case: anything from `least_ms` to `most_ms`, all equally likely."""

    least_ms: int
    most_ms: int

    def draw(self, source: random.Random) -> int:
        if self.least_ms == self.most_ms:
            return self.least_ms
        return source.randint(self.least_ms, self.most_ms)

    def shortened(self, factor: float) -> Spread:
        return Spread(shortened(self.least_ms, factor), shortened(self.most_ms, factor))


def always(duration_ms: int) -> Spread:
    return Spread(duration_ms, duration_ms)


def shortened(duration_ms: int, factor: float) -> int:
    return round(duration_ms / factor)


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


class ConcurrentAgenda(Agenda):
    """In real time, and no action waits for another: each starts at its instant and runs beside the others, as calls
    over a network do. The first one that fails ends the run. Leaving the block gives those still under way a moment,
    unless the run failed, and ends what is left: a call that is cancelled while it connects leaves its socket open."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(wall_ms()))
        self._running: set[asyncio.Task[None]] = set()
        self._added = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def now_ms(self) -> int:
        return wall_ms()

    def at(self, instant_ms: int, action: Action) -> None:
        super().at(instant_ms, action)
        self._added.set()

    async def run_until(self, instant_ms: int) -> None:
        while True:
            self._added.clear()
            next_ms = self._start_what_is_due(instant_ms)
            await self._wait_until(min(next_ms, instant_ms))
            if self._failure is not None:
                raise self._failure
            if self.now_ms >= instant_ms and next_ms > instant_ms:
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._running:
            await asyncio.wait(self._running, timeout=_LAST_CALLS_SECONDS)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start_what_is_due(self, instant_ms: int) -> int:
        """When the first action after these is due; far away when there is none."""
        while self._entries and self._entries[0][0] <= min(instant_ms, self.now_ms):
            _, _, action = heapq.heappop(self._entries)
            task = asyncio.create_task(_to_coroutine(action))
            self._running.add(task)
            task.add_done_callback(self._finished)
        return self._entries[0][0] if self._entries else FAR_AWAY_MS

    async def _wait_until(self, instant_ms: int) -> None:
        """Or until something is added that may be due earlier."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, instant_ms - self.now_ms) / 1000):
                await self._added.wait()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._added.set()


async def _to_coroutine(action: Action) -> None:
    await action()


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
