"""What the model remembers of nodes, reservations and groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.reservation import Lifecycle, ReservationState


@dataclass
class Totals:
    """CPUs, bytes and sandboxes, always together."""

    cpu: int = 0
    memory: int = 0
    count: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.cpu + other.cpu, self.memory + other.memory, self.count + other.count)


@dataclass
class ModelReservation:
    """`held` is what still counts on the node; `told` and `suggested` are sandbox ids."""

    node_id: str
    lifecycle: Lifecycle
    cpu: int
    memory: int
    created_at_ms: int
    deadline_ms: int
    ttl_ms: int
    state: ReservationState = ReservationState.PENDING
    reason: str | None = None
    held: Totals = field(default_factory=Totals)
    told: str | None = None
    suggested: str | None = None
    confirmed_at_ms: int = 0
    finished_at_ms: int = 0
    orphaned: bool = False
    nameable: bool = True
    group: ModelGroup | None = None
    group_charge: tuple[int, int] = (0, 0)
    group_charged: bool = False
    ledger_id: str = ""

    @property
    def open(self) -> bool:
        return self.state in {ReservationState.PENDING, ReservationState.CONFIRMED}

    @property
    def sandbox_id(self) -> str | None:
        return self.told or self.suggested


@dataclass
class Explained:
    """Growth since a node's last report that no counter may credit again: what explicit
    reservations, identities and forks account for. A size nobody stated may be all of it."""

    totals: Totals = field(default_factory=Totals)
    any_cpu: bool = False
    any_memory: bool = False

    def add(self, cpu: int, memory: int) -> None:
        self.totals += Totals(cpu, memory, 1)
        self.any_cpu |= cpu == 0
        self.any_memory |= memory == 0


@dataclass
class ModelNode:
    """A discovered node. `snapshot` None: it has not reported since it was (re)discovered."""

    node_id: str
    endpoint: str
    lingering: bool
    snapshot: NodeSnapshot | None = None
    instance: str = ""
    last_seen_ms: int = 0
    sequence: int | None = None
    explained: Explained = field(default_factory=Explained)

    def stale(self, now_ms: int, report_ttl_ms: int) -> bool:
        return self.snapshot is not None and now_ms - self.last_seen_ms > report_ttl_ms

    def status(self, now_ms: int, report_ttl_ms: int) -> NodeStatus:
        """The derived status that views show: silence beats lingering, lingering the report."""
        if self.stale(now_ms, report_ttl_ms):
            return NodeStatus.UNHEALTHY
        if self.lingering:
            return NodeStatus.LINGERING
        return NodeStatus.CONNECTING if self.snapshot is None else self.snapshot.status


@dataclass
class ModelGroup:
    """An open placement group and what was charged to it."""

    key: str
    node_id: str
    count: int = 0
    cpu: int = 0
    memory_mb: int = 0
