"""What the metrics page tells of reservations: how many are open where, how old, and what became of the others."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.domain.fleet import Fullness
from scheduler.domain.node import DiscoveryState, NodeStatus, PendingTotals
from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import OpenReservations, ReservationState
from scheduler.domain.settings import LedgerSettings, NodeResourceLimit
from scheduler.errors import Conflict
from scheduler.ledger.ledger import Ledger
from scheduler.observability.ledger_figures import NODES_SHOWN, OTHER_NODES, LedgerFigures
from scheduler.observability.metrics import Metrics
from tests.lifecycle.cluster import GIB, REPORT_TTL_MS, TTL_MS, Cluster
from tests.support.backends import put_settings

PENDING, CONFIRMED = ReservationState.PENDING, ReservationState.CONFIRMED


async def figures(cluster: Cluster) -> dict[str, float]:
    """The metrics page by name and labels."""
    await cluster.services.overview.refresh()
    return figures_on(cluster.services.metrics)


def figures_on(metrics: Metrics) -> dict[str, float]:
    lines = metrics.page().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("agentenv_scheduler_"))
    return {name.removeprefix("agentenv_scheduler_"): float(value) for name, _, value in pairs}


async def test_open_reservations_are_counted_by_node_and_state(cluster: Cluster, ledger: Ledger) -> None:
    await cluster.add("a", cpu_count=5_000, memory_mb=10_000_000)
    await cluster.add("b")
    for _ in range(600):  # more than one slice
        await cluster.place(1, 1, exclude_nodes=("b",))
    cluster.wait(5_000)
    confirmed = await cluster.place(1, 1, exclude_nodes=("a",))
    await cluster.confirm(confirmed)
    await cluster.cancel(await cluster.place(1, 1))
    cluster.wait(1_000)
    assert await ledger.reservations.tally() == (
        OpenReservations("a", PENDING, 600, 6_000),
        OpenReservations("b", CONFIRMED, 1, 1_000),
    )
    shown = await figures(cluster)
    assert shown['active_reservations{node="a",state="pending"}'] == 600
    assert shown['active_reservations{node="b",state="confirmed"}'] == 1
    assert shown['oldest_reservation_seconds{state="pending"}'] == 6
    assert shown['oldest_reservation_seconds{state="confirmed"}'] == 1
    cluster.wait(TTL_MS)
    assert await ledger.reservations.tally() == (), "what is overdue is open no more, swept or not"


def test_nodes_beyond_the_bound_are_summed() -> None:
    metrics = Metrics()
    tally = [OpenReservations(f"n{number:03}", PENDING, 1000 - number, 0) for number in range(NODES_SHOWN + 3)]
    metrics.show(LedgerFigures(open_reservations=tally))
    shown = {name: value for name, value in figures_on(metrics).items() if name.startswith("active_reservations")}
    assert len(shown) == NODES_SHOWN + 1
    assert shown[f'active_reservations{{node="{OTHER_NODES}",state="pending"}}'] == 800 + 799 + 798


async def test_what_became_of_reservations_and_calls_is_counted(cluster: Cluster) -> None:
    await cluster.add()
    late, told, cancelled, removed = [await cluster.place() for _ in range(4)]
    for _ in range(2):
        await cluster.confirm(told)
        await cluster.cancel(cancelled)
    with pytest.raises(Conflict):
        await cluster.cancel(told)
    await cluster.report("a", ("s1",))
    cluster.wait(TTL_MS)
    await cluster.confirm(late, "s2")
    await cluster.place(idempotency_key="k1")
    await cluster.place(idempotency_key="k1")
    shown = await figures(cluster)
    assert shown['reservations_total{state="expired"}'] == 2
    assert shown['reservations_total{state="cancelled"}'] == 1
    assert shown["orphaned_confirmations_total"] == 1
    assert shown['replays_total{call="confirm"}'] == shown['replays_total{call="cancel"}'] == 1
    assert shown['replays_total{call="schedule"}'] == 1
    assert shown['conflicts_total{call="cancel"}'] == 1
    assert shown['reservation_call_duration_seconds_count{call="confirm",result="done"}'] == 2
    assert shown['reservation_call_duration_seconds_count{call="cancel",result="conflict"}'] == 1
    await cluster.services.nodes.remove("a")
    cluster.wait(TTL_MS)
    with pytest.raises(Conflict):
        await cluster.confirm(removed, "s1")
    await cluster.confirm(removed, "s3")
    assert (await figures(cluster))["unbound_confirmations_total"] == 1


async def test_the_fullness_of_the_fleet_is_summed_over_nodes_that_take_creations(
    cluster: Cluster, ledger: Ledger
) -> None:
    await cluster.add("a", cpu_count=16, memory_mb=32_768, allocated_cpu=4, allocated_memory_bytes=4 * GIB)
    await cluster.add("b", cpu_count=8, memory_mb=8_192, paused_allocated_cpu=1, paused_allocated_memory_bytes=GIB)
    await cluster.add("unknown", cpu_count=0, memory_mb=0)
    await cluster.add("ill", cpu_count=64, memory_mb=65_536, status=NodeStatus.UNHEALTHY)
    await cluster.add("drains", cpu_count=64, memory_mb=65_536)
    await cluster.discover("drains", DiscoveryState.LINGERING)
    await cluster.discover("never")
    await cluster.place(3, 2_048, exclude_nodes=("b", "unknown", "never"))
    tally = await ledger.nodes.tally()
    assert tally.cpu_count == Fullness(capacity=24, allocated=5, reserved=3, free=9 + 7, largest_free=9)
    assert tally.memory_bytes == Fullness(40 * GIB, 5 * GIB, 2 * GIB, free=(26 + 7) * GIB, largest_free=26 * GIB)
    assert tally.unknown_capacity == 2
    assert tally.observed == {"ready": 3, "unhealthy": 1, "lingering": 1}
    assert tally.pending["a"] == PendingTotals(3, 2 * GIB, 1)
    shown = await figures(cluster)
    assert shown["fleet_capacity_cpu_count"] == 24
    assert shown["fleet_largest_free_memory_bytes"] == 26 * GIB
    assert shown["fleet_unknown_capacity_nodes"] == 2


async def test_what_a_limit_leaves_is_all_that_is_free(cluster: Cluster, ledger: Ledger) -> None:
    limits = NodeResourceLimit(max_sandbox_count=2, max_allocated_cpu_including_paused=10)
    await put_settings(ledger, LedgerSettings(node_resource_limit=limits, revision=1))
    await cluster.add("a", cpu_count=16, memory_mb=32_768, allocated_cpu=4)
    await cluster.add("full", cpu_count=16, memory_mb=32_768, sandbox_count=2)
    await cluster.add("above", cpu_count=16, memory_mb=32_768, sandbox_count=3)
    tally = await ledger.nodes.tally()
    assert tally.cpu_count == Fullness(capacity=48, allocated=4, reserved=0, free=6, largest_free=6)
    assert tally.memory_bytes.free == 32 * GIB


async def test_nodes_are_tallied_as_they_look_one_by_one_in_any_number_of_slices(
    cluster: Cluster, ledger: Ledger
) -> None:
    # Known capacity comes first, so the placement goes to the one node that says how much it has.
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED, revision=1))
    for number in range(1_003):
        await cluster.discover(f"n{number:04}")
    for number in range(0, 1_003, 100):
        await cluster.report(f"n{number:04}", cpu_count=4, memory_total_bytes=GIB)
    cluster.wait(REPORT_TTL_MS + 1)
    await cluster.report("n0900", cpu_count=4, memory_total_bytes=GIB)
    await cluster.place(1, 1)
    await ledger.reservations.sweep()
    tally, nodes = await ledger.nodes.tally(), await ledger.nodes.list()
    assert tally.observed == Counter(node.status.value for node in nodes if node.last_seen_ms is not None)
    assert tally.observed == {"unhealthy": 10, "ready": 1}
    assert tally.cpu_count == Fullness(4, 0, 1, 3, 3)
    told = {node.node_id: node.pending for node in nodes if node.pending != PendingTotals()}
    assert {node_id: held for node_id, held in tally.pending.items() if held != PendingTotals()} == told
    assert list(told) == ["n0900"]
