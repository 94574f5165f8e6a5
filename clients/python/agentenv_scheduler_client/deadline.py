"""The time that a caller gives a call."""

from __future__ import annotations

from collections.abc import Callable


class Deadline:
    """When a caller wants its answer; without one it waits. `now` is a clock in seconds."""

    def __init__(self, seconds: float | None, now: Callable[[], float]) -> None:
        self._now = now
        self.at = None if seconds is None else now() + seconds

    def left(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - self._now())

    def at_most(self, seconds: float) -> float:
        left = self.left()
        return seconds if left is None else min(left, seconds)
