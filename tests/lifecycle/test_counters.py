"""Counters settle what nobody will confirm – after everything that identity explains is taken out."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.domain.reservation import Lifecycle
from tests.lifecycle.cluster import MIB, NOTHING, Cluster, event

HEARTBEAT: dict[str, Any] = {"lifecycle": Lifecycle.HEARTBEAT}


def grown(count: int, cpu_count: int = 2, memory_mb: int = 4096) -> dict[str, Any]:
    """The figures of a node that began empty and now runs `count` sandboxes of one size."""
    return {
        "allocated_cpu": count * cpu_count,
        "allocated_memory_bytes": count * memory_mb * MIB,
        "sandbox_count": count,
        "create_successes": count,
    }


async def held_by_counters(cluster: Cluster) -> tuple[int, int, int]:
    """Growth of one sandbox is reported: what stays held of one reservation that only counters settle."""
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(**grown(1))
    found = await cluster.now(reservation)
    return found.held_cpu_count, found.held_memory_bytes // MIB, found.held_sandbox_count


async def test_growth_is_credited_oldest_first(cluster: Cluster) -> None:
    await cluster.add()
    first, second = await cluster.place(**HEARTBEAT), await cluster.place(**HEARTBEAT)
    await cluster.report(**grown(1))
    assert [await cluster.state(each) for each in (first, second)] == ["settled", "pending"]
    assert await cluster.pending() == (2, 4096, 1)


async def test_dimensions_are_credited_independently(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(create_successes=1, allocated_cpu=2)
    assert await cluster.pending() == (0, 4096, 0)
    assert await cluster.state(reservation) == "pending"
    await cluster.report(allocated_memory_bytes=4096 * MIB)
    assert await cluster.ending(reservation) == ("settled", "counters")


async def test_credit_that_finds_nothing_is_dropped(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report(**grown(3))
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report()
    assert await cluster.state(reservation) == "pending"


async def test_failed_creates_release_nothing(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(create_fails=1)
    assert await cluster.state(reservation) == "pending"
    assert await cluster.pending() == (2, 4096, 1)


async def test_a_report_credits_only_what_was_promised_before_it(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report(sequence=1)
    await cluster.place(**HEARTBEAT)
    late = await cluster.report(sequence=1, **grown(1))
    assert late.stale
    assert await cluster.pending() == (2, 4096, 1)


# -- what identity explains -------------------------------------------------------------------------------------


async def test_a_fork_is_taken_out_of_the_credit(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.tell("a", event("fork", "child", 2, 4096))
    assert await held_by_counters(cluster) == (2, 4096, 1)


async def test_a_fork_explains_one_report_only(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.tell("a", event("fork", "child", 2, 4096))
    await cluster.report(**grown(1))
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(**grown(2))
    assert await cluster.ending(reservation) == ("settled", "counters")


async def test_an_open_explicit_reservation_is_taken_out_of_the_credit(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place()
    assert await held_by_counters(cluster) == (2, 4096, 1)


@pytest.mark.parametrize("end", ["cancelled", "expired", "settled"])
async def test_an_explicit_one_that_was_open_since_the_last_report_is_taken_out(cluster: Cluster, end: str) -> None:
    await cluster.add()
    explicit = await cluster.place(reservation_ttl_ms=1_000)
    if end == "cancelled":
        await cluster.cancel(explicit)
    elif end == "expired":
        cluster.wait(1_000)
        await cluster.sweep()
    else:
        await cluster.confirm(explicit)
        await cluster.tell("a", event("delete", "s1"))
    assert await cluster.state(explicit) == end
    assert await held_by_counters(cluster) == (2, 4096, 1)


async def test_an_explicit_one_that_ended_before_the_last_report_explains_nothing(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.cancel(await cluster.place())
    await cluster.report()
    assert await held_by_counters(cluster) == (0, 0, 0)


async def test_what_a_roster_settles_is_taken_out_of_the_same_report(cluster: Cluster) -> None:
    await cluster.add()
    listed, unknown = await cluster.place(**HEARTBEAT), await cluster.place(**HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096))
    await cluster.report("a", ("s1",), **grown(1))
    assert [await cluster.state(each) for each in (listed, unknown)] == ["settled", "pending"]
    assert await cluster.pending() == (2, 4096, 1)


async def test_an_unstated_size_may_explain_all_of_the_growth(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place(0, 0)
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(**grown(5))
    found = await cluster.now(reservation)
    assert (found.held_cpu_count, found.held_memory_bytes, found.held_sandbox_count) == (2, 4096 * MIB, 0)


async def test_a_confirmed_one_is_told_by_rosters_where_there_are_any(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await cluster.confirm(reservation)
    await cluster.report("a", (), **grown(1))
    assert await cluster.state(reservation) == "confirmed"


# -- baselines --------------------------------------------------------------------------------------------------


async def test_the_first_report_only_sets_the_baseline(cluster: Cluster) -> None:
    await cluster.discover()
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(cpu_count=16, memory_total_bytes=2**35, **grown(4))
    assert await cluster.state(reservation) == "pending"
    await cluster.report(**grown(5))
    assert await cluster.state(reservation) == "settled"


@pytest.mark.parametrize("sign", ["another instance", "fewer successes"])
async def test_a_restart_re_bases_and_acknowledges_nothing(cluster: Cluster, sign: str) -> None:
    await cluster.add(**grown(3))
    reservation = await cluster.place(**HEARTBEAT)
    if sign == "another instance":
        await cluster.report(instance="run-2", **grown(4))
    else:
        await cluster.report(**(grown(4) | {"create_successes": 1}))
    assert await cluster.state(reservation) == "pending"
    assert await cluster.pending() == (2, 4096, 1)
    instance = "run-2" if sign == "another instance" else "run-1"
    successes = cluster.figures["a"].create_successes + 1
    await cluster.report(instance=instance, **(grown(5) | {"create_successes": successes}))
    assert await cluster.ending(reservation) == ("settled", "counters")


async def test_a_falling_allocation_gives_no_credit_and_moves_the_baseline(cluster: Cluster) -> None:
    await cluster.add(**grown(3))
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.report(allocated_cpu=0, allocated_memory_bytes=0, sandbox_count=0)
    assert await cluster.pending() == (2, 4096, 1)
    await cluster.report(allocated_cpu=2, allocated_memory_bytes=4096 * MIB, create_successes=4)
    assert await cluster.state(reservation) == "settled"


async def test_unregistering_forgets_the_baseline_and_keeps_what_is_promised(cluster: Cluster) -> None:
    await cluster.add(**grown(1))
    reservation = await cluster.place(**HEARTBEAT)
    await cluster.services.nodes.unregister("a", "run-1")
    assert await cluster.pending() == (2, 4096, 1)
    await cluster.report(**grown(2))
    assert await cluster.state(reservation) == "pending"
    await cluster.report(**grown(3))
    assert await cluster.state(reservation) == "settled"
    assert await cluster.pending() == NOTHING


async def test_growth_may_be_a_sandbox_that_was_told_after_its_end(cluster: Cluster) -> None:
    """An event named the wrong sandbox, the caller names the right one, whose delete was told already."""
    await cluster.add()
    misnamed = await cluster.place(**HEARTBEAT)
    await cluster.tell("a", event("create", "s1", 2, 4096), event("delete", "s2"))
    await cluster.report(roster=("s1",))
    assert await cluster.ending(misnamed) == ("settled", "listed")
    waiting = await cluster.place(**HEARTBEAT)
    await cluster.confirm(misnamed, "s2")
    assert await cluster.ending(misnamed) == ("settled", "deleted")
    await cluster.report(**grown(1))
    assert await cluster.ending(waiting) == ("pending", None)
    await cluster.report(**grown(2))
    assert await cluster.ending(waiting) == ("settled", "counters")
