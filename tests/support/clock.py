"""A clock that tests hold in their hands instead of sleeping."""

from __future__ import annotations

EPOCH_MS = 1_700_000_000_000


class VirtualClock:
    """Milliseconds that move only when told to; callable, as `open_ledger(clock=…)` wants it."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> int:
        """Move forward and return the new time. Going back is a test's own explicit act."""
        if ms < 0:
            raise ValueError(f"a clock advances by 0 or more milliseconds, not {ms}")
        self.now_ms += ms
        return self.now_ms
