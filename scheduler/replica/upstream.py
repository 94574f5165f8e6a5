"""Keeping AgentENV's own binding keys equal to the ledger; one replica does it at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.store.leases import LeaseStore
    from scheduler.store.upstream_bindings import UpstreamBindings

LEASE = "upstream_bindings"
LEASE_TTL_MS = 15_000
INTERVAL_MS = 2_000


def following(upstream: UpstreamBindings, leases: LeaseStore, replica_id: str) -> Callable[[], Awaitable[None]]:
    """One round, if no other replica holds the lease."""

    async def follow() -> None:
        if await leases.hold(LEASE, replica_id, LEASE_TTL_MS):
            await upstream.follow()
        else:
            upstream.forget()

    return follow
