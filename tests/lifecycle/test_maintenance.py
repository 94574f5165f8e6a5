"""Maintenance says how much it did, so that whoever calls it goes on until nothing is left."""

from __future__ import annotations

import pytest

from scheduler.domain.node import Heartbeat
from scheduler.ledger.ledger import Ledger
from tests.lifecycle.cluster import BINDING_TTL_MS, REPORT_TTL_MS, TTL_MS, Cluster

DAY_MS = 24 * 3_600_000
SLICE = 128


async def test_expiries_count_as_done(cluster: Cluster) -> None:
    await cluster.add(cpu_count=10_000, memory_mb=10_000_000)
    for _ in range(SLICE + 1):
        await cluster.place(1, 1)
    cluster.wait(TTL_MS)
    await cluster.report()
    sweep = cluster.services.reservations.sweep
    # A report works off a slice of what is due as well.
    assert await sweep() == 1
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
