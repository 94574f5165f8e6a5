"""Which sandbox a reservation became: told by callers, suggested by events, never guessed from forks."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.domain.reservation import Lifecycle
from scheduler.errors import Conflict
from tests.lifecycle.cluster import GRACE_MS, MIB, NOTHING, TTL_MS, Cluster, event

HEARTBEAT = Lifecycle.HEARTBEAT


async def test_an_event_names_the_oldest_reservation_of_its_exact_size(cluster: Cluster) -> None:
    await cluster.add()
    larger, first, second = (
        await cluster.place(4, lifecycle=HEARTBEAT),
        await cluster.place(2, lifecycle=HEARTBEAT),
        await cluster.place(2, lifecycle=HEARTBEAT),
    )
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert (await cluster.now(first)).sandbox_id == "s1"
    assert not (await cluster.now(first)).sandbox_told
    assert [(await cluster.now(other)).sandbox_id for other in (larger, second)] == [None, None]


async def test_an_unstated_size_fits_any_event(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(0, 0, lifecycle=HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 3, 999))
    assert (await cluster.now(reservation)).sandbox_id == "s1"


async def test_where_different_stated_sizes_fit_the_event_names_none(cluster: Cluster) -> None:
    await cluster.add()
    by_cpu, by_memory = (
        await cluster.place(2, 0, lifecycle=HEARTBEAT),
        await cluster.place(0, 4096, lifecycle=HEARTBEAT),
    )
    assert await cluster.tell("a", event("create", "s1", 2, 4096)) == 1
    assert [(await cluster.now(each)).sandbox_id for each in (by_cpu, by_memory)] == [None, None]
    await cluster.confirm(by_memory, "s0")
    await cluster.tell("a", event("create", "s2", 2, 4096))
    assert (await cluster.now(by_cpu)).sandbox_id == "s2"


async def test_where_one_of_that_size_was_given_up_the_event_names_none(cluster: Cluster) -> None:
    await cluster.add()
    given_up, other = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    await cluster.cancel(given_up)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert (await cluster.now(other)).sandbox_id is None, "nobody knows whether the create of the first goes on"


async def test_an_event_of_one_node_names_nothing_on_another(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    reservation = await cluster.place(exclude_nodes=("b",))
    await cluster.tell("b", event("create", "s1", 2, 4096))
    assert (await cluster.now(reservation)).sandbox_id is None


async def test_an_id_that_a_reservation_carries_names_nothing_more(cluster: Cluster) -> None:
    await cluster.add()
    first, second = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    await cluster.confirm(first, "s1")
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert (await cluster.now(second)).sandbox_id is None


async def test_an_event_told_twice_counts_once(cluster: Cluster) -> None:
    await cluster.add()
    first, second = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    told = event("create", "s1", 2, 4096)
    assert await cluster.tell("a", told, told) == 1
    await cluster.cancel(first)
    assert await cluster.tell("a", told) == 0
    assert (await cluster.now(second)).sandbox_id is None


async def test_an_event_names_nothing_where_a_confirming_caller_may_mean_it(cluster: Cluster) -> None:
    """Two of one size may be swapped, and when the true owner is cancelled the other would count as begun."""
    await cluster.add()
    explicit, other = await cluster.place(), await cluster.place(lifecycle=HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert [(await cluster.now(each)).sandbox_id for each in (explicit, other)] == [None, None]
    assert await cluster.node_of("s1") is None
    await cluster.confirm(explicit)
    assert (await cluster.now(explicit)).sandbox_id == "s1"


async def test_a_fork_is_never_mistaken_for_a_placed_sandbox(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.tell("a", event("fork", "child", 2, 4096))
    await cluster.record("child")
    assert (await cluster.now(reservation)).sandbox_id is None
    await cluster.report("a", ("child",), allocated_cpu=2, allocated_memory_bytes=4096 * MIB, create_successes=1)
    assert await cluster.state(reservation) == "pending"
    assert await cluster.pending() == (2, 4096, 1)
    assert await cluster.node_of("child") == "a"


async def test_pauses_and_resumes_name_nothing(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    assert await cluster.tell("a", event("pause", "s1", 2, 4096), event("resume", "s1", 2, 4096)) == 2
    assert (await cluster.now(reservation)).sandbox_id is None


async def test_an_event_names_one_that_counters_settled_and_frees_nothing_by_that(cluster: Cluster) -> None:
    await cluster.add()
    first, second = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    grown: dict[str, Any] = {"allocated_cpu": 2, "allocated_memory_bytes": 4096 * MIB, "create_successes": 1}
    await cluster.report(**grown)
    assert [await cluster.state(each) for each in (first, second)] == ["settled", "pending"]
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert [(await cluster.now(each)).sandbox_id for each in (first, second)] == ["s1", None]
    assert await cluster.pending() == (2, 4096, 1)
    # It took its part of the growth already, so the next growth is credited in full.
    await cluster.report(allocated_cpu=4, allocated_memory_bytes=8192 * MIB, create_successes=2)
    assert await cluster.ending(second) == ("settled", "counters")


async def test_a_create_of_what_is_listed_already_settles_at_once(cluster: Cluster) -> None:
    await cluster.add()
    reservation, _ = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(4, lifecycle=HEARTBEAT)
    await cluster.report("a", ("s1",))
    assert await cluster.state(reservation) == "pending"
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert await cluster.ending(reservation) == ("settled", "listed")
    assert await cluster.pending() == (4, 4096, 1)


async def test_a_confirm_moves_a_provisional_name(cluster: Cluster) -> None:
    await cluster.add()
    guessed, real = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert (await cluster.now(guessed)).sandbox_id == "s1"
    result = await cluster.confirm(real, "s1")
    assert (result.reservation.sandbox_id, result.reservation.sandbox_told) == ("s1", True)
    assert (await cluster.now(guessed)).sandbox_id is None
    assert await cluster.pending() == (4, 8192, 2)


async def test_one_that_a_guess_had_settled_counts_again_under_its_old_deadline(cluster: Cluster) -> None:
    await cluster.add()
    guessed, real = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    deadline_ms = guessed.expires_at_ms
    await cluster.tell("a", event("create", "s1", 2, 4096))
    await cluster.report("a", ("s1",))
    assert await cluster.state(guessed) == "settled"
    cluster.wait(1_000)
    await cluster.confirm(real, "s1")
    found = await cluster.now(guessed)
    assert (found.state, found.sandbox_id, found.expires_at_ms) == ("pending", None, deadline_ms)
    assert await cluster.ending(real) == ("settled", "listed")
    assert await cluster.pending() == (2, 4096, 1)
    cluster.wait(TTL_MS - 1_000)
    assert await cluster.ending(guessed) == ("expired", "deadline")
    assert await cluster.pending() == NOTHING


async def test_one_that_a_guess_had_settled_expires_at_once_when_its_deadline_has_passed(cluster: Cluster) -> None:
    await cluster.add()
    guessed = await cluster.place(reservation_ttl_ms=5_000)
    real = await cluster.place()
    await cluster.tell("a", event("create", "s1", 2, 4096))
    await cluster.report("a", ("s1",))
    cluster.wait(5_000)
    await cluster.confirm(real, "s1")
    assert await cluster.ending(guessed) == ("expired", "deadline")
    assert await cluster.pending() == NOTHING


async def test_a_confirm_that_corrects_a_guess_counts_until_its_own_sandbox_is_listed(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.tell("a", event("create", "s1", 2, 4096))
    await cluster.report("a", ("s1",))
    await cluster.confirm(reservation, "s2")
    assert await cluster.state(reservation) == "confirmed"
    assert await cluster.pending() == (2, 4096, 1)
    await cluster.report("a", ("s1", "s2"))
    assert await cluster.ending(reservation) == ("settled", "listed")


async def test_a_name_that_went_with_its_reservation_is_free_for_another(cluster: Cluster) -> None:
    await cluster.add()
    expired = await cluster.place(reservation_ttl_ms=5_000)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    cluster.wait(TTL_MS)
    other = await cluster.place()
    await cluster.confirm(other, "s1")
    # The late confirm of the first tells another sandbox and must leave the name where it is by now.
    assert (await cluster.confirm(expired, "s2")).orphaned
    with pytest.raises(Conflict):
        await cluster.confirm(await cluster.place(), "s1")
    await cluster.report("a", ("s1", "s2"))
    assert [await cluster.state(each) for each in (other, expired)] == ["settled", "settled"]


@pytest.mark.parametrize("told", ["event", "assigned"])
async def test_what_is_told_to_exist_is_held_as_long_as_a_confirmed_one(cluster: Cluster, told: str) -> None:
    await cluster.add()
    name = "s1" if told == "assigned" else None
    reservation = await cluster.place(lifecycle=HEARTBEAT, reservation_ttl_ms=5_000, sandbox_id=name)
    cluster.wait(4_000)
    if told == "event":
        await cluster.tell("a", event("create", "s1", 2, 4096))
    else:
        await cluster.record("s1")
    cluster.wait(TTL_MS - 1)
    assert await cluster.pending() == (2, 4096, 1), "its deadline was for the create to begin"
    cluster.wait(1)
    assert await cluster.ending(reservation) == ("expired", "deadline")


async def test_one_that_was_named_by_mistake_has_its_own_deadline_again(cluster: Cluster) -> None:
    await cluster.add()
    guessed = await cluster.place(lifecycle=HEARTBEAT, reservation_ttl_ms=5_000)
    real = await cluster.place(lifecycle=HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert (await cluster.now(guessed)).expires_at_ms > guessed.expires_at_ms
    await cluster.confirm(real, "s1")
    assert (await cluster.now(guessed)).expires_at_ms == guessed.expires_at_ms
    cluster.wait(5_000)
    assert await cluster.ending(guessed) == ("expired", "deadline")
    assert await cluster.pending() == (2, 4096, 1)


async def test_record_assignment_makes_a_guess_a_told_name(cluster: Cluster) -> None:
    await cluster.add()
    guessed, other = await cluster.place(lifecycle=HEARTBEAT), await cluster.place(lifecycle=HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    await cluster.record("s1")
    assert (await cluster.now(guessed)).sandbox_told
    with pytest.raises(Conflict):
        await cluster.confirm(other, "s1")


async def test_record_assignment_alone_names_nothing(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.record("child")
    assert (await cluster.now(reservation)).sandbox_id is None
    assert await cluster.pending() == (2, 4096, 1)


async def test_a_delete_of_another_node_ends_nothing(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    reservation = await cluster.place(exclude_nodes=("b",))
    await cluster.confirm(reservation)
    await cluster.tell("b", event("delete", "s1"))
    assert await cluster.state(reservation) == "confirmed"
    assert await cluster.node_of("s1") == "a"


async def test_growth_before_success_holds_nothing_twice_when_the_event_arrives(cluster: Cluster) -> None:
    """A node counts a booting sandbox before it counts a success; the report in between lists it."""
    await cluster.add()
    reservation = await cluster.place(lifecycle=HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    growth: dict[str, Any] = {"allocated_cpu": 2, "allocated_memory_bytes": 4096 * MIB, "sandbox_count": 1}
    await cluster.report("a", ("s1",), sandbox_starting_count=1, **growth)
    assert await cluster.ending(reservation) == ("settled", "listed")
    assert await cluster.pending() == NOTHING
    other = await cluster.place(lifecycle=HEARTBEAT)
    await cluster.report("a", ("s1",), sandbox_starting_count=0, create_successes=1)
    assert await cluster.state(other) == "pending"
    cpu_count, memory_mb, _ = await cluster.pending()
    assert (cpu_count, memory_mb) == (2, 4096), "a success that comes late frees nobody's capacity"


@pytest.mark.parametrize("order", ["event after the report", "confirm after the report"])
async def test_growth_before_success_holds_nothing_once_identity_arrives(cluster: Cluster, order: str) -> None:
    await cluster.add()
    lifecycle = HEARTBEAT if order.startswith("event") else Lifecycle.EXPLICIT
    reservation = await cluster.place(lifecycle=lifecycle)
    await cluster.report("a", ("s1",), allocated_cpu=2, allocated_memory_bytes=4096 * MIB, sandbox_starting_count=1)
    assert await cluster.pending() == NOTHING
    if order.startswith("event"):
        await cluster.tell("a", event("create", "s1", 2, 4096))
    else:
        await cluster.confirm(reservation)
    assert await cluster.ending(reservation) == ("settled", "listed" if order.startswith("confirm") else "counters")
    assert (await cluster.now(reservation)).sandbox_id == "s1"
    assert await cluster.pending() == NOTHING


async def test_gone_is_judged_by_the_node_the_sandbox_was_confirmed_on(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    reservation = await cluster.place(exclude_nodes=("b",))
    await cluster.confirm(reservation)
    cluster.wait(GRACE_MS)
    await cluster.report("b", ())
    assert await cluster.state(reservation) == "confirmed"


async def test_a_late_event_names_one_that_counters_settled_before_any_that_is_open(cluster: Cluster) -> None:
    await cluster.add()
    slow = await cluster.place(lifecycle=HEARTBEAT)
    await cluster.report()
    quick = await cluster.place(lifecycle=HEARTBEAT)
    await cluster.report(allocated_cpu=2, allocated_memory_bytes=4096 * MIB, create_successes=1)
    settled, still_open = (slow, quick) if await cluster.state(slow) == "settled" else (quick, slow)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    assert (await cluster.now(settled)).sandbox_id == "s1"
    assert (await cluster.now(still_open)).sandbox_id is None
