"""What the ledger keeps beside nodes and reservations: events, bindings, templates, groups, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentenv_scheduler_client.nodes import NodeAddress, P2pEndpoint
from agentenv_scheduler_client.placements import OverLimit
from agentenv_scheduler_client.reading import OTHERS, OpenEnum


class SandboxEventType(OpenEnum):
    CREATE = "create"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class SandboxEvent:
    """What happened to a sandbox on its node. A fork is told once for each child, with the child's id and size."""

    sandbox_id: str
    event_type: SandboxEventType
    requested_cpu: int = 0
    requested_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a sandbox runs."""

    sandbox_id: str
    node: NodeAddress


@dataclass(frozen=True, slots=True)
class Template:
    """What creating from a template takes; 0 is not known. `source`: declared or learned."""

    template_id: str
    cpu_count: int
    memory_mb: int
    source: str = "declared"


@dataclass(frozen=True, slots=True)
class TemplatePage:
    templates: tuple[Template, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """Requests with this key join `node_id` until a budget is used up; a budget of 0 is none."""

    key: str
    node_id: str
    sandbox_count: int = 0
    cpu_count: int = 0
    memory_mb: int = 0
    max_sandbox_count: int = 0
    max_cpu_count: int = 0
    max_memory_mb: int = 0
    opened_at_ms: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class GroupPage:
    total: int
    groups: tuple[PlacementGroup, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class WarmKey:
    """An image (`image:…`) or template (`template:…`); the higher `sequence`, the later it was given."""

    key: str
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class WarmNode:
    """What a node was given last, the latest first."""

    node_id: str
    keys: tuple[WarmKey, ...] = ()


@dataclass(frozen=True, slots=True)
class WarmPage:
    """`slack`: affinity.slack in force; None is off."""

    slack: float | None
    nodes: tuple[WarmNode, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A blob that nodes serve each other."""

    cluster_id: str
    backend: str
    key: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A ready node that can serve an artifact, and where."""

    node_id: str
    endpoint: P2pEndpoint


@dataclass(frozen=True, slots=True)
class Peers:
    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class RedisReplicas:
    """Nothing is placed while fewer Redis replicas are online than wanted."""

    online: int
    wanted: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """`settings`: what the ledger is run with, as the replica tells it. `redis_replicas`: None where placements
    wait for none."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    redis_replicas: RedisReplicas | None = None


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """What one replica is configured with. A source is `default`, `option`, `environment NAME`, `file NAME` or
    `image NAME`."""

    replica_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all replicas agree on. `settings` is by name: durations in milliseconds, None where there is no limit.
    `sources` is by the same names: `default`, or `configuration` where it differs. `replica`: the one that answered."""

    domain: str
    revision: int = 0
    epoch: str = ""
    rebuilding: bool = False
    clock_skew_ms: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)
    replica: OwnSettings | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """`expires_at_ms`: until when its last keepalive counts, in the ledger's time."""

    replica_id: str
    expires_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Replicas:
    """`now_ms` is the ledger's time."""

    replicas: tuple[Replica, ...]
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Amount:
    """None: not known. `resources`: of further ones, by name."""

    cpu_count: int | None = 0
    memory_bytes: int | None = 0
    resources: Mapping[str, int] = field(default_factory=dict, metadata=OTHERS)


@dataclass(frozen=True, slots=True)
class LedgerState:
    epoch: str = ""
    rebuilding: bool = False
    clock_skew_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, over the last minute; refusals by reason."""

    placed: float = 0.0
    refused: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole ledger on one page: nodes by status, reservations by state (those that there are), and how full the
    nodes are that take creations. `largest_free` is what one node has, by class. `oldest_pending_ms`: when the oldest
    pending reservation was made, on the ledger's clock, whose time is `now_ms`."""

    domain: str
    strategy: str = ""
    settings_revision: int = 0
    ledger: LedgerState = field(default_factory=LedgerState)
    now_ms: int = 0
    replicas: tuple[str, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    capacity: Amount = field(default_factory=Amount)
    allocated: Amount = field(default_factory=Amount)
    reserved: Amount = field(default_factory=Amount)
    free: Amount = field(default_factory=Amount)
    largest_free: Mapping[str, Amount] = field(default_factory=dict)
    reservations: Mapping[str, int] = field(default_factory=dict)
    oldest_pending_ms: int | None = None
    waiting: int = 0
    rates: Rates = field(default_factory=Rates)


@dataclass(frozen=True, slots=True)
class PastDecision:
    """`outcome`: placed or refused. `over_limit`: what kept most nodes out. `hint` is what was asked for, long texts
    cut; None: ordinary routing."""

    instant_ms: int
    outcome: str
    reason: str | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    over_limit: OverLimit | None = None
    hint: Mapping[str, Any] | None = None
    node_id: str | None = None
    reservation_id: str | None = None
    degraded: bool = False
    caller: str = ""
    request_id: str = ""
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class DecisionPage:
    decisions: tuple[PastDecision, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """`actor` did `act` to `subject`."""

    instant_ms: int
    actor: str
    act: str
    subject: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditPage:
    acts: tuple[Act, ...]
    cursor: str | None = None
