"""What a report proves by leaving a sandbox out, what an event ends at once, and who may report at all."""

from __future__ import annotations

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import InstanceMismatch, NoNodes
from tests.lifecycle.cluster import GIB, GRACE_MS, NOTHING, REPORT_TTL_MS, Cluster, event

REPORT_MS = 2_000
FULL = {"allocated_cpu": 16, "allocated_memory_bytes": 2 * GIB, "sandbox_count": 1}
EMPTY = {"allocated_cpu": 0, "allocated_memory_bytes": 0, "sandbox_count": 0}


@pytest.fixture
def ledger_settings(request: pytest.FixtureRequest) -> LedgerSettings:
    mark = request.node.get_closest_marker("ledger_settings")
    return LedgerSettings(strategy=Strategy.LEAST_LOADED, **(mark.kwargs if mark else {}))


async def full(cluster: Cluster, sandbox_id: str = "s0") -> None:
    """A node whose 16 CPUs are one confirmed sandbox that no report has listed; reports every two seconds."""
    await cluster.add(sequence=1)
    cluster.wait(REPORT_MS)
    await cluster.report("a", (), sequence=2)
    await cluster.confirm(await cluster.place(16, 2048), sandbox_id)


async def is_full(cluster: Cluster) -> bool:
    try:
        await cluster.cancel(await cluster.place(16, 2048))
    except NoNodes:
        return True
    return False


# -- absence ----------------------------------------------------------------------------------------------------


async def test_one_late_report_proves_nothing_however_old_the_confirm_is(cluster: Cluster) -> None:
    await full(cluster)
    cluster.wait(GRACE_MS + 500)
    await cluster.report("a", (), sequence=3)
    assert await is_full(cluster)
    assert await cluster.node_of("s0") == "a"


async def test_a_burst_of_late_reports_proves_nothing(cluster: Cluster) -> None:
    await full(cluster)
    cluster.wait(GRACE_MS + 500)
    for sequence in range(3, 13):
        cluster.wait(20)
        await cluster.report("a", (), sequence=sequence)
    assert await is_full(cluster)


async def test_two_reports_after_the_confirm_prove_that_it_ended(cluster: Cluster) -> None:
    await full(cluster)
    cluster.wait(REPORT_MS)
    await cluster.report("a", (), sequence=3)
    assert await is_full(cluster)
    cluster.wait(REPORT_MS)
    await cluster.report("a", (), sequence=4)
    assert not await is_full(cluster)
    assert await cluster.node_of("s0") is None


@pytest.mark.parametrize(
    ("named", "told"),
    [("s1", "assigned"), ("s1", "event"), ("s1", "event, assigned"), (None, "event"), (None, "event, assigned")],
)
async def test_what_an_event_or_an_assignment_told_of_is_absent_like_a_confirmed_one(
    cluster: Cluster, named: str | None, told: str
) -> None:
    lifecycle = Lifecycle.EXPLICIT if named else Lifecycle.HEARTBEAT
    await cluster.add(sequence=1)
    await cluster.report("a", ("other",), sequence=2)
    reservation = await cluster.place(2, 4096, lifecycle=lifecycle, sandbox_id=named)
    for sequence in (3, 4):
        cluster.wait(REPORT_MS)
        await cluster.report("a", ("other",), sequence=sequence)
    assert await cluster.state(reservation) == "pending", "nobody has said yet that it exists"
    if "event" in told:
        await cluster.tell("a", event("create", "s1", 2, 4096))
    if "assigned" in told:
        await cluster.record("s1")
    for sequence in (5, 6):
        assert await cluster.state(reservation) == "pending"
        cluster.wait(REPORT_MS)
        await cluster.report("a", ("other",), sequence=sequence)
    assert await cluster.ending(reservation) == ("settled", "gone")
    assert await cluster.node_of("s1") is None


async def test_a_report_sampled_after_an_answer_that_followed_the_confirm_is_proof_alone(cluster: Cluster) -> None:
    await full(cluster)
    before = (await cluster.services.nodes.get("a")).generation
    cluster.wait(10)
    answered = await cluster.report("a", (), sequence=3, acknowledged=before)
    assert await is_full(cluster)
    cluster.wait(10)
    await cluster.report("a", (), sequence=4, acknowledged=answered.generation)
    assert not await is_full(cluster)


async def test_a_generation_that_was_never_given_proves_nothing(cluster: Cluster) -> None:
    await full(cluster)
    await cluster.report("a", (), sequence=3, acknowledged=10**9)
    assert await is_full(cluster)


