"""A scheduler in a dictionary, to test the lab without a ledger: same surface, plainest rules.

It picks the admitted node with the lowest CPU pressure. It knows what no ledger can: the gateway names its n-th
request's sandbox `sandbox-n`, so a report that lists a sandbox ends the reservation made for it, booting or not. A
reservation also ends with its cancel, or with the second report after its confirm. Its faults are those
that the lab is there to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from scheduler.domain.limits import MIB
from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    Node,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    PendingTotals,
)
from scheduler.domain.placement import Decision, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause, Reservation, ReservationState
from scheduler.domain.sandbox import SandboxEvent
from scheduler.errors import NoNodes


class Fault(Enum):
    COUNTS_BOOTING_TWICE = auto()  # only a told sandbox is recognised in a report
    HOLDS_NOTHING = auto()  # what no report lists yet is given away again
    LEAKS = auto()  # reservations never end


@dataclass
class Held:
    """What one reservation holds. `reports_since_confirm` is None while nobody has confirmed."""

    node_id: str
    cpu_count: int
    memory_bytes: int
    sandbox_id: str
    reports_since_confirm: int | None = None


@dataclass
class PlainScheduler:
    fault: Fault | None = None
    addresses: dict[str, NodeAddress] = field(default_factory=dict)
    reports: list[Heartbeat] = field(default_factory=list)
    events: list[SandboxEvent] = field(default_factory=list)
    requests: list[ScheduleRequest] = field(default_factory=list)
    sweeps: int = 0
    cancelled: int = 0

    def __post_init__(self) -> None:
        self.last: dict[str, Heartbeat] = {}
        self.held: dict[str, Held] = {}
        self.sandbox_of: dict[str, str] = {}
        self._numbers = count(1)

    async def discover(self, active: Sequence[NodeAddress]) -> None:
        self.addresses = {address.node_id: address for address in active}

    async def drain(self, address: NodeAddress) -> None:
        del self.addresses[address.node_id]

    async def heartbeat(self, heartbeat: Heartbeat) -> int:
        self.reports.append(heartbeat)
        newest = self.last.get(heartbeat.node_id)
        if newest is not None and _order(heartbeat) <= _order(newest):
            return 0
        self.last[heartbeat.node_id] = heartbeat
        for reservation_id, held in tuple(self.held.items()):
            if held.node_id == heartbeat.node_id:
                self._look_for(reservation_id, held, heartbeat.sandbox_ids or ())
        return 0

    def _look_for(self, reservation_id: str, held: Held, listed: Sequence[str]) -> None:
        told = held.reports_since_confirm is not None
        if held.reports_since_confirm is not None:
            held.reports_since_confirm += 1
        recognised = told or self.fault is not Fault.COUNTS_BOOTING_TWICE
        if (recognised and held.sandbox_id in listed) or held.reports_since_confirm == 2:
            self._end(reservation_id)

    def _end(self, reservation_id: str) -> None:
        if self.fault is not Fault.LEAKS:
            self.held.pop(reservation_id, None)

    async def report_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> None:
        self.events.extend(events)

    async def schedule(self, request: ScheduleRequest) -> Decision:
        assert request.hint is not None
        self.requests.append(request)
        cpu_count, memory_bytes = request.hint.cpu_count, request.hint.memory_mb * MIB
        fitting = [node for node in await self.nodes() if self._fits(node, cpu_count, memory_bytes)]
        if not fitting:
            raise NoNodes(len(self.addresses), {"insufficient_cpu": len(self.addresses)})
        chosen = min(fitting, key=lambda node: (self._cpu_load(node) / node.snapshot.cpu_count, node.node_id))
        reservation_id = f"r{next(self._numbers)}"
        if self.fault is not Fault.HOLDS_NOTHING:
            sandbox_id = f"sandbox-{len(self.requests)}"
            self.held[reservation_id] = Held(chosen.node_id, cpu_count, memory_bytes, sandbox_id)
        reservation = Reservation(
            reservation_id, chosen.node_id, ReservationState.PENDING, request.lifecycle, cpu_count, memory_bytes, 0, 0
        )
        return Decision(chosen.address, Strategy.LEAST_LOADED, reservation=reservation)

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        self.sandbox_of[reservation_id] = sandbox_id
        if (held := self.held.get(reservation_id)) is None:
            return
        held.sandbox_id, held.reports_since_confirm = sandbox_id, 0
        if sandbox_id in (self.last[held.node_id].sandbox_ids or ()):
            self._end(reservation_id)

    async def cancel(self, reservation_id: str, reason: str, cause: CancelCause = CancelCause.CALLER) -> None:
        self.cancelled += 1
        self._end(reservation_id)

    async def nodes(self) -> tuple[Node, ...]:
        return tuple(self._node(address) for _, address in sorted(self.addresses.items()))

    async def maintain(self) -> None:
        self.sweeps += 1

    def _node(self, address: NodeAddress) -> Node:
        held = [each for each in self.held.values() if each.node_id == address.node_id]
        pending = PendingTotals(
            sum(each.cpu_count for each in held), sum(each.memory_bytes for each in held), len(held)
        )
        snapshot = self.last[address.node_id].snapshot or NodeSnapshot()
        return Node(
            address.node_id,
            address.endpoint,
            DiscoveryState.ACTIVE,
            NodeStatus.READY,
            snapshot=snapshot,
            pending=pending,
        )

    @staticmethod
    def _cpu_load(node: Node) -> int:
        return node.snapshot.allocated_cpu + node.snapshot.paused_allocated_cpu + node.pending.cpu_count

    def _fits(self, node: Node, cpu_count: int, memory_bytes: int) -> bool:
        memory_load = node.snapshot.allocated_memory_bytes + node.pending.memory_bytes
        return (
            self._cpu_load(node) + cpu_count <= node.snapshot.cpu_count
            and memory_load + memory_bytes <= node.snapshot.memory_total_bytes
        )


def _order(heartbeat: Heartbeat) -> tuple[str, int]:
    return heartbeat.service_instance_id, heartbeat.sequence or 0
