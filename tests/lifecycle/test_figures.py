"""What the metrics page tells of reservations: how many are open where, how old, and what became of the others."""

from __future__ import annotations

import pytest

from scheduler.domain.reservation import OpenReservations, ReservationState
from scheduler.errors import Conflict
from scheduler.observability.ledger_figures import NODES_SHOWN, OTHER_NODES, LedgerFigures
from scheduler.observability.metrics import Metrics
from scheduler.store.ledger import Ledger
from tests.lifecycle.cluster import TTL_MS, Cluster

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
