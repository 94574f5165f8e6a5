"""Maintenance says how much it did, so that whoever calls it goes on until nothing is left."""

from __future__ import annotations

import pytest

from scheduler.domain.node import Heartbeat
from scheduler.domain.reservation import ReservationState
from scheduler.ledger.ledger import Ledger
from tests.lifecycle.cluster import BINDING_TTL_MS, NOTHING, REPORT_TTL_MS, TTL_MS, Cluster

DAY_MS = 24 * 3_600_000
SLICE = 64


async def test_expiries_count_as_done(cluster: Cluster) -> None:
    await cluster.add(cpu_count=10_000, memory_mb=10_000_000)
    for _ in range(SLICE + 1):
        await cluster.place(1, 1)
    cluster.wait(TTL_MS)
    await cluster.report()
    sweep = cluster.services.reservations.sweep
    # A report works off all that is due on its node.
    assert await sweep() == 0
    for _ in range(SLICE + 1):
        await cluster.place(1, 1)
    cluster.wait(TTL_MS)
    assert await sweep() >= SLICE
    assert await sweep() >= 1
    assert await sweep() == 0


async def test_silence_removal_and_old_bindings_count_as_done(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.report("a", ("s1",))
    cluster.wait(REPORT_TTL_MS + 1)
    assert await cluster.services.reservations.sweep() == 1
    await cluster.services.nodes.remove("a")
    cluster.wait(BINDING_TTL_MS)
    assert await cluster.services.reservations.sweep() > 0
    await cluster.sweep()
    assert await cluster.services.reservations.sweep() == 0


@pytest.mark.ledger_settings(self_registration=True)
async def test_a_self_registered_node_leaves_after_a_day_behind_however_many_that_stay(
    cluster: Cluster, ledger: Ledger
) -> None:
    for number in range(40):
        await cluster.add(f"listed-{number:02}")
    cluster.wait(1)
    await cluster.services.nodes.heartbeat(Heartbeat("self", "run-1", endpoint="http://self:8000"))
    assert len(await ledger.nodes.list()) == 41
    cluster.wait(DAY_MS)
    for _ in range(4):
        await cluster.sweep()
        cluster.wait(1_000)
    left = {node.node_id for node in await ledger.nodes.list()}
    assert left == {f"listed-{number:02}" for number in range(40)}


async def test_whoever_reads_works_off_what_is_due_there_and_waits_for_nothing_else(
    cluster: Cluster, ledger: Ledger
) -> None:
    await cluster.add("a", cpu_count=10_000, memory_mb=10_000_000)
    await cluster.add("b", cpu_count=10_000, memory_mb=10_000_000)
    for _ in range(2 * SLICE):
        await cluster.place(1, 1, exclude_nodes=("b",))
    few = [await cluster.place(1, 1, exclude_nodes=("a",)) for _ in range(3)]
    cluster.wait(TTL_MS)
    slices = ledger.client.statistics.backlog_slices
    assert await cluster.pending("b") == NOTHING
    page, _ = await ledger.reservations.list(node_id="b")
    assert {(each.reservation_id, each.state.value) for each in page} == {
        (each.reservation_id, "expired") for each in few
    }
    assert ledger.client.statistics.backlog_slices == slices
    assert (await cluster.stats())["reservations_expired"] == len(few)
    assert await cluster.pending("a") == NOTHING, "as many slices as it takes"
    page, _ = await ledger.reservations.list(state=ReservationState.PENDING)
    assert page == ()
