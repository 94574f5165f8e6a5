"""How many Redis replicas the ledger's server has, against how many a durable write waits for.

Without enough of them a durable write stands and is not acknowledged. What holds capacity is therefore not begun
while too few are known to be online: nobody would know of it, and the fleet would fill.
"""

from __future__ import annotations

import asyncio
import contextlib

from scheduler.connection.budget import Budget
from scheduler.errors import StoreUnavailable


class RedisReplicas:
    """`wanted`: as many as a durable write waits for. `online`: as many as the server named when it was last asked;
    None before that, and from one that does not say."""

    def __init__(self, wanted: int, patience_ms: float) -> None:
        """`patience_ms`: how long after the first of them went what holds capacity waits for it to come back, as it
        does in a failover; later it is refused at once."""
        self.wanted = wanted
        self.online: int | None = None
        self._patience_seconds = patience_ms / 1000
        self._patient_until = 0.0
        self._enough = asyncio.Event()
        self._enough.set()

    @property
    def too_few(self) -> bool:
        return not self._enough.is_set()

    def note(self, online: int | None) -> None:
        """What the server says now."""
        self.online = online
        if online is None or online >= self.wanted:
            self._enough.set()
        elif self._enough.is_set():
            self._enough.clear()
            self._patient_until = asyncio.get_running_loop().time() + self._patience_seconds

    async def wait_until_enough(self, budget: Budget) -> None:
        """Returns at once while enough are online, or nobody knows. Raises StoreUnavailable when too few are."""
        if self._enough.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(budget.ends_at, self._patient_until)):
                await self._enough.wait()
                return
        raise StoreUnavailable(
            f"the ledger: not written, since fewer than {self.wanted} replicas are online to have it; ask again"
        )