async def test_a_report_whose_caller_has_hung_up_proves_no_absence(cluster: Cluster) -> None:
    await full(cluster)
    for sequence in range(3, 7):
        cluster.wait(REPORT_MS)
        await cluster.report("a", (), sequence=sequence, hung_up=True)
    assert await is_full(cluster)
    assert await cluster.node_of("s0") == "a"


async def test_the_time_of_a_silence_is_no_report_interval(cluster: Cluster) -> None:
    await full(cluster)
    cluster.wait(3_600_000)
    await cluster.report("a", (), sequence=3)
    await cluster.confirm(await cluster.place(16, 2048), "s1")
    for sequence in (4, 5):
        cluster.wait(REPORT_MS)
        await cluster.report("a", (), sequence=sequence)
    assert not await is_full(cluster)


async def test_without_a_sequence_the_grace_is_waited_for_as_well(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place(16, 2048), "s0")
    for _ in range(3):
        cluster.wait(REPORT_MS)
        await cluster.report("a", ())
    assert await is_full(cluster)
    cluster.wait(GRACE_MS - 3 * REPORT_MS)
    await cluster.report("a", ())
    assert not await is_full(cluster)


@pytest.mark.ledger_settings(binding_grace_ms=0)
async def test_without_a_grace_the_first_roster_proves_it(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place(16, 2048), "s0")
    await cluster.report("a", ())
    assert not await is_full(cluster)
    assert await cluster.node_of("s0") is None


async def test_many_that_are_gone_at_once_are_all_ended(cluster: Cluster) -> None:
    await cluster.add(cpu_count=1_000, memory_mb=2**20)
    for number in range(450):
        await cluster.confirm(await cluster.place(1, 64), f"s{number}")
    for _ in range(3):
        cluster.wait(GRACE_MS)
        await cluster.report("a", ())
    assert await cluster.pending() == NOTHING


# -- ends that an event tells -----------------------------------------------------------------------------------


async def test_a_delete_event_frees_what_a_report_listed_at_once(cluster: Cluster) -> None:
    await full(cluster)
    await cluster.report("a", ("s0",), sequence=3, **FULL)
    assert await is_full(cluster)
    await cluster.tell("a", event("delete", "s0"))
    assert not await is_full(cluster)
    await cluster.report("a", ("s0",), sequence=4, **FULL)
    assert not await is_full(cluster), "sampled before the delete"
    await cluster.report("a", (), sequence=5, **EMPTY)
    assert not await is_full(cluster)
    assert (await cluster.services.nodes.get("a")).pressure.cpu == 0


async def test_a_deleted_sandbox_that_lives_counts_again(cluster: Cluster) -> None:
    await full(cluster)
    await cluster.report("a", ("s0",), sequence=3, **FULL)
    await cluster.tell("a", event("delete", "s0"))
    for sequence in (4, 5):
        cluster.wait(REPORT_MS)
        await cluster.report("a", ("s0",), sequence=sequence, **FULL)
    assert await is_full(cluster)
    assert await cluster.node_of("s0") == "a"


async def test_a_paused_sandbox_that_is_deleted_lowers_nothing(cluster: Cluster) -> None:
    await full(cluster)
    await cluster.report("a", ("s0",), sequence=3, **FULL)
    await cluster.tell("a", event("pause", "s0"), event("delete", "s0"))
    assert await is_full(cluster)


