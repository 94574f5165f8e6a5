"""However much a node has open, one script does a bounded amount of it. Judged by commands, because time on a busy
machine tells nothing; how long the server was busy is printed (`-s`), by its own clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scheduler.domain.limits import BATCH_MAX, MIB
from scheduler.domain.node import Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.ledger.ledger import Ledger
from tests.lifecycle.cluster import address
from tests.lifecycle.test_roster_size import Call, calls, ledger

__all__ = ["calls", "ledger"]  # fixtures

# What one script may run: the slices are of 32 to 100 reservations, each with at most 25 commands.
AT_MOST = 2_500
MANY = 1_500  # more than the 1,024 unnamed that are weighed


class Node:
    """One large node that reports, by itself or all that it was given."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.sequence = ledger, 0

    async def report(self, *sandbox_ids: str, **figures: Any) -> None:
        self.sequence += 1
        snapshot = NodeSnapshot(
            NodeStatus.READY,
            cpu_count=60_000,
            memory_total_bytes=2**45,
            allocated_cpu=len(sandbox_ids),
            allocated_memory_bytes=len(sandbox_ids) * MIB,
            **figures,
        )
        heartbeat = Heartbeat("a", "run-1", sequence=self.sequence, snapshot=snapshot, sandbox_ids=sandbox_ids)
        await self.ledger.nodes.heartbeat(heartbeat, 300_000)

    async def place(self, count: int, lifecycle: Lifecycle) -> list[str]:
        request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 1), lifecycle=lifecycle)
        made: list[str] = []
        while len(made) < count:
            batch = BatchRequest((request,) * min(BATCH_MAX, count - len(made)), all_or_none=True)
            placed = (await self.ledger.placements.schedule_batch(batch)).placed
            made += [one.reservation.reservation_id for one in placed]
        return made


@pytest.fixture
async def node(ledger: Ledger) -> Node:
    await ledger.nodes.replace([address("a")], [])
    one = Node(ledger)
    await one.report("stranger")
    return one


Story = Callable[[Node], Awaitable[None]]


async def all_have_entered(node: Node) -> None:
    await node.report("stranger", create_successes=10_000)


async def many_have_begun(node: Node) -> None:
    await node.report("stranger", *(f"s{number}" for number in range(200)), sandbox_starting_count=200)


async def events_come(node: Node) -> None:
    events = [SandboxEvent(f"s{number}", SandboxEventType.CREATE, 1, MIB) for number in range(128)]
    await node.ledger.nodes.record_events("a", "run-1", events)


@pytest.mark.slow
@pytest.mark.parametrize("lifecycle", list(Lifecycle))
@pytest.mark.parametrize("open_count", [1_000, MANY])
@pytest.mark.parametrize("story", [all_have_entered, many_have_begun, events_come], ids=lambda story: story.__name__)
async def test_what_nobody_has_named_is_worked_off_a_little_at_a_time(
    node: Node, calls: list[Call], story: Story, open_count: int, lifecycle: Lifecycle
) -> None:
    await node.place(open_count, lifecycle)
    calls.clear()
    await story(node)
    judge(f"{open_count} {lifecycle.value}, {story.__name__}", calls)


@pytest.mark.slow
async def test_confirmed_sandboxes_that_are_listed_or_gone_at_once_are_worked_off_a_little_at_a_time(
    node: Node, calls: list[Call]
) -> None:
    reservations = await node.place(MANY, Lifecycle.EXPLICIT)
    for number, reservation_id in enumerate(reservations):
        await node.ledger.reservations.confirm(reservation_id, f"s{number}")
    calls.clear()
    await node.report("stranger", *(f"s{number}" for number in range(MANY)), create_successes=MANY)
    judge(f"{MANY} claims listed", calls)
    calls.clear()
    await node.report("stranger", create_successes=MANY)
    judge(f"{MANY} listed, gone", calls)


def judge(told: str, calls: list[Call]) -> None:
    busiest = max(calls, key=lambda call: call.commands)
    print(
        f"{told}: at most {busiest.commands:.0f} commands ({busiest.script}) in one of {len(calls)} calls;"
        f" {max(call.busy_ms for call in calls):.1f} ms at most"
    )
    assert busiest.commands <= AT_MOST
