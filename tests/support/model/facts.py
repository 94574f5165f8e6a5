"""What the model remembers of nodes, reservations and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.placement import Spread
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
    """What callers see of one. `name` finds it in the ledger of its node (tests/support/accounting), which says
    what it holds and which sandbox it is; `held` is that, less what the whole node's report already shows."""

    name: str
    node_id: str
    lifecycle: Lifecycle
    cpu: int
    memory: int
    created_at_ms: int
    deadline_ms: int
    ttl_ms: int
    own_deadline_ms: int | None = None
    state: ReservationState = ReservationState.PENDING
    reason: str | None = None
    held: Totals = field(default_factory=Totals)
    sandbox_id: str | None = None
    confirmed: bool = False
    finished_at_ms: int = 0
    orphaned: bool = False
    nameable: bool = True
    group: ModelGroup | None = None
    group_charge: tuple[int, int] = (0, 0)
    group_charged: bool = False
    ledger_id: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    spread: Spread | None = None

    @property
    def open(self) -> bool:
        return self.state in {ReservationState.PENDING, ReservationState.CONFIRMED}

    @property
    def spread_key(self) -> str | None:
        return self.spread.key if self.spread else None


@dataclass
class ModelNode:
    """A discovered node. `snapshot` None: it has not reported since it was (re)discovered. `lowered`: what delete
    events ended and the report still counts. `resources`: total and allocated, by name."""

    node_id: str
    endpoint: str
    lingering: bool
    snapshot: NodeSnapshot | None = None
    instance: str = ""
    last_seen_ms: int = 0
    sequence: int | None = None
    lowered: Totals = field(default_factory=Totals)
    api_labels: Mapping[str, str] = field(default_factory=dict)
    reported_labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def labels(self) -> Mapping[str, str]:
        """Those in force: what the API tells comes before what the node reports."""
        return {**self.reported_labels, **self.api_labels}

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
