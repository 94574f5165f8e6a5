"""Nodes that refuse what they are given: who is avoided, for how long, and what it looks like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause
from scheduler.domain.settings import AvoidSettings, GroupSettings, LedgerSettings
from scheduler.ledger.ledger import Ledger
from tests.support.backends import put_settings
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

COLD = Hint(HintKind.COLD_SANDBOX, cpu_count=2, memory_mb=1024, images=("app",))


async def report(ledger: Ledger, node_id: str, allocated_cpu: int = 0) -> None:
    snapshot = NodeSnapshot(NodeStatus.READY, 16, 65536 * MIB, allocated_cpu)
    await ledger.nodes.heartbeat(Heartbeat(node_id, "one", snapshot=snapshot))


@pytest.fixture
async def fleet(ledger: Ledger) -> Ledger:
    """`a` is empty and refuses; `b` and `c` are half full."""
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in "abc"], ())
    for name, allocated_cpu in (("a", 0), ("b", 8), ("c", 8)):
        await report(ledger, name, allocated_cpu)
    return ledger


async def place(ledger: Ledger, *excluded: str, key: str | None = None) -> tuple[str, str]:
    """The node and the reservation of one creation."""
    request = ScheduleRequest(hint=COLD, exclude_nodes=excluded, idempotency_key=key)
    decision = await ledger.placements.schedule(request)
    assert decision.reservation is not None
    return decision.node.node_id, decision.reservation.reservation_id


async def refuse(ledger: Ledger, times: int = 3) -> None:
    for _ in range(times):
        node_id, reservation_id = await place(ledger, "b", "c")
        assert node_id == "a"
        await ledger.reservations.cancel(reservation_id, "no", CancelCause.NODE_REFUSED)


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_an_avoided_node_says_so_until_its_time_is_up_and_the_ledger_stays_sound(
    fleet: Ledger, clock: VirtualClock, strategy: Strategy
) -> None:
    await put_settings(fleet, LedgerSettings(strategy=strategy, groups=GroupSettings(9), revision=1))
    await refuse(fleet)
    assert [(await place(fleet))[0] == "a" for _ in range(6)] == [False] * 6
    await assert_ledger_is_sound(fleet)
    explanation = await fleet.placements.explain(ScheduleRequest(hint=COLD))
    assert {node.node_id: node.reason for node in explanation.nodes}["a"] == "avoided"
    node = await fleet.nodes.get("a")
    assert (node.eligible, node.ineligible_reason, node.status) == (False, "avoided", NodeStatus.READY)
    forced = await fleet.placements.explain(ScheduleRequest(hint=COLD, exclude_nodes=("b", "c")))
    assert forced.node is not None
    assert {node.node_id: (node.reason, node.rank) for node in forced.nodes}["a"] == (None, 0)
    clock.advance(1000)
    assert (await fleet.nodes.get("a")).eligible
    assert (await place(fleet, "b", "c"))[0] == "a"
    assert not (await fleet.nodes.get("a")).eligible
    await assert_ledger_is_sound(fleet)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_cancel_by_key_counts_once_however_often_it_is_told(fleet: Ledger) -> None:
    for number in range(2):
        await place(fleet, "b", "c", key=f"k{number}")
        for _ in range(3):
            await fleet.reservations.cancel_by_key("anonymous", f"k{number}", "no", CancelCause.NODE_REFUSED)
    assert (await fleet.nodes.get("a")).eligible
    await refuse(fleet, 1)
    assert not (await fleet.nodes.get("a")).eligible


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_what_was_under_way_when_a_node_was_avoided_does_not_prolong_it(
    fleet: Ledger, clock: VirtualClock
) -> None:
    under_way = [(await place(fleet, "b", "c"))[1] for _ in range(8)]
    for reservation_id in under_way:
        await fleet.reservations.cancel(reservation_id, "no", CancelCause.NODE_REFUSED)
    clock.advance(1000)
    assert (await fleet.nodes.get("a")).eligible


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_node_that_leaves_or_unregisters_leaves_nothing_behind(fleet: Ledger) -> None:
    await refuse(fleet)
    await fleet.nodes.remove("a")
    await fleet.nodes.set("a", "http://a:8000", (await fleet.nodes.get("b")).discovery)
    await report(fleet, "a")
    assert (await place(fleet))[0] == "a"
    await refuse(fleet)
    await fleet.nodes.unregister("a", "one")
    await report(fleet, "a")
    assert (await place(fleet))[0] == "a"
    await assert_ledger_is_sound(fleet)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, avoid=AvoidSettings(refusals=0))
async def test_it_can_be_switched_off(fleet: Ledger) -> None:
    await refuse(fleet, 9)
    assert (await place(fleet))[0] == "a"


@pytest.mark.ledger_settings(strategy=Strategy.ROUND_ROBIN, avoid=AvoidSettings(share_percent=100))
async def test_a_turn_reaches_avoided_nodes_when_all_are(fleet: Ledger) -> None:
    for name in "abc":
        for image in range(3):
            hint = Hint(HintKind.COLD_SANDBOX, images=(f"{name}{image}",))
            request = ScheduleRequest(hint=hint, exclude_nodes=tuple({"a", "b", "c"} - {name}))
            reservation = (await fleet.placements.schedule(request)).reservation
            assert reservation is not None
            await fleet.reservations.cancel(reservation.reservation_id, "no", CancelCause.NODE_REFUSED)
    assert [(await fleet.nodes.get(name)).ineligible_reason for name in "abc"] == ["avoided"] * 3
    assert {(await place(fleet))[0] for _ in range(3)} == {"a", "b", "c"}
    await assert_ledger_is_sound(fleet)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_node_that_may_be_tried_again_takes_nobodys_place_among_the_avoided(
    fleet: Ledger, clock: VirtualClock
) -> None:
    """One of three may be avoided at once. `a` is watched, and too full to be tried."""
    await refuse(fleet)
    clock.advance(1100)
    for name, allocated_cpu in (("a", 15), ("b", 0), ("c", 8)):
        await report(fleet, name, allocated_cpu)
    for number in range(4):
        hint = replace(COLD, images=(f"image-{number}",))
        decision = await fleet.placements.schedule(ScheduleRequest(hint=hint))
        assert decision.reservation is not None
        if number < 3:
            assert decision.node.node_id == "b"
            await fleet.reservations.cancel(decision.reservation.reservation_id, "no", CancelCause.NODE_REFUSED)
    assert decision.node.node_id == "c"
    explained = await fleet.placements.explain(ScheduleRequest(hint=COLD))
    assert [node.node_id for node in explained.nodes if node.reason == "avoided"] == ["b"]
    await assert_ledger_is_sound(fleet)
