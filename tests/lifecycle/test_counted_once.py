"""A booting sandbox counts once: in the reservation until a report shows it, then in the report."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import Conflict, NoNodes
from tests.lifecycle.cluster import GIB, NOTHING, Cluster, event

HEARTBEAT: dict[str, Any] = {"lifecycle": Lifecycle.HEARTBEAT}
REPORT_MS = 5_000


@pytest.fixture
def ledger_settings() -> LedgerSettings:
    return LedgerSettings(strategy=Strategy.LEAST_LOADED)


async def running(cluster: Cluster, sizes: dict[str, int], node_id: str = "a", **figures: Any) -> None:
    """The node reports these sandboxes, by CPUs, with 2 GiB each, five seconds after its last report."""
    cluster.wait(REPORT_MS)
    told: dict[str, Any] = {
        "allocated_cpu": sum(sizes.values()),
        "allocated_memory_bytes": len(sizes) * 2 * GIB,
        "sandbox_count": len(sizes),
    }
    await cluster.report(node_id, tuple(sizes), **(told | figures))


async def place(cluster: Cluster, cpu_count: int, **request: Any) -> Any:
    return await cluster.place(cpu_count, 2048, **request)


@pytest.mark.parametrize("lifecycle", list(Lifecycle))
async def test_booting_sandboxes_that_a_report_lists_leave_the_rest_of_the_node_free(
    cluster: Cluster, lifecycle: Lifecycle
) -> None:
    await cluster.add()
    for _ in range(4):
        await place(cluster, 2, lifecycle=lifecycle)
    await running(cluster, dict.fromkeys(["s1", "s2", "s3", "s4"], 2), sandbox_starting_count=4)
    assert await cluster.pending() == NOTHING
    for _ in range(4):
        await place(cluster, 2, lifecycle=lifecycle)
    with pytest.raises(NoNodes):
        await place(cluster, 1, lifecycle=lifecycle)


async def test_of_different_sizes_the_load_tells_which_have_begun(cluster: Cluster) -> None:
    await cluster.add()
    for cpu_count in (1, 2, 4):
        await place(cluster, cpu_count)
    await running(cluster, {"x": 4}, sandbox_starting_count=1)
    assert await cluster.pending() == (3, 4096, 2)


async def test_a_load_that_no_sizes_add_up_to_lowers_by_the_smallest(cluster: Cluster) -> None:
    await cluster.add()
    for cpu_count in (1, 4):
        await place(cluster, cpu_count)
    await running(cluster, {"x": 7})
    assert (await cluster.pending())[0] == 4


async def test_a_confirm_takes_its_own_size_out_and_nothing_else(cluster: Cluster) -> None:
    await cluster.add()
    first, _ = await place(cluster, 2), await place(cluster, 4)
    await running(cluster, {"s1": 2})
    assert await cluster.pending() == (4, 2048, 1)
    await cluster.confirm(first, "s1")
    assert await cluster.ending(first) == ("settled", "listed")
    assert await cluster.pending() == (4, 2048, 1)


async def test_a_reservation_made_after_the_report_is_held_in_full(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2)
    await running(cluster, {"x": 2})
    await place(cluster, 2)
    assert await cluster.pending() == (2, 2048, 1)


async def test_what_ran_before_explains_itself(cluster: Cluster) -> None:
    await cluster.add()
    await running(cluster, {"old": 4})
    await place(cluster, 4)
    await running(cluster, {"old": 4})
    assert (await cluster.pending())[0] == 4
    await running(cluster, {"old": 4, "new": 4})
    assert (await cluster.pending())[0] == 0


async def test_the_first_report_of_a_process_lowers_nothing(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 4)
    await running(cluster, {"x": 4}, create_successes=1)
    assert (await cluster.pending())[0] == 0
    cluster.wait(REPORT_MS)
    await cluster.report("a", ("x",), instance="run-2")
    assert (await cluster.pending())[0] == 4


async def test_one_that_ended_without_a_name_may_own_the_id(cluster: Cluster) -> None:
    await cluster.add()
    given_up, other = await place(cluster, 4), await place(cluster, 4)
    await cluster.cancel(given_up)
    await running(cluster, {"x": 4}, sandbox_starting_count=1)
    assert (await cluster.pending())[0] == 4, "the id may be of the one that was cancelled"
    await cluster.confirm(other, "x")
    assert await cluster.pending() == NOTHING


async def test_one_that_the_node_refused_is_in_doubt_for_two_more_reports(cluster: Cluster) -> None:
    await cluster.add()
    refused, _ = await place(cluster, 4), await place(cluster, 4)
    await cluster.cancel(refused, cause=CancelCause.NODE_REFUSED)
    await running(cluster, {"x": 4}, sandbox_starting_count=1)
    assert (await cluster.pending())[0] == 4
    await running(cluster, {"x": 4}, sandbox_starting_count=1)
    assert (await cluster.pending())[0] == 0, "what it may have begun would be gone by now"


async def test_one_that_was_given_up_is_in_doubt_until_its_create_can_begin_no_more(cluster: Cluster) -> None:
    await cluster.add()
    given_up, _ = await place(cluster, 4, reservation_ttl_ms=60_000), await place(cluster, 4)
    await cluster.cancel(given_up)
    for _ in range(4):
        await running(cluster, {"x": 4}, sandbox_starting_count=1)
        assert (await cluster.pending())[0] == 4
    cluster.wait(60_000)
    await running(cluster, {})
    await running(cluster, {})
    await running(cluster, {"x": 4}, sandbox_starting_count=1)
    assert (await cluster.pending())[0] == 0


async def test_a_fork_that_is_told_takes_itself_out(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2)
    await cluster.tell("a", event("fork", "child", 2, 2048))
    await running(cluster, {"child": 2}, create_successes=1)
    assert (await cluster.pending())[0] == 2
    await running(cluster, {"child": 2, "mine": 2}, create_successes=2)
    assert (await cluster.pending())[0] == 0


async def test_an_assignment_that_no_reservation_carries_takes_itself_out(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2)
    await cluster.record("child")
    await running(cluster, {"child": 2})
    assert (await cluster.pending())[0] == 2


async def test_a_report_without_a_roster_lowers_nothing(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2)
    await running(cluster, {"x": 2})
    assert (await cluster.pending())[0] == 0
    await cluster.report(allocated_cpu=2, allocated_memory_bytes=2 * GIB)
    assert (await cluster.pending())[0] == 2


# -- callers that never confirm ---------------------------------------------------------------------------------


async def test_of_those_that_never_confirm_the_largest_are_held(cluster: Cluster) -> None:
    await cluster.add()
    for cpu_count in (1, 4):
        await place(cluster, cpu_count, **HEARTBEAT)
    await running(cluster, {"x": 1}, sandbox_starting_count=1)
    assert (await cluster.pending())[0] == 4
    await running(cluster, {"x": 1, "y": 4}, create_successes=1, sandbox_starting_count=1)
    assert await cluster.pending() == NOTHING


async def test_when_all_have_entered_all_are_settled(cluster: Cluster) -> None:
    await cluster.add()
    reservations = [await place(cluster, 2, **HEARTBEAT) for _ in range(3)]
    await running(cluster, {"x": 2, "y": 2}, create_fails=1)
    assert await cluster.pending() == (2, 2048, 1), "the one that failed may be one of those that were listed"
    await running(cluster, {"x": 2, "y": 2}, create_fails=1, create_successes=2)
    assert [await cluster.ending(each) for each in reservations] == [("settled", "counters")] * 3


async def test_a_boot_that_failed_between_two_reports_has_entered_while_others_boot(cluster: Cluster) -> None:
    await cluster.add()
    for cpu_count in (1, 2, 4):
        await place(cluster, cpu_count, **HEARTBEAT)
    await running(cluster, {"s1": 1, "s2": 2}, sandbox_starting_count=2, create_fails=1)
    assert await cluster.pending() == NOTHING


async def test_one_that_came_and_went_between_two_reports_has_entered_by_the_next(cluster: Cluster) -> None:
    await cluster.add()
    for cpu_count in (1, 2, 4):
        await place(cluster, cpu_count, **HEARTBEAT)
    booting = {"s1": 1, "s2": 2}
    await running(cluster, booting, sandbox_starting_count=2, create_successes=1)
    assert await cluster.pending() == (4, 2048, 1)
    await running(cluster, booting, sandbox_starting_count=2, create_successes=1)
    assert await cluster.pending() == NOTHING


async def test_a_resume_that_nobody_told_of_is_no_entry(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 1, **HEARTBEAT)
    await running(cluster, {"s1": 1}, create_successes=1)
    await place(cluster, 2, **HEARTBEAT)
    for _ in range(3):
        await running(cluster, {"s1": 1}, sandbox_starting_count=1)
    assert await cluster.pending() == (2, 2048, 1)


@pytest.mark.parametrize("told", ["report", "event"])
async def test_of_a_process_that_pauses_what_starts_is_no_entry(cluster: Cluster, told: str) -> None:
    await cluster.add()
    await place(cluster, 1, **HEARTBEAT)
    await running(cluster, {"s1": 1}, create_successes=1)
    if told == "event":
        await cluster.tell("a", event("pause", "s1"))
    else:
        await running(cluster, {"s1": 1}, paused_sandbox_count=1)
    for cpu_count in (2, 4):
        await place(cluster, cpu_count, **HEARTBEAT)
    # s1 resumes and s2 boots. What has failed may have been listed, so that nothing but s2 has surely entered.
    await running(cluster, {"s1": 1, "s2": 2}, paused_sandbox_count=0, sandbox_starting_count=2, create_fails=1)
    assert await cluster.pending() == (4, 2048, 1)


async def test_an_open_explicit_reservation_takes_one_entry(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2)
    await place(cluster, 2, **HEARTBEAT)
    await running(cluster, {"x": 2}, sandbox_starting_count=1)
    assert (await cluster.pending())[0] == 4


async def test_a_fork_event_takes_one_entry(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2, **HEARTBEAT)
    await cluster.tell("a", event("fork", "child", 2, 2048))
    await running(cluster, {"child": 2}, create_successes=1)
    assert (await cluster.pending())[0] == 2


# -- the caller names the sandbox -------------------------------------------------------------------------------


async def test_a_named_sandbox_settles_with_the_report_that_lists_it(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await place(cluster, 2, sandbox_id="mine")
    assert (reservation.sandbox_id, reservation.sandbox_told) == ("mine", True)
    assert await cluster.node_of("mine") is None, "it does not exist yet"
    await running(cluster, {"mine": 2})
    assert await cluster.ending(reservation) == ("settled", "listed")
    assert await cluster.node_of("mine") == "a"


async def test_a_named_sandbox_is_confirmed_by_its_name_only(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await place(cluster, 2, sandbox_id="mine")
    with pytest.raises(Conflict):
        await cluster.confirm(reservation, "other")
    assert (await cluster.confirm(reservation, "mine")).reservation.state == "confirmed"


async def test_a_named_reservation_can_be_cancelled_and_its_name_taken_again(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.cancel(await place(cluster, 2, sandbox_id="mine"))
    assert await cluster.pending() == NOTHING
    await place(cluster, 2, sandbox_id="mine")


@pytest.mark.parametrize("held_by", ["reservation", "binding", "roster", "ended", "deleted"])
async def test_a_name_that_is_taken_is_refused(cluster: Cluster, held_by: str) -> None:
    await cluster.add()
    if held_by == "reservation":
        await place(cluster, 1, sandbox_id="mine")
    elif held_by == "binding":
        await cluster.record("mine")
    else:
        await running(cluster, {"mine": 1})
    if held_by == "ended":
        await running(cluster, {})
    if held_by == "deleted":
        await cluster.tell("a", event("delete", "mine"))
    with pytest.raises(Conflict):
        await place(cluster, 2, sandbox_id="mine")
    assert (await cluster.pending())[0] == (1 if held_by == "reservation" else 0)
    if held_by == "ended":
        cluster.wait(600_000)
        await place(cluster, 2, sandbox_id="mine")


async def test_the_name_is_part_of_what_a_key_stands_for(cluster: Cluster) -> None:
    await cluster.add()
    first = await place(cluster, 2, sandbox_id="mine", idempotency_key="k")
    again = await place(cluster, 2, sandbox_id="mine", idempotency_key="k")
    assert again.reservation_id == first.reservation_id
    with pytest.raises(Conflict):
        await place(cluster, 2, sandbox_id="other", idempotency_key="k")


async def test_another_confirm_cannot_take_a_name_that_was_given_at_the_schedule(cluster: Cluster) -> None:
    await cluster.add()
    await place(cluster, 2, sandbox_id="mine")
    other = await place(cluster, 2)
    with pytest.raises(Conflict):
        await cluster.confirm(other, "mine")
