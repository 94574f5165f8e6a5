"""A node that leaves discovery: a flap frees nothing, a departure frees everything, and both are told apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.domain.node import DiscoveryState
from scheduler.domain.placement import BatchRequest, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.errors import Conflict, NoNodes
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.node_list import ListedNode, entry
from tests.lifecycle.cluster import BINDING_TTL_MS, MIB, NOTHING, REPORT_TTL_MS, Cluster, event
from tests.support.recount import assert_ledger_is_sound


async def remove(cluster: Cluster, node_id: str = "a") -> None:
    await cluster.services.nodes.remove(node_id)


async def test_a_flap_frees_nothing_of_what_is_being_created(cluster: Cluster) -> None:
    await cluster.add()
    pending, confirmed = await cluster.place(), await cluster.place()
    await cluster.confirm(confirmed)
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS - 1)
    await cluster.sweep()
    assert [await cluster.state(each) for each in (pending, confirmed)] == ["pending", "confirmed"]
    await cluster.discover()
    assert await cluster.pending() == (4, 8192, 2)
    cluster.wait(REPORT_TTL_MS)
    await cluster.sweep()
    assert [await cluster.state(each) for each in (pending, confirmed)] == ["pending", "confirmed"]
    assert (await cluster.confirm(pending, "s2")).orphaned is False


@pytest.mark.parametrize("swept", [False, True])
async def test_one_report_ttl_after_a_removal_what_was_reserved_there_ends(cluster: Cluster, swept: bool) -> None:
    await cluster.add()
    pending, confirmed = await cluster.place(), await cluster.place()
    await cluster.confirm(confirmed)
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS)
    if swept:
        await cluster.sweep()
    assert await cluster.ending(pending) == ("expired", "node_removed")
    assert await cluster.ending(confirmed) == ("settled", "node_removed")


@pytest.mark.parametrize("swept", [False, True])
async def test_a_late_confirm_of_what_went_with_its_node_says_so(cluster: Cluster, swept: bool) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS)
    if swept:
        await cluster.sweep()
    result = await cluster.confirm(reservation)
    assert result.orphaned
    assert (result.reservation.state, result.reservation.reason) == ("settled", "node_removed")
    again = await cluster.confirm(reservation)
    assert (again.replayed, again.orphaned) == (True, True)
    with pytest.raises(Conflict):
        await cluster.cancel(reservation)


async def test_what_is_given_up_of_a_node_that_returns_late_goes_in_slices_before_it_is_listed(
    cluster: Cluster, ledger: Ledger
) -> None:
    await cluster.add()
    reserved = 300
    for _ in range(reserved // 20):  # each has its deadline, also on a busy machine
        await asyncio.gather(*(cluster.place(cpu_count=0, memory_mb=0) for _ in range(20)))
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS)
    statistics = ledger.client.statistics
    slices_before = statistics.backlog_slices
    await cluster.discover()
    assert statistics.backlog_slices - slices_before == reserved // 64
    assert await cluster.pending() == NOTHING
    assert (await ledger.settings.stats())["reservations_expired"] == reserved


async def test_what_a_returning_node_has_open_is_counted_in_slices_that_follow_what_ends_meanwhile(
    cluster: Cluster, ledger: Ledger
) -> None:
    await cluster.add(cpu_count=1_000, memory_mb=1_000_000)
    batch = BatchRequest((ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 2, 64)),) * 170)
    made = [placed for _ in range(2) for placed in (await ledger.placements.schedule_batch(batch)).placed]
    held = (2 * len(made), 64 * MIB * len(made), len(made))
    await remove(cluster)

    async def list_once() -> bytes:
        """One slice of what `discover` repeats until it is done."""
        call = (
            cluster.clock.now_ms,
            0,
            "labels_api",
            1,
            *entry("a", ListedNode("http://a:8000", DiscoveryState.ACTIVE)),
        )
        script = ledger.client.scripts.get("set_nodes")
        return (await ledger.client.pipeline([("EVAL", script.text, 1, ledger.keys.settings, *call)]))[0][0]

    assert await list_once() == b"again"
    # One that is counted already, and one that is not.
    for gone in (made[0], made[-1]):
        await cluster.cancel(gone.reservation)
        held = (held[0] - 2, held[1] - 64 * MIB, held[2] - 1)
    assert await list_once() == b"changed"
    assert await cluster.pending() == (held[0], held[1] // MIB, held[2])
    await assert_ledger_is_sound(ledger)


async def test_a_late_confirm_counts_on_a_node_that_is_back(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS)
    await cluster.discover()
    assert await cluster.pending() == NOTHING
    result = await cluster.confirm(reservation)
    assert (result.orphaned, result.reservation.state) == (True, "confirmed")
    assert await cluster.pending() == (2, 4096, 1)
    await cluster.report("a", ("s1",))
    assert await cluster.ending(reservation) == ("settled", "listed")
    assert await cluster.pending() == NOTHING


async def test_a_node_that_comes_back_starts_from_a_baseline(cluster: Cluster) -> None:
    await cluster.add(create_successes=5)
    reservation = await cluster.place(lifecycle=Lifecycle.HEARTBEAT)
    await remove(cluster)
    await cluster.discover()
    grown: dict[str, Any] = {"allocated_cpu": 2, "allocated_memory_bytes": 2**32, "create_successes": 6}
    await cluster.report(**grown)
    assert await cluster.state(reservation) == "pending"
    assert await cluster.pending() == (2, 4096, 1)


async def test_a_removed_node_is_chosen_no_more_and_its_sandboxes_are_found(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    await remove(cluster)
    with pytest.raises(NoNodes):
        await cluster.place()
    assert await cluster.node_of("s1") == "a"
    cluster.wait(BINDING_TTL_MS - 1)
    await cluster.sweep()
    assert await cluster.node_of("s1") == "a"
    cluster.wait(1)
    assert await cluster.node_of("s1") is None


async def test_a_flap_keeps_the_bindings_and_the_first_roster_after_it_brings_them_to_date(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1", "s2"))
    await remove(cluster)
    await cluster.discover()
    assert [await cluster.node_of(each) for each in ("s1", "s2")] == ["a", "a"]
    await cluster.report("a", ("s2", "s3"))
    assert [await cluster.node_of(each) for each in ("s1", "s2", "s3")] == [None, "a", "a"]


async def test_the_deadline_comes_first_when_it_comes_first(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=1_000)
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS)
    await cluster.sweep()
    assert await cluster.ending(reservation) == ("expired", "deadline")


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_delete_told_before_its_node_was_given_up_says_nothing_of_what_it_lists_later(cluster: Cluster) -> None:
    """The id may have been used again, or the event was wrong: the sandbox runs, is found, and is counted."""
    await cluster.add(cpu_count=16)
    await cluster.confirm(await cluster.place(16), "s1")
    running: dict[str, Any] = {"roster": ("s1",), "allocated_cpu": 16, "allocated_memory_bytes": 4096 * MIB}
    await cluster.report(**running, create_successes=1)
    await cluster.tell("a", event("delete", "s1"))
    await remove(cluster)
    cluster.wait(REPORT_TTL_MS)
    await cluster.discover("a")
    await cluster.report(**running)
    assert await cluster.node_of("s1") == "a"
    with pytest.raises(NoNodes):
        await cluster.place(2)
