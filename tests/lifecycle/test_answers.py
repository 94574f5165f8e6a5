"""What each call answers in each state: done, a replay, or a conflict that carries the truth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scheduler.domain.reservation import Lifecycle, Reservation
from scheduler.errors import Conflict, NotFound
from tests.lifecycle.cluster import NOTHING, TTL_MS, Cluster, event

HOUR_MS = 3_600_000


# -- how a reservation comes into each state --------------------------------------------------------------------


async def pending(cluster: Cluster) -> Reservation:
    return await cluster.place()


async def named(cluster: Cluster) -> Reservation:
    """Pending, and an event suggested its sandbox."""
    reservation = await cluster.place(lifecycle=Lifecycle.HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    return reservation


async def told(cluster: Cluster) -> Reservation:
    """Pending, suggested by an event, and told by RecordAssignment."""
    reservation = await named(cluster)
    await cluster.record("s1")
    return reservation


async def confirmed(cluster: Cluster) -> Reservation:
    reservation = await cluster.place()
    await cluster.confirm(reservation)
    return reservation


async def settled_named(cluster: Cluster) -> Reservation:
    """Its node lists the sandbox; no caller told it yet."""
    reservation = await named(cluster)
    await cluster.report("a", ("s1",))
    return reservation


async def settled_told(cluster: Cluster) -> Reservation:
    reservation = await confirmed(cluster)
    await cluster.report("a", ("s1",))
    return reservation


async def cancelled(cluster: Cluster) -> Reservation:
    reservation = await cluster.place()
    await cluster.cancel(reservation)
    return reservation


async def expired(cluster: Cluster) -> Reservation:
    reservation = await cluster.place()
    cluster.wait(TTL_MS)
    return reservation


async def orphaned(cluster: Cluster) -> Reservation:
    reservation = await expired(cluster)
    await cluster.confirm(reservation)
    return reservation


async def confirmed_and_overdue(cluster: Cluster) -> Reservation:
    """Confirmed, never seen in a report, and its time is over; nothing has swept it."""
    reservation = await confirmed(cluster)
    cluster.wait(TTL_MS)
    return reservation


# -- what is called ---------------------------------------------------------------------------------------------


async def confirm_s1(cluster: Cluster, reservation: Reservation) -> Any:
    return await cluster.confirm(reservation, "s1")


async def confirm_s2(cluster: Cluster, reservation: Reservation) -> Any:
    return await cluster.confirm(reservation, "s2")


async def cancel(cluster: Cluster, reservation: Reservation) -> Any:
    return await cluster.cancel(reservation)


async def renew(cluster: Cluster, reservation: Reservation) -> Any:
    return await cluster.renew(reservation)


Begin = Callable[[Cluster], Awaitable[Reservation]]
Call = Callable[[Cluster, Reservation], Awaitable[Any]]

# (state before, call, answer, state after). `done` took effect now, `replayed` had before, `orphaned`
# came after expiry. A conflict changes nothing.
ANSWERS: list[tuple[Begin, Call, str, str]] = [
    (pending, confirm_s1, "done", "confirmed"),
    (pending, confirm_s2, "done", "confirmed"),
    (pending, cancel, "done", "cancelled"),
    (pending, renew, "done", "pending"),
    (named, confirm_s1, "done", "confirmed"),
    (named, confirm_s2, "done", "confirmed"),
    (named, cancel, "done", "cancelled"),
    (named, renew, "done", "pending"),
    (told, confirm_s1, "done", "confirmed"),
    (told, confirm_s2, "conflict", "pending"),
    (told, cancel, "conflict", "pending"),
    (told, renew, "done", "pending"),
    (confirmed, confirm_s1, "replayed", "confirmed"),
    (confirmed, confirm_s2, "conflict", "confirmed"),
    (confirmed, cancel, "conflict", "confirmed"),
    (confirmed, renew, "conflict", "confirmed"),
    (settled_named, confirm_s1, "done", "settled"),
    (settled_named, confirm_s2, "done", "confirmed"),
    (settled_named, cancel, "done", "settled"),
    (settled_named, renew, "conflict", "settled"),
    (settled_told, confirm_s1, "replayed", "settled"),
    (settled_told, confirm_s2, "conflict", "settled"),
    (settled_told, cancel, "conflict", "settled"),
    (settled_told, renew, "conflict", "settled"),
    (cancelled, confirm_s1, "conflict", "cancelled"),
    (cancelled, confirm_s2, "conflict", "cancelled"),
    (cancelled, cancel, "replayed", "cancelled"),
    (cancelled, renew, "conflict", "cancelled"),
    (expired, confirm_s1, "orphaned", "confirmed"),
    (expired, confirm_s2, "orphaned", "confirmed"),
    (expired, cancel, "done", "expired"),
    (expired, renew, "conflict", "expired"),
    (orphaned, confirm_s1, "replayed orphaned", "confirmed"),
    (orphaned, confirm_s2, "conflict", "confirmed"),
    (orphaned, cancel, "conflict", "confirmed"),
    (orphaned, renew, "conflict", "confirmed"),
    (confirmed_and_overdue, confirm_s1, "replayed", "settled"),
    (confirmed_and_overdue, confirm_s2, "conflict", "settled"),
    (confirmed_and_overdue, cancel, "conflict", "settled"),
    (confirmed_and_overdue, renew, "conflict", "settled"),
]


@pytest.mark.parametrize(
    ("begin", "call", "answer", "after"),
    ANSWERS,
    ids=[f"{call.__name__} of {begin.__name__}" for begin, call, _, _ in ANSWERS],
)
async def test_every_call_has_one_answer_in_every_state(
    cluster: Cluster, begin: Begin, call: Call, answer: str, after: str
) -> None:
    await cluster.add()
    reservation = await begin(cluster)  # and is not read before the call: reading would notice a deadline
    if answer == "conflict":
        with pytest.raises(Conflict) as conflict:
            await call(cluster, reservation)
        assert conflict.value.facts["reservation"] == await cluster.now(reservation)
    else:
        result = await call(cluster, reservation)
        assert (result.replayed, result.orphaned) == ("replayed" in answer, "orphaned" in answer)
        assert result.reservation == await cluster.now(reservation)
    assert await cluster.state(reservation) == after
    held = (2, 4096, 1) if after in ("pending", "confirmed") else NOTHING
    assert await cluster.pending() == held


async def test_an_unknown_id_is_not_found(cluster: Cluster) -> None:
    reservations = cluster.services.reservations
    for call in (
        reservations.get("nobody"),
        reservations.confirm("nobody", "s1"),
        reservations.cancel("nobody"),
        reservations.renew("nobody", 1_000),
    ):
        with pytest.raises(NotFound):
            await call


async def test_confirm_of_a_settled_one_binds(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await settled_named(cluster)
    await cluster.report("a", ())
    assert await cluster.node_of("s1") is None
    await cluster.confirm(reservation, "s1")
    assert await cluster.node_of("s1") == "a"


async def test_confirm_of_a_sandbox_already_listed_settles_at_once(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.report("a", ("s1",))
    assert await cluster.pending() == (2, 4096, 0), "the report counts the sandbox, but no load of it"
    result = await cluster.confirm(reservation)
    assert (result.reservation.state.value, result.reservation.reason) == ("settled", "listed")
    assert await cluster.pending() == NOTHING


async def test_a_sandbox_told_for_one_reservation_is_a_conflict_for_every_other(cluster: Cluster) -> None:
    await cluster.add()
    first, second = await cluster.place(), await cluster.place()
    await cluster.confirm(first)
    with pytest.raises(Conflict):
        await cluster.confirm(second)
    await cluster.report("a", ("s1",))
    with pytest.raises(Conflict):
        await cluster.confirm(second)
    assert await cluster.pending() == (2, 4096, 1)


async def test_a_lower_renewal_shortens_and_the_longest_allowed_is_a_day(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    result = await cluster.renew(reservation, 1_000)
    assert result.reservation.expires_at_ms == cluster.clock.now_ms + 1_000
    assert (await cluster.renew(reservation, 24 * HOUR_MS)).reservation.state == "pending"
    cluster.wait(24 * HOUR_MS)
    assert await cluster.state(reservation) == "expired"


@pytest.mark.parametrize(("ttl_ms", "readable_ms"), [(1_000, HOUR_MS), (2 * HOUR_MS, 2 * HOUR_MS)])
async def test_a_finished_one_stays_readable_for_an_hour_or_its_own_time(
    cluster: Cluster, ttl_ms: int, readable_ms: int
) -> None:
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=ttl_ms)
    await cluster.renew(reservation, 500)  # how long it stays readable goes by the original TTL
    await cluster.cancel(reservation)
    cluster.wait(readable_ms - 1)
    await cluster.sweep()
    assert await cluster.state(reservation) == "cancelled"
    cluster.wait(1)
    await cluster.sweep()
    with pytest.raises(NotFound):
        await cluster.now(reservation)