async def test_a_delete_of_an_id_that_no_roster_lists_lowers_nothing(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.report("a", ("other",), **FULL)
    await cluster.tell("a", event("create", "s1", 4, 2048), event("delete", "s1"))
    assert await is_full(cluster)


async def test_a_delete_is_remembered_for_the_confirm_that_comes_after_it(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(16, 2048)
    await cluster.tell("a", event("delete", "s0"))
    assert await is_full(cluster)
    await cluster.confirm(reservation, "s0")
    assert await cluster.ending(reservation) == ("settled", "deleted")
    assert not await is_full(cluster)
    assert await cluster.node_of("s0") is None


async def test_a_create_told_after_its_delete_settles(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(4, 2048, lifecycle=Lifecycle.HEARTBEAT)
    await cluster.tell("a", event("delete", "s2"))
    await cluster.tell("a", event("create", "s2", 4, 2048))
    assert await cluster.ending(reservation) == ("settled", "deleted")
    assert await cluster.pending() == NOTHING


# -- processes --------------------------------------------------------------------------------------------------


async def replaced(cluster: Cluster) -> None:
    """Process i-2 has replaced i-1 and fills the node."""
    await cluster.discover()
    await cluster.report("a", (), instance="i-1", sequence=1, cpu_count=16, memory_total_bytes=32 * GIB)
    await cluster.report("a", (), instance="i-1", sequence=2)
    await cluster.report("a", ("s1", "s2"), instance="i-2", sequence=1, **FULL)


@pytest.mark.parametrize("sequence", [1, 3, None])
async def test_a_report_of_a_replaced_process_is_stale(cluster: Cluster, sequence: int | None) -> None:
    await replaced(cluster)
    assert (await cluster.report("a", (), instance="i-1", sequence=sequence, **EMPTY)).stale
    assert await is_full(cluster)
    assert await cluster.node_of("s1") == "a"


async def test_an_event_of_a_replaced_process_changes_nothing(cluster: Cluster) -> None:
    await replaced(cluster)
    assert await cluster.tell("a", event("delete", "s1"), instance="i-1") == 0
    assert await cluster.node_of("s1") == "a"
    assert await cluster.tell("a", event("delete", "s1"), instance="i-2") == 1
    assert await cluster.node_of("s1") is None


async def test_only_the_present_process_unregisters(cluster: Cluster) -> None:
    await replaced(cluster)
    await cluster.report("a", (), instance="i-1", sequence=3)
    with pytest.raises(InstanceMismatch):
        await cluster.services.nodes.unregister("a", "i-1")
    assert await cluster.node_of("s1") == "a"
    await cluster.services.nodes.unregister("a", "i-2")
    assert await cluster.node_of("s1") is None


async def test_the_last_eight_processes_are_known(cluster: Cluster) -> None:
    await cluster.discover()
    for number in range(1, 10):
        await cluster.report("a", (), instance=f"i-{number}", sequence=1)
    for number in range(2, 9):
        assert (await cluster.report("a", (), instance=f"i-{number}", sequence=2)).stale
    assert not (await cluster.report("a", (), instance="i-1", sequence=2)).stale


async def test_a_replaced_process_is_taken_back_once_the_present_one_is_silent(cluster: Cluster) -> None:
    await replaced(cluster)
    cluster.wait(REPORT_TTL_MS)
    assert (await cluster.report("a", (), instance="i-1", sequence=1)).stale
    cluster.wait(1)
    assert not (await cluster.report("a", (), instance="i-1", sequence=1, **EMPTY)).stale
    assert (await cluster.report("a", (), instance="i-2", sequence=2)).stale


async def test_a_replaced_process_is_taken_back_once_the_present_one_has_unregistered(cluster: Cluster) -> None:
    await replaced(cluster)
    await cluster.services.nodes.unregister("a", "i-2")
    assert not (await cluster.report("a", (), instance="i-1", sequence=1)).stale


@pytest.mark.parametrize("leaves", ["unregisters", "is taken off the list"])
async def test_a_process_that_left_is_replaced_by_the_next_and_comes_back_when_there_is_none(
    cluster: Cluster, leaves: str
) -> None:
    async def leave(instance: str) -> None:
        if leaves == "unregisters":
            await cluster.services.nodes.unregister("a", instance)
        else:
            await cluster.services.nodes.remove("a")
            await cluster.discover()

    await replaced(cluster)
    await leave("i-2")
    assert not (await cluster.report("a", (), instance="i-2", sequence=1)).stale
    await leave("i-2")
    await cluster.report("a", (), instance="i-3", sequence=1, **EMPTY)
    for earlier in ("i-1", "i-2"):
        assert (await cluster.report("a", ("s1", "s2"), instance=earlier, sequence=9, **FULL)).stale
        assert await cluster.tell("a", event("create", "s1"), instance=earlier) == 0
    assert not await is_full(cluster)
    assert not (await cluster.report("a", (), instance="i-3", sequence=2)).stale


async def test_a_sequence_that_begins_anew_is_a_restart_once_the_last_report_is_old(cluster: Cluster) -> None:
    await cluster.add(sequence=7, create_successes=5)
    reservation = await cluster.place(2, 2048, lifecycle=Lifecycle.HEARTBEAT)
    assert (await cluster.report("a", (), sequence=1, create_successes=0)).stale, "a late copy has both"
    cluster.wait(REPORT_TTL_MS + 1)
    assert not (await cluster.report("a", (), sequence=1, create_successes=0)).stale
    assert await cluster.state(reservation) == "pending"
    cluster.wait(REPORT_MS)
    await cluster.report("a", (), sequence=2, create_successes=1, allocated_cpu=2, allocated_memory_bytes=2 * GIB)
    assert await cluster.ending(reservation) == ("settled", "counters")
