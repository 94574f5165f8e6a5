"""What a node's account may take for somebody's sandbox: the smallest stories that the model of tests/model found."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes
from scheduler.ledger import roster
from tests.lifecycle.cluster import BINDING_TTL_MS, GIB, NOTHING, REPORT_TTL_MS, TTL_MS, Cluster, event

REPORT_MS = 5_000
HEARTBEAT: dict[str, Any] = {"lifecycle": Lifecycle.HEARTBEAT}


@pytest.fixture
def ledger_settings() -> LedgerSettings:
    return LedgerSettings(strategy=Strategy.LEAST_LOADED)


async def listing(cluster: Cluster, roster: tuple[str, ...] | None, cpus: int, node_id: str = "a", **more: Any) -> Any:
    cluster.wait(REPORT_MS)
    figures = {"allocated_cpu": cpus, "allocated_memory_bytes": cpus * GIB}
    return await cluster.report(node_id, roster, **(figures | more))


async def test_a_name_that_a_cancelled_schedule_gave_is_nobody_elses_sandbox(cluster: Cluster) -> None:
    await cluster.add()
    given_up = await cluster.place(2, 2048, sandbox_id="mine")
    await cluster.place(2, 2048)
    await cluster.cancel(given_up)
    await listing(cluster, ("mine",), 2)
    assert await cluster.pending() == (2, 2048, 1)


async def test_a_name_of_a_create_that_the_node_refused_is_free_at_once(cluster: Cluster) -> None:
    await cluster.add()
    refused = await cluster.place(2, 2048, sandbox_id="mine")
    await cluster.cancel(refused, cause=CancelCause.NODE_REFUSED)
    again = await cluster.place(2, 2048, sandbox_id="mine")
    await listing(cluster, ("mine",), 2)
    assert await cluster.ending(again) == ("settled", "listed")


async def test_what_a_new_process_lists_first_is_not_what_was_waited_for(cluster: Cluster) -> None:
    """Its first report says nothing of a roster, so the installed one was the earlier process's."""
    await cluster.add()
    await cluster.place(2, 2048)
    await listing(cluster, None, 2, instance="run-2", sequence=1)
    await listing(cluster, ("stranger",), 2, instance="run-2", sequence=2)
    assert await cluster.pending() == (2, 2048, 1)


