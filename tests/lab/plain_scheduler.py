"""A scheduler in a dictionary, to test the lab without a ledger: same surface, plainest rules.

It picks the admitted node with the lowest CPU pressure. A reservation ends with its
cancel, or with the first report after its confirm; a leaky scheduler holds every one for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
from scheduler.domain.reservation import Reservation, ReservationState
from scheduler.domain.sandbox import SandboxEvent
from scheduler.errors import NoNodes


@dataclass
class PlainScheduler:
    leaky: bool = False
    addresses: dict[str, NodeAddress] = field(default_factory=dict)
    reports: list[Heartbeat] = field(default_factory=list)
    events: list[SandboxEvent] = field(default_factory=list)
    requests: list[ScheduleRequest] = field(default_factory=list)
    upkeeps: int = 0

    def __post_init__(self) -> None:
        self.last: dict[str, Heartbeat] = {}
        self.held: dict[str, tuple[str, int, int]] = {}
        self.sandbox_of: dict[str, str] = {}
        self._numbers = count(1)

    async def discover(self, active: Sequence[NodeAddress]) -> None:
        self.addresses = {address.node_id: address for address in active}

    async def drain(self, address: NodeAddress) -> None:
        del self.addresses[address.node_id]

    async def heartbeat(self, heartbeat: Heartbeat) -> None:
        self.reports.append(heartbeat)
        self.last[heartbeat.node_id] = heartbeat
        for reservation_id in tuple(self.sandbox_of):
            held = self.held.get(reservation_id)
            if held and held[0] == heartbeat.node_id and not self.leaky:
                del self.held[reservation_id]  # listed, or gone again already

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
        self.held[reservation_id] = (chosen.node_id, cpu_count, memory_bytes)
        reservation = Reservation(
            reservation_id, chosen.node_id, ReservationState.PENDING, request.lifecycle, cpu_count, memory_bytes, 0, 0
        )
        return Decision(chosen.address, Strategy.LEAST_LOADED, reservation=reservation)

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        self.sandbox_of[reservation_id] = sandbox_id
        if not self.leaky and sandbox_id in (self.last[self.held[reservation_id][0]].sandbox_ids or ()):
            del self.held[reservation_id]

    async def cancel(self, reservation_id: str, reason: str) -> None:
        if not self.leaky:
            self.held.pop(reservation_id, None)

    async def nodes(self) -> tuple[Node, ...]:
        return tuple(self._node(address) for _, address in sorted(self.addresses.items()))

    async def upkeep(self) -> None:
        self.upkeeps += 1

    def _node(self, address: NodeAddress) -> Node:
        held = [(cpu, memory) for node_id, cpu, memory in self.held.values() if node_id == address.node_id]
        pending = PendingTotals(sum(cpu for cpu, _ in held), sum(memory for _, memory in held), len(held))
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
