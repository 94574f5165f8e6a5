"""Rosters and bindings: what a node lists is there, what it leaves out is gone – unless that is too young to tell."""

from __future__ import annotations

import pytest

from scheduler.errors import InstanceMismatch
from tests.lifecycle.cluster import BINDING_TTL_MS, GRACE_MS, NOTHING, REPORT_TTL_MS, Cluster, event


async def test_a_roster_binds_what_it_lists_and_unbinds_what_it_drops(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1", "s2"))
    await cluster.report("a", ("s2", "s3"))
    assert [await cluster.node_of(each) for each in ("s1", "s2", "s3")] == [None, "a", "a"]


async def test_a_report_without_a_roster_says_nothing_of_it(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    await cluster.record("s2")
    cluster.wait(GRACE_MS)
    await cluster.report()
    assert [await cluster.node_of(each) for each in ("s1", "s2")] == ["a", "a"]


async def test_an_empty_roster_clears_its_own_node_only(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    await cluster.report("b", ("s2",))
    await cluster.report("a", ())
    assert [await cluster.node_of(each) for each in ("s1", "s2")] == [None, "b"]


# -- the grace of a young binding -------------------------------------------------------------------------------


async def test_a_roster_sampled_before_a_create_does_not_erase_its_binding(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.record("s1")
    cluster.wait(GRACE_MS - 1)
    await cluster.report("a", ())
    assert await cluster.node_of("s1") == "a"


@pytest.mark.parametrize("roster", [(), ("other",)])
async def test_a_second_roster_erases_a_binding_of_full_age_that_none_ever_listed(
    cluster: Cluster, roster: tuple[str, ...]
) -> None:
    await cluster.add()
    await cluster.record("s1")
    cluster.wait(GRACE_MS)
    await cluster.report("a", roster)
    assert await cluster.node_of("s1") == "a", "that one may have been sampled before"
    cluster.wait(GRACE_MS)
    await cluster.report("a", roster)
    assert await cluster.node_of("s1") is None


async def test_a_young_binding_that_the_node_had_listed_goes_with_the_next_roster(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.record("s1")
    await cluster.report("a", ("s1",))
    await cluster.report("a", ())
    assert await cluster.node_of("s1") is None


# -- confirmed reservations, judged by every roster -------------------------------------------------------------


@pytest.mark.parametrize("roster", [("other",), ()])
async def test_an_unchanged_roster_is_judged_too(cluster: Cluster, roster: tuple[str, ...]) -> None:
    await cluster.add()
    await cluster.report("a", roster)
    reservation = await cluster.place()
    await cluster.confirm(reservation)
    cluster.wait(GRACE_MS)
    await cluster.report("a", roster)
    assert await cluster.state(reservation) == "confirmed"
    cluster.wait(GRACE_MS)
    await cluster.report("a", roster)
    assert await cluster.ending(reservation) == ("settled", "gone")
    assert await cluster.node_of("s1") is None
    assert await cluster.pending() == NOTHING


async def test_reports_do_not_move_the_deadline_of_a_confirmed_one(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    deadline_ms = (await cluster.confirm(reservation)).reservation.expires_at_ms
    cluster.wait(GRACE_MS - 1)
    await cluster.report("a", ())
    assert (await cluster.now(reservation)).expires_at_ms == deadline_ms


async def test_gone_drops_no_binding_that_another_node_has_taken_over(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    reservation = await cluster.place(exclude_nodes=("b",))
    await cluster.confirm(reservation)
    await cluster.record("s1", "b")
    for _ in range(2):
        cluster.wait(GRACE_MS)
        await cluster.report("a", ())
    assert await cluster.ending(reservation) == ("settled", "gone")
    assert await cluster.node_of("s1") == "b"


# -- who holds a sandbox ----------------------------------------------------------------------------------------


async def test_another_nodes_roster_takes_no_sandbox_from_a_node_that_lists_it(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    for _ in range(3):
        result = await cluster.report("b", ("s1",))
        assert result.contested == ("s1",)
    assert await cluster.node_of("s1") == "a"
    assert (await cluster.stats())["binding_conflicts"] == 1, "one conflict, however often it is reported"
    await cluster.report("a", ())
    result = await cluster.report("b", ("s1",))
    assert (await cluster.node_of("s1"), result.contested) == ("b", ())


async def test_another_nodes_roster_takes_no_told_sandbox_before_it_is_proven_absent(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    reservation = await cluster.place(exclude_nodes=("b",))
    await cluster.confirm(reservation)
    await cluster.report("b", ("s1",))
    assert await cluster.node_of("s1") == "a"
    for _ in range(2):
        cluster.wait(GRACE_MS)
        await cluster.report("a", ())
    assert await cluster.ending(reservation) == ("settled", "gone")
    await cluster.report("b", ("s1",))
    assert await cluster.node_of("s1") == "b"


async def test_another_nodes_roster_takes_over_what_a_silent_node_held(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    cluster.wait(REPORT_TTL_MS + 1)
    await cluster.report("b", ("s1",))
    assert await cluster.node_of("s1") == "b"
    await cluster.report("a", ())
    assert await cluster.node_of("s1") == "b"


async def test_a_node_that_never_reported_is_not_fresh(cluster: Cluster) -> None:
    await cluster.discover("a")
    await cluster.add("b")
    await cluster.record("s1", "a")
    await cluster.report("b", ("s1",))
    assert await cluster.node_of("s1") == "b"


async def test_what_was_taken_over_comes_back_when_its_node_still_lists_it(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    await cluster.record("s1", "b")
    await cluster.report("a", ("s1",))  # unchanged for its node, and yet no longer what the ledger holds
    assert await cluster.node_of("s1") == "b"
    for _ in range(2):
        cluster.wait(GRACE_MS)
        await cluster.report("b", ())
    await cluster.report("a", ("s1",))
    assert await cluster.node_of("s1") == "a"


async def test_a_delete_event_unbinds_and_the_next_roster_says_the_rest(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1", "s2"))
    await cluster.tell("a", event("delete", "s1"))
    assert [await cluster.node_of(each) for each in ("s1", "s2")] == [None, "a"]
    await cluster.report("a", ("s1", "s2"))  # sampled before the delete: it lists both, as it did before
    assert await cluster.node_of("s1") is None
    await cluster.report("a", ("s2",))
    assert await cluster.node_of("s1") is None


async def test_a_report_that_was_certainly_sampled_after_a_delete_undoes_it(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    await cluster.tell("a", event("delete", "s1"))
    for _ in range(2):
        cluster.wait(GRACE_MS)
        await cluster.report("a", ("s1",))
    assert await cluster.node_of("s1") == "a"


async def test_a_delete_event_leaves_the_binding_of_another_node(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    await cluster.record("s1", "b")
    await cluster.tell("a", event("delete", "s1"))
    assert await cluster.node_of("s1") == "b"


# -- unregister -------------------------------------------------------------------------------------------------


async def test_unregister_drops_what_was_listed_and_what_was_recorded(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    await cluster.record("s2")
    await cluster.record("s3", "b")
    for _ in range(2):
        await cluster.services.nodes.unregister("a", "run-1")
        assert [await cluster.node_of(each) for each in ("s1", "s2", "s3")] == [None, None, "b"]
    await cluster.report("a", ("s1",))  # the very roster of before is applied anew
    assert await cluster.node_of("s1") == "a"


async def test_an_instance_that_no_longer_reports_unregisters_nothing(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",), instance="run-2")
    with pytest.raises(InstanceMismatch):
        await cluster.services.nodes.unregister("a", "run-1")
    assert await cluster.node_of("s1") == "a"


# -- how long a binding is trusted ------------------------------------------------------------------------------


async def test_a_binding_lives_as_long_as_its_node_lists_it(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    for _ in range(5):
        cluster.wait(BINDING_TTL_MS - 1)
        await cluster.report("a", ("s1",))
    assert await cluster.node_of("s1") == "a"


@pytest.mark.parametrize("swept", [False, True])
async def test_a_binding_ends_with_the_silence_of_its_node(cluster: Cluster, swept: bool) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    cluster.wait(BINDING_TTL_MS - 1)
    if swept:
        await cluster.sweep()
    assert await cluster.node_of("s1") == "a"
    cluster.wait(1)
    if swept:
        await cluster.sweep()
    assert await cluster.node_of("s1") is None
    await cluster.report("a", ("s1",))
    assert await cluster.node_of("s1") == "a"


async def test_a_recorded_binding_that_nobody_lists_ends_after_the_ttl(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.record("s1")
    cluster.wait(BINDING_TTL_MS - 1)
    await cluster.report()
    assert await cluster.node_of("s1") == "a"
    cluster.wait(1)
    assert await cluster.node_of("s1") is None


async def test_an_outage_as_long_as_a_nodes_longest_pause_loses_no_binding(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    cluster.wait(2 * 60_000 + REPORT_TTL_MS)
    await cluster.sweep()
    assert await cluster.node_of("s1") == "a"
