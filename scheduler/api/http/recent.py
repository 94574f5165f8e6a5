"""Answers that were read a moment ago, for callers who say that they will do (`max_age`): a console in twenty tabs.

Nobody who does not ask for it gets one, and no decision is made from them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

ENTRIES_MAX = 32


class RecentAnswers:
    """The last few, by what was asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Hashable, tuple[float, Any]] = {}

    async def answer(self, asked: Hashable, max_age_ms: int, read: Callable[[], Awaitable[Any]]) -> Any:
        """One that is at most so old, else what `read` answers now."""
        now = self._clock()
        read_at, known = self._known.get(asked, (now, None))
        if known is not None and (now - read_at) * 1000 <= max_age_ms:
            return known
        fresh = await read()
        self._known.pop(asked, None)
        while len(self._known) >= ENTRIES_MAX:
            del self._known[next(iter(self._known))]  # the one that was read first
        self._known[asked] = (now, fresh)
        return fresh