async def test_a_new_process_is_awaited_to_list_what_the_earlier_one_did(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(2, 2048)
    await cluster.confirm(reservation, "s1")
    await listing(cluster, ("s1",), 2, sequence=1)
    await listing(cluster, None, 2, instance="run-2", sequence=1)
    await listing(cluster, (), 2, instance="run-2", sequence=2)
    assert await cluster.node_of("s1") == "a"
    await listing(cluster, (), 2, instance="run-2", sequence=3)
    assert await cluster.node_of("s1") is None


async def test_an_id_that_another_node_kept_enters_once(cluster: Cluster) -> None:
    await cluster.add("b")
    await cluster.record("moved", "b")
    await cluster.add("a", create_successes=0)
    await listing(cluster, ("own",), 1, create_successes=1)
    for _ in range(2):
        await cluster.place(2, 2048, exclude_nodes=("b",), **HEARTBEAT)
    await listing(cluster, ("own", "moved"), 2, create_successes=2)
    cluster.wait(REPORT_TTL_MS)
    await listing(cluster, ("own", "moved"), 2, create_successes=2)
    assert (await cluster.pending())[2] == 1


async def test_a_load_that_counts_what_another_node_took_over_lowers_nothing(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.discover("b")
    await listing(cluster, ("own",), 2)
    for cpu_count in (1, 4):
        await cluster.place(cpu_count, 2048, exclude_nodes=("b",))
    await listing(cluster, ("own", "new"), 3)
    assert (await cluster.pending())[0] == 4
    await cluster.record("own", "b")
    assert (await cluster.pending())[0] == 5


async def test_a_listed_sandbox_that_was_there_before_and_is_told_leaves_the_baseline(cluster: Cluster) -> None:
    await cluster.add()
    await listing(cluster, ("old",), 4)
    await cluster.place(2, 2048)
    await cluster.tell("a", event("create", "old", 4, 4096))
    await listing(cluster, ("old", "new"), 6)
    assert await cluster.pending() == NOTHING


async def test_a_delete_that_was_undone_leaves_the_load_as_it_was_reported(cluster: Cluster) -> None:
    """Less was reported than the deleted sandbox is said to have."""
    await cluster.add("a", cpu_count=10, memory_mb=10_240)
    await cluster.tell("a", event("create", "s1", 4, 4096))
    await listing(cluster, ("s1",), 1)
    await cluster.tell("a", event("delete", "s1"))
    pressure = (await cluster.services.nodes.get("a")).pressure
    assert (pressure.cpu, pressure.memory) == (0.0, 0.0)
    await cluster.discover("b")
    await cluster.record("s1", "b")
    pressure = (await cluster.services.nodes.get("a")).pressure
    assert (pressure.cpu, pressure.memory) == (0.1, 0.1)


async def test_what_is_due_is_not_what_an_event_is_about(cluster: Cluster) -> None:
    await cluster.add()
    due = await cluster.place(2, 2048, reservation_ttl_ms=10_000)
    cluster.wait(10_000)
    await cluster.tell("a", event("create", "s1", 2, 2048))
    assert await cluster.node_of("s1") == "a"
    assert await cluster.ending(due) == ("expired", "deadline")


async def test_a_process_that_was_replaced_stays_so_when_its_node_leaves_the_list_for_a_moment(
    cluster: Cluster,
) -> None:
    await cluster.add()
    await listing(cluster, (), 0, instance="run-2")
    await cluster.services.nodes.remove("a")
    await cluster.discover("a")
    assert (await cluster.report("a", (), instance="run-1", hung_up=True)).stale
    assert not (await cluster.report("a", (), instance="run-2")).stale
    assert (await cluster.report("a", (), instance="run-1")).stale


async def test_a_call_that_was_given_up_takes_nothing_back_after_a_silence_or_an_unregister(cluster: Cluster) -> None:
    await cluster.add()
    for sequence in (1, 2):
        await cluster.report("a", (), instance="run-2", sequence=sequence)
    cluster.wait(REPORT_TTL_MS + 1)
    assert (await cluster.report("a", (), instance="run-2", sequence=1, hung_up=True)).stale
    assert not (await cluster.report("a", (), instance="run-2", sequence=1)).stale
    await cluster.services.nodes.unregister("a", "run-2")
    assert (await cluster.report("a", (), instance="run-2", sequence=2, hung_up=True)).stale
    assert not (await cluster.report("a", (), instance="run-2", sequence=1)).stale


async def test_what_counts_again_after_a_wrong_name_is_weighed_with_the_rest(cluster: Cluster) -> None:
    """Counters settled it, an event named it, and a confirm takes the name for another node's reservation."""
    await cluster.add("b")
    await cluster.add("a")
    await listing(cluster, ("own",), 1, create_successes=1)
    await cluster.place(2, 2048, exclude_nodes=("b",), **HEARTBEAT)
    await listing(cluster, ("own", "new"), 3, create_successes=2)
    await cluster.tell("a", event("create", "s1", 2, 2048))
    other = await cluster.place(2, 2048, exclude_nodes=("a",))
    await cluster.confirm(other, "s1")
    assert await cluster.pending("a") == NOTHING


async def test_a_name_that_a_fork_took_away_leaves_open_what_the_next_event_is_about(cluster: Cluster) -> None:
    """Both told in one call: the reservation of no stated size is unnamed again when the second create comes."""
    await cluster.add()
    stated = await cluster.place(2, 1024, **HEARTBEAT)
    await cluster.place(0, 0, **HEARTBEAT)
    first = event("create", "child", 1, 1024)
    await cluster.tell("a", first, event("fork", "child", 1, 1024), event("create", "s2", 2, 1024))
    assert (await cluster.now(stated)).sandbox_id is None


async def test_a_sandbox_that_is_recorded_after_its_caller_gave_up_has_the_size_it_was_asked_with(
    cluster: Cluster,
) -> None:
    """So what else the report shows is known exactly: three of its five CPUs are the larger one's."""
    await cluster.add()
    given_up = await cluster.place(2, 2048, sandbox_id="mine")
    for cpu_count in (1, 3):
        await cluster.place(cpu_count, cpu_count * 1024)
    await cluster.cancel(given_up)
    await cluster.record("mine")
    await listing(cluster, ("mine", "new"), 5)
    assert await cluster.pending() == (1, 1024, 1)


@pytest.mark.parametrize("told", ["create", "fork"])
@pytest.mark.parametrize("forgotten_by", ["delete", "unregister"])
async def test_the_size_of_an_event_is_not_replaced_by_that_of_its_reservation(
    cluster: Cluster, told: str, forgotten_by: str
) -> None:
    """A create took less than was asked for, and what the event told of it was forgotten: its end frees no more than it
    was seen to take."""
    await cluster.add()
    await cluster.cancel(await cluster.place(8, 2048, sandbox_id="s3"))
    await cluster.tell("a", event(told, "s3", 1, 1024))
    if forgotten_by == "unregister":
        await cluster.services.nodes.unregister("a", "run-1")
    else:
        await cluster.tell("a", event("delete", "s3"))
    await listing(cluster, ("s0", "s3"), 15)
    await cluster.tell("a", event("delete", "s3"))
    with pytest.raises(NoNodes):
        await cluster.place(3, 1024)
    await listing(cluster, ("s0",), 13)
    await cluster.place(3, 1024)


@pytest.mark.parametrize("told_again", ["assignment", "confirm", "assignment and confirm"])
@pytest.mark.parametrize("ended", [True, False])
async def test_who_tells_a_sandbox_again_does_not_know_the_size_that_its_event_told(
    cluster: Cluster, told_again: str, ended: bool
) -> None:
    """Its reservation, open or ended, asked for more than the create took, and what the event told was forgotten."""
    await cluster.add()
    reservation = await cluster.place(8, 2048, sandbox_id="s3")
    if ended:
        cluster.wait(TTL_MS)
        await cluster.report("a", ())
    await cluster.tell("a", event("create", "s3", 1, 1024))
    await cluster.services.nodes.unregister("a", "run-1")
    if "assignment" in told_again:
        await cluster.record("s3")
    if "confirm" in told_again:
        await cluster.confirm(reservation, "s3")
    await listing(cluster, ("s0", "s3"), 15)
    assert await cluster.pending() == NOTHING
    await cluster.tell("a", event("delete", "s3"))
    with pytest.raises(NoNodes):
        await cluster.place(3, 1024)


@pytest.mark.parametrize("told_again", ["assignment", "confirm", "roster"])
async def test_an_event_that_tells_no_size_leaves_that_of_the_reservation(cluster: Cluster, told_again: str) -> None:
    await cluster.add()
    reservation = await cluster.place(8, 2048, sandbox_id="s3")
    await cluster.tell("a", event("create", "s3"))
    await cluster.services.nodes.unregister("a", "run-1")
    if told_again == "assignment":
        await cluster.record("s3")
    elif told_again == "confirm":
        await cluster.confirm(reservation, "s3")
    await listing(cluster, ("s0", "s3"), 15)
    await cluster.tell("a", event("delete", "s3"))
    await cluster.place(9, 1024)


async def test_a_copy_of_an_older_report_makes_no_second_entry_of_one_that_is_told(cluster: Cluster) -> None:
    """Without sequences it looks like a restart, after which what had entered before enters again."""
    await cluster.add()
    await listing(cluster, ("before",), 1)
    entered, waiting = [await cluster.place(2, 2048, **HEARTBEAT) for _ in range(2)]
    await cluster.confirm(entered, "s1")
    await listing(cluster, None, 3, create_successes=1)
    assert await cluster.ending(entered) == ("settled", "counters")
    await listing(cluster, ("before",), 1, create_successes=0)
    await listing(cluster, ("before", "s1"), 3, create_successes=1)
    assert await cluster.ending(waiting) == ("pending", None)
    assert await cluster.pending() == (2, 2048, 1)


@pytest.mark.parametrize("shows", ["counters", "roster", "ids told"])
async def test_an_older_report_without_a_sequence_is_known_by_its_nodes_clock(cluster: Cluster, shows: str) -> None:
    """A copy that comes late is no restart, after which what has entered would enter again."""
    grown: tuple[str, ...] | None = None if shows == "counters" else ("before", "s1")
    await cluster.add()
    earlier = {"create_successes": 0, "reported_at_unix_ms": cluster.clock.now_ms + REPORT_MS}
    await listing(cluster, ("before",), 1, **earlier)
    entered = await cluster.place(2, 2048, **HEARTBEAT)
    if shows == "ids told":
        await cluster.confirm(entered, "s1")
    await listing(cluster, grown, 3, create_successes=1, reported_at_unix_ms=cluster.clock.now_ms + REPORT_MS)
    assert (await cluster.ending(entered))[0] == "settled"
    waiting = await cluster.place(2, 2048, **HEARTBEAT)
    assert (await listing(cluster, ("before",), 1, **earlier)).stale
    assert not (await listing(cluster, grown, 3, create_successes=1, reported_at_unix_ms=cluster.clock.now_ms)).stale
    assert await cluster.ending(waiting) == ("pending", None)
    assert await cluster.pending() == (2, 2048, 1)


async def test_a_nodes_clock_is_held_against_itself_and_not_against_the_servers(cluster: Cluster) -> None:
    await cluster.add()
    assert not (await listing(cluster, (), 0)).stale, "it does not say when it was sampled"
    behind_ms = cluster.clock.now_ms - REPORT_TTL_MS + REPORT_MS
    assert not (await listing(cluster, (), 0, reported_at_unix_ms=behind_ms)).stale
    assert (await listing(cluster, (), 0, reported_at_unix_ms=behind_ms - 1)).stale


async def test_a_clock_that_was_set_back_keeps_no_process_out_for_long(cluster: Cluster) -> None:
    """By more than report_ttl it is believed at once, by less as soon as the last report is that old."""
    await cluster.add()
    told_ms = cluster.clock.now_ms + 10 * REPORT_MS
    assert not (await listing(cluster, (), 0, create_successes=9, reported_at_unix_ms=told_ms)).stale
    assert not (await listing(cluster, (), 0, create_successes=0, reported_at_unix_ms=told_ms)).stale, "not earlier"
    for back_ms in (1, REPORT_TTL_MS):
        assert (await listing(cluster, (), 0, create_successes=0, reported_at_unix_ms=told_ms - back_ms)).stale
        assert not (await listing(cluster, (), 0, sequence=back_ms, reported_at_unix_ms=told_ms - back_ms)).stale
        assert not (await listing(cluster, (), 0, reported_at_unix_ms=told_ms)).stale
    assert not (await listing(cluster, (), 0, reported_at_unix_ms=told_ms - REPORT_TTL_MS - 1)).stale
    assert not (await listing(cluster, (), 0, reported_at_unix_ms=told_ms)).stale
    cluster.wait(REPORT_TTL_MS)
    assert not (await listing(cluster, (), 0, reported_at_unix_ms=told_ms - 1)).stale


async def full(cluster: Cluster, cpu_count: int = 8) -> None:
    with pytest.raises(NoNodes):
        await cluster.place(cpu_count, 1024, exclude_nodes=("b",))


@pytest.mark.parametrize("lifecycle", list(Lifecycle))
async def test_what_a_node_lists_again_after_a_silence_has_not_entered_it_now(
    cluster: Cluster, lifecycle: Lifecycle
) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place(8, 1024, sandbox_id="s1"), "s1")
    await listing(cluster, ("s1",), 8, sequence=1, create_successes=1)
    await cluster.place(8, 1024, lifecycle=lifecycle)  # its image is being pulled
    for _ in range(BINDING_TTL_MS // 5_000 + 2):
        cluster.wait(5_000)
        await cluster.sweep()
    await listing(cluster, ("s1",), 8, sequence=2)
    assert await cluster.pending() == (8, 1024, 1)
    await full(cluster)


@pytest.mark.parametrize("lifecycle", list(Lifecycle))
async def test_what_the_ledger_itself_took_off_a_roster_has_not_entered_when_it_is_listed_again(
    cluster: Cluster, lifecycle: Lifecycle
) -> None:
    await cluster.add()
    await cluster.add("b", cpu_count=1)
    await cluster.confirm(await cluster.place(8, 1024, sandbox_id="x"), "x")
    await listing(cluster, ("x",), 8, sequence=1, create_successes=1)
    await cluster.place(8, 1024, lifecycle=lifecycle)
    for node_id in "ba":
        await cluster.record("x", node_id)
    await listing(cluster, ("x",), 8, sequence=2)
    assert await cluster.pending() == (8, 1024, 1)
    await full(cluster)


@pytest.mark.parametrize("conflict", [False, True])
async def test_an_id_that_another_node_keeps_hides_no_entry(cluster: Cluster, conflict: bool) -> None:
    await cluster.add()
    await cluster.add("b", cpu_count=1)
    await cluster.report("b", ("x",) if conflict else (), sequence=1)
    await listing(cluster, (), 0, sequence=1)
    listed = await cluster.place(1, 1024, sandbox_id="e", exclude_nodes=("b",))
    await listing(cluster, ("e", "x"), 2, sequence=2, sandbox_starting_count=2)
    assert await cluster.ending(listed) == ("settled", "listed")
    await cluster.place(14, 1024, exclude_nodes=("b",), **HEARTBEAT)
    await cluster.report("b", (), sequence=2)
    for sequence, more in enumerate(({}, {}, {"sandbox_starting_count": 0, "create_successes": 2}), 3):
        await listing(cluster, ("e", "x"), 2, sequence=sequence, **more)
    assert (await cluster.pending())[0] == 14
    await full(cluster, 14)


async def test_a_roster_in_slices_hides_no_entry(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "SLICE", 2)
    await cluster.add()
    await listing(cluster, (), 0, sequence=1)
    ids = ("s1", "s2", "s3")
    for sandbox_id in ids:
        await cluster.place(1, 1024, sandbox_id=sandbox_id)
    await listing(cluster, ids, 3, sequence=2, sandbox_starting_count=3)
    await cluster.place(13, 1024, **HEARTBEAT)
    await listing(cluster, ids, 3, sequence=3)
    await listing(cluster, ids, 3, sequence=4, sandbox_starting_count=0, create_successes=3)
    assert (await cluster.pending())[0] == 13
    await full(cluster, 13)


async def test_what_was_confirmed_is_judged_by_the_reports_of_the_process_after_the_one_that_unregistered(
    cluster: Cluster,
) -> None:
    await cluster.add()
    reservation = await cluster.place(16, 1024)
    await cluster.confirm(reservation, "s1")
    await cluster.services.nodes.unregister("a", "run-1")
    assert await cluster.node_of("s1") is None
    await listing(cluster, (), 0, instance="run-2", sequence=1)
    assert await cluster.state(reservation) == "confirmed"
    await listing(cluster, (), 0, instance="run-2", sequence=2)
    assert await cluster.ending(reservation) == ("settled", "gone")


async def test_what_was_confirmed_is_judged_after_its_binding_has_outlived_its_time(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(16, 1024)
    await cluster.confirm(reservation, "s1")
    cluster.wait(BINDING_TTL_MS + 1)
    await cluster.sweep()
    assert await cluster.node_of("s1") is None
    for sequence in (1, 2, 3):
        await listing(cluster, (), 0, sequence=sequence)
    assert await cluster.ending(reservation) == ("settled", "gone")


async def test_slices_take_time_and_reports_are_as_far_apart_as_they_were_received(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reports of one burst, sampled before the create; the roster of the second is long in being applied."""
    monkeypatch.setattr(roster, "SLICE", 2)
    await cluster.add()
    await listing(cluster, ("b1",), 0, sequence=1)
    await listing(cluster, ("b1",), 0, sequence=2)
    reservation = await cluster.place(16, 1024)
    await cluster.confirm(reservation, "s1")
    await cluster.report("a", ("b1",), sequence=3)
    assert cluster.ledger is not None
    run = cluster.ledger.nodes._runner.run

    async def slow(script: str, *args: Any, **more: Any) -> Any:
        if script == "apply_roster":
            cluster.wait(REPORT_MS)
        return await run(script, *args, **more)

    monkeypatch.setattr(cluster.ledger.nodes._runner, "run", slow)
    await cluster.report("a", ("b1", "c1", "c2", "c3"), sequence=4)
    assert await cluster.state(reservation) == "confirmed"
