"""Every arrow of the state machine, and what is held before and after it.

pending ──confirm──▶ confirmed ──────┐
   │ │ └──listed / counters──────────┴──▶ settled
   │ └──cancel──▶ cancelled
   └──deadline──▶ expired ──late confirm──▶ confirmed (orphaned)
"""

from __future__ import annotations

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.errors import NoNodes
from tests.lifecycle.cluster import GRACE_MS, MIB, NOTHING, TTL_MS, Cluster, event


async def test_a_placement_is_pending_and_held_in_full(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    assert reservation.state is ReservationState.PENDING
    assert await cluster.pending() == (2, 4096, 1)


async def test_confirm_leads_from_pending_to_confirmed_and_goes_on_holding(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    result = await cluster.confirm(reservation)
    assert result.reservation.state is ReservationState.CONFIRMED
    assert await cluster.pending() == (2, 4096, 1)
    assert await cluster.node_of("s1") == "a"


async def test_a_roster_leads_from_confirmed_to_settled(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.confirm(reservation)
    await cluster.report("a", ("s1",), allocated_cpu=2, allocated_memory_bytes=4096 * MIB, sandbox_count=1)
    assert await cluster.ending(reservation) == ("settled", "listed")
    assert await cluster.pending() == NOTHING


async def test_a_roster_leads_from_pending_to_settled_once_an_event_named_it(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(lifecycle=Lifecycle.HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert await cluster.state(reservation) is ReservationState.PENDING
    await cluster.report("a", ("s1",), allocated_cpu=2, allocated_memory_bytes=4096 * MIB, sandbox_count=1)
    assert await cluster.ending(reservation) == ("settled", "listed")
    assert await cluster.pending() == NOTHING


async def test_counters_lead_from_pending_to_settled_when_nobody_will_confirm(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(lifecycle=Lifecycle.HEARTBEAT)
    await cluster.report(allocated_cpu=2, allocated_memory_bytes=4096 * MIB, create_successes=1)
    assert await cluster.ending(reservation) == ("settled", "counters")
    assert await cluster.pending() == NOTHING


async def test_counters_lead_from_confirmed_to_settled_where_reports_carry_no_roster(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.confirm(reservation)
    await cluster.report(allocated_cpu=2, allocated_memory_bytes=4096 * MIB, create_successes=1)
    assert await cluster.ending(reservation) == ("settled", "counters")
    assert await cluster.pending() == NOTHING


async def test_cancel_leads_from_pending_to_cancelled_and_frees_at_once(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    result = await cluster.cancel(reservation, "image not found")
    assert result.reservation.state is ReservationState.CANCELLED
    assert result.reservation.reason == "image not found"
    assert await cluster.pending() == NOTHING


@pytest.mark.parametrize("swept", [False, True])
async def test_the_deadline_leads_from_pending_to_expired_swept_or_not(cluster: Cluster, swept: bool) -> None:
    await cluster.add()
    reservation = await cluster.place()
    cluster.wait(TTL_MS - 1)
    assert await cluster.state(reservation) is ReservationState.PENDING
    cluster.wait(1)
    if swept:
        await cluster.sweep()
    assert await cluster.ending(reservation) == ("expired", "deadline")
    assert await cluster.pending() == NOTHING


async def test_a_late_confirm_leads_from_expired_to_confirmed_and_holds_again(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    cluster.wait(TTL_MS)
    result = await cluster.confirm(reservation)
    assert result.orphaned
    assert result.reservation.state is ReservationState.CONFIRMED
    assert await cluster.pending() == (2, 4096, 1)
    assert await cluster.node_of("s1") == "a"


async def test_an_orphaned_one_is_settled_by_its_roster_and_stays_known_as_orphaned(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    cluster.wait(TTL_MS)
    await cluster.confirm(reservation)
    await cluster.report("a", ("s1",))
    found = await cluster.now(reservation)
    assert (found.state, found.orphaned) == (ReservationState.SETTLED, True)
    assert await cluster.pending() == NOTHING


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_late_confirm_may_exceed_admission_because_the_sandbox_exists(cluster: Cluster) -> None:
    await cluster.add(cpu_count=2, memory_mb=4096)
    late = await cluster.place()
    cluster.wait(TTL_MS)
    await cluster.report()
    await cluster.place()
    await cluster.confirm(late)
    assert await cluster.pending() == (4, 8192, 2)
    with pytest.raises(NoNodes):
        await cluster.place()


async def test_a_confirmed_one_that_no_report_shows_is_settled_after_the_ttl_of_its_confirm(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    cluster.wait(TTL_MS - 1)
    await cluster.confirm(reservation)
    cluster.wait(TTL_MS - 1)
    await cluster.report()
    assert await cluster.state(reservation) is ReservationState.CONFIRMED
    cluster.wait(1)
    assert await cluster.ending(reservation) == ("settled", "unobserved")
    assert await cluster.pending() == NOTHING


async def test_a_confirmed_one_that_rosters_leave_out_is_settled_as_gone(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.confirm(reservation)
    for _ in range(2):
        assert await cluster.state(reservation) is ReservationState.CONFIRMED
        cluster.wait(GRACE_MS)
        await cluster.report("a", ())
    assert await cluster.ending(reservation) == ("settled", "gone")
    assert await cluster.pending() == NOTHING
    assert await cluster.node_of("s1") is None


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_delete_event_leads_to_settled_from_wherever_the_sandbox_was_named(
    cluster: Cluster, confirmed: bool
) -> None:
    await cluster.add()
    reservation = await cluster.place(lifecycle=Lifecycle.HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    if confirmed:
        await cluster.confirm(reservation)
    await cluster.tell("a", event("delete", "s1"))
    assert await cluster.ending(reservation) == ("settled", "deleted")
    assert await cluster.pending() == NOTHING
    assert await cluster.node_of("s1") is None


async def test_renew_is_the_arrow_from_pending_to_itself(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=10_000)
    cluster.wait(9_999)
    result = await cluster.renew(reservation, 20_000)
    assert result.reservation.expires_at_ms == cluster.clock.now_ms + 20_000
    cluster.wait(19_999)
    assert await cluster.pending() == (2, 4096, 1)
    cluster.wait(1)
    assert await cluster.state(reservation) is ReservationState.EXPIRED
    assert await cluster.pending() == NOTHING
