"""A lost ledger: what is missing is "not rebuilt" for one binding_ttl, and "not found" only after that."""

from __future__ import annotations

import pytest

from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NotFound, NotRebuilt
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.settings import Loss
from tests.lifecycle.cluster import BINDING_TTL_MS, Cluster


async def lose_and_recover(ledger: Ledger) -> None:
    """Every key is gone, and a replica that knows it puts its settings back."""
    cursor = b"0"
    while True:
        cursor, keys = await ledger.client.command("SCAN", cursor, "MATCH", ledger.keys.pattern)
        if keys:
            await ledger.client.command("DEL", *keys)
        if int(cursor) == 0:
            break
    await ledger.settings.put(LedgerSettings(), "test-replica", Loss())


async def test_what_is_missing_may_only_be_missing_yet(cluster: Cluster, ledger: Ledger) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.record("s1")
    await lose_and_recover(ledger)
    reservations, bindings = cluster.services.reservations, cluster.services.bindings
    calls = (
        lambda: reservations.get(reservation.reservation_id),
        lambda: reservations.confirm(reservation.reservation_id, "s1"),
        lambda: reservations.cancel(reservation.reservation_id),
        lambda: reservations.renew(reservation.reservation_id, 1_000),
        lambda: bindings.lookup("s1"),
    )
    for call in calls:
        with pytest.raises(NotRebuilt):
            await call()
    cluster.wait(BINDING_TTL_MS - 1)
    with pytest.raises(NotRebuilt):
        await bindings.lookup("s1")
    cluster.wait(1)
    for call in calls:
        with pytest.raises(NotFound):
            await call()


async def test_reports_rebuild_the_bindings_at_once(cluster: Cluster, ledger: Ledger) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    await lose_and_recover(ledger)
    await cluster.discover()
    with pytest.raises(NotRebuilt):
        await cluster.services.bindings.lookup("s1")
    await cluster.report("a", ("s1",))
    assert await cluster.node_of("s1") == "a"


async def test_a_cancel_by_key_leaves_its_tombstone_meanwhile(cluster: Cluster, ledger: Ledger) -> None:
    await cluster.add()
    await cluster.place(idempotency_key="k1")
    await lose_and_recover(ledger)
    result = await cluster.services.reservations.cancel_by_key("anonymous", "k1")
    assert result.reservation.state == "cancelled"
