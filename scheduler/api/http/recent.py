"""Keeps answers for a moment, for callers that accept one of a certain age (`max_age`): a console open in twenty tabs.

A caller that does not ask for it always gets a fresh answer, and no placement is decided from a kept one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

ENTRIES_MAX = 32


class RecentAnswers:
    """The last answers, by what was asked; at most `ENTRIES_MAX`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Hashable, tuple[float, Any]] = {}

    async def answer(self, asked: Hashable, max_age_ms: int, read: Callable[[], Awaitable[Any]]) -> Any:
        """The kept answer when it is at most `max_age_ms` old, else a fresh one from `read`, which is kept."""
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
