"""A simulated node shows what a real one shows, when a real one shows it."""

from __future__ import annotations

from scheduler.domain.limits import MIB
from scheduler.lab.node import SimulatedNode, Size
from scheduler.lab.trace import NodeSpec


def a_node() -> SimulatedNode:
    return SimulatedNode(NodeSpec("node-a", 16, 32_768))


def test_a_booting_sandbox_is_allocated_and_listed_before_it_counts_as_a_success() -> None:
    node = a_node()
    node.boot("s1", 2, 4096)
    booting = node.heartbeat(1)
    assert booting.sandbox_ids == ("s1",)
    assert booting.snapshot is not None
    assert (booting.snapshot.sandbox_starting_count, booting.snapshot.create_successes) == (1, 0)
    assert (booting.snapshot.allocated_cpu, booting.snapshot.allocated_memory_bytes) == (2, 4096 * MIB)

    assert node.become_ready("s1")
    running = node.snapshot(2)
    assert (running.sandbox_count, running.sandbox_starting_count, running.create_successes) == (1, 0, 1)


def test_paused_sandboxes_move_from_one_total_to_the_other_and_resuming_is_no_success() -> None:
    node = a_node()
    node.boot("s1", 2, 4096)
    node.become_ready("s1")
    assert node.pause("s1")
    paused = node.snapshot(1)
    assert (paused.sandbox_count, paused.paused_sandbox_count) == (0, 1)
    assert (paused.allocated_cpu, paused.paused_allocated_cpu) == (0, 2)
    assert node.resume("s1")
    assert node.snapshot(2).sandbox_starting_count == 1
    node.become_ready("s1")
    assert node.snapshot(3).create_successes == 1


def test_a_failed_boot_counts_as_a_failure_and_leaves_nothing() -> None:
    node = a_node()
    node.boot("s1", 2, 4096)
    assert node.fail_boot("s1")
    snapshot = node.snapshot(1)
    assert (snapshot.create_fails, snapshot.create_successes, snapshot.allocated_cpu) == (1, 0, 0)
    assert not node.become_ready("s1")


def test_children_of_a_fork_count_as_successes() -> None:
    node = a_node()
    node.boot("s1", 2, 4096)
    assert node.fork("s1", ("too-early",)) == ()
    node.become_ready("s1")
    children = node.fork("s1", ("c1", "c2"))
    assert [child.sandbox_id for child in children] == ["c1", "c2"]
    snapshot = node.snapshot(1)
    assert (snapshot.create_successes, snapshot.allocated_cpu, snapshot.sandbox_starting_count) == (3, 6, 0)


def test_a_restart_loses_sandboxes_and_counters_and_is_another_instance() -> None:
    node = a_node()
    node.boot("s1", 2, 4096)
    node.become_ready("s1")
    before = node.heartbeat(1)
    node.restart()
    after = node.heartbeat(2)
    assert after.service_instance_id != before.service_instance_id
    assert after.sandbox_ids == ()
    assert after.snapshot is not None
    assert after.snapshot.create_successes == 0
    assert after.sequence == 1


def test_what_cannot_be_done_changes_nothing() -> None:
    node = a_node()
    node.heartbeat(1)
    assert node.delete("absent") is None
    assert not node.pause("absent")
    assert not node.resume("absent")
    assert not node.fail_boot("absent")
    assert not node.changed


def test_reported_is_what_the_newest_heartbeat_that_has_arrived_said() -> None:
    node = a_node()
    empty = node.heartbeat(0)
    node.boot("s1", 2, 4096)
    listing = node.heartbeat(1)
    assert node.reported_ids == frozenset(), "under way"
    node.arrived(listing)
    node.delete("s1")
    node.arrived(empty)
    assert node.reported_ids == {"s1"}, "an older one that arrives later tells nothing"
    assert node.reported_allocation == Size(2, 4096)
    node.restart()
    node.arrived(node.heartbeat(2))
    node.arrived(listing)
    assert node.reported_ids == frozenset(), "nor does one of the process before"


def test_without_sequences_the_last_heartbeat_of_a_process_to_arrive_counts() -> None:
    node = SimulatedNode(NodeSpec("node-a", 16, 32_768), sends_sequence=False)
    empty = node.heartbeat(0)
    node.boot("s1", 2, 4096)
    listing = node.heartbeat(1)
    assert (empty.sequence, listing.sequence) == (None, None)
    node.arrived(listing)
    node.arrived(empty)
    assert node.reported_ids == frozenset()
