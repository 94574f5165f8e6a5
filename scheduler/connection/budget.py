"""The time that one call to the ledger may take: its own limit, or less when the request's deadline is nearer."""

from __future__ import annotations

import asyncio
import math
import random

from scheduler import deadline

# Subtracted from a request's deadline, so that the answer "unavailable" still reaches its caller in time.
ANSWER_MARGIN_MS = 50
# Of its own, so that whoever seeds the shared generator is not disturbed.
_RANDOM = random.Random()
_FIRST_PAUSE_MS = 4
_LONGEST_PAUSE_MS = 250


class Budget:
    """Starts when it is created. Raises DeadlineExceeded when the request's deadline has passed already."""

    def __init__(self, limit_ms: float) -> None:
        self._clock = asyncio.get_running_loop().time
        left_ms = deadline.remaining_ms(default=math.inf)
        if left_ms < math.inf:
            limit_ms = min(limit_ms, left_ms - min(ANSWER_MARGIN_MS, left_ms * 0.1))
        self.ends_at = self._clock() + limit_ms / 1000
        self._attempts = 0

    @property
    def left_seconds(self) -> float:
        return self.ends_at - self._clock()

    @property
    def over(self) -> bool:
        return self.left_seconds <= 0

    def ends_in(self, milliseconds: float) -> float:
        """The time `milliseconds` from now, or the end of the budget if that is nearer."""
        return min(self.ends_at, self._clock() + milliseconds / 1000)

    def in_ms(self, milliseconds: float) -> float:
        """The time `milliseconds` from now, on the clock of `ends_at`."""
        return self._clock() + milliseconds / 1000

    async def pause(self, ends_at: float | None = None) -> bool:
        """Wait before the next attempt, longer each time and jittered; False when no time is left for another.
        `ends_at`: an earlier end than the budget's."""
        ceiling_ms = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS * 2**self._attempts)
        self._attempts += 1
        seconds = _RANDOM.uniform(0.5, 1.0) * ceiling_ms / 1000
        left_seconds = self.left_seconds if ends_at is None else min(self.left_seconds, ends_at - self._clock())
        if seconds >= left_seconds:
            return False
        await asyncio.sleep(seconds)
        return True
