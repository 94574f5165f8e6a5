"""Refresh AgentENV's own binding keys before their TTL ends; one replica at a time does it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.ledger.leases import LeaseStore
    from scheduler.ledger.upstream_bindings import UpstreamBindings

LEASE = "upstream_bindings"
LEASE_TTL_MS = 15_000
INTERVAL_MS = 2_000


def refreshing(
    upstream: UpstreamBindings, leases: LeaseStore, replica_id: str, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Awaitable[None]]:
    """A task that refreshes every third of the TTL while this replica holds the lease, and at once when it takes the
    lease over."""
    due = 0.0

    async def refresh() -> None:
        nonlocal due
        started = clock()
        if not await leases.hold(LEASE, replica_id, LEASE_TTL_MS):
            due = 0.0
        elif started >= due:
            due = started + await upstream.refresh() / 3000

    return refresh
