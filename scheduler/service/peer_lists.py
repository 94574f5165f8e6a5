"""Caches long lists of P2P peers, so that the ledger is read once a second instead of once per request.

Every node asks for all others every few seconds, so a fleet of n nodes would read the ledger n² times. A short list
is always read afresh; a long one may be one second old, or two while it is being renewed. No placement depends on
it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from scheduler.domain.node import P2pEndpoint

Peers = tuple[tuple[str, P2pEndpoint], ...]

LONG = 200
FRESH_SECONDS = 1.0
USABLE_SECONDS = 2.0
_LISTS_MAX = 64


@dataclass(slots=True)
class _Kept:
    peers: Peers
    read_at: float
    being_renewed: bool = False


class PeerLists:
    """`read` reads a list from the ledger, by cluster and backend."""

    def __init__(
        self, read: Callable[[str, str], Awaitable[Peers]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._kept: dict[tuple[str, str], _Kept] = {}

    async def get(self, cluster_id: str, backend: str) -> Peers:
        """Raises what `read` raises; the next call reads again."""
        asked = (cluster_id, backend)
        kept = self._kept.get(asked)
        if kept is None:
            return await self._renew(asked)
        age = self._clock() - kept.read_at
        if age < FRESH_SECONDS or (kept.being_renewed and age < USABLE_SECONDS):
            return kept.peers
        kept.being_renewed = True
        try:
            return await self._renew(asked)
        finally:
            kept.being_renewed = False

    async def _renew(self, asked: tuple[str, str]) -> Peers:
        started = self._clock()
        peers = await self._read(*asked)
        self._kept.pop(asked, None)
        if len(peers) >= LONG:
            if len(self._kept) >= _LISTS_MAX:
                self._kept.pop(next(iter(self._kept)))
            self._kept[asked] = _Kept(peers, started)
        return peers
