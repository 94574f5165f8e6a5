"""Placement requests and their decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.domain.node import NodeAddress, NodeStatus, PendingTotals, Pressure
from scheduler.domain.reservation import Lifecycle, Reservation


class Strategy(StrEnum):
    """How a node is chosen. What each one does stands in lua/include/strategies.lua."""

    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOADED = "least_loaded"
    GROUPED_ROUND_ROBIN = "grouped_round_robin"
    MOST_LOADED = "most_loaded"

    @classmethod
    def _missing_(cls, value: object) -> Strategy | None:
        """Other spellings, on input."""
        return cls.MOST_LOADED if value == "binpack" else None

    @property
    def forms_groups(self) -> bool:
        """Requests with one key stay together, within a budget that must be configured."""
        return self is Strategy.GROUPED_ROUND_ROBIN

    @property
    def admits(self) -> bool:
        """Whether it admits by capacity whatever the setting `admission` says."""
        return self in {Strategy.LEAST_LOADED, Strategy.MOST_LOADED}


class HintKind(StrEnum):
    COLD_SANDBOX = "cold_sandbox"
    SANDBOX = "sandbox"


OVER_NODES = "node"


@dataclass(frozen=True, slots=True)
class Spread:
    """Sandboxes with one `key` are spread over places: nodes (`over` "node"), or all nodes with one value of the label
    `over`. Exactly one of `max`, the most in one place, and `skew`, the most there above the place with fewest."""

    key: str
    over: str = OVER_NODES
    max: int | None = None
    skew: int | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known about the sandbox to create. 0 and "" mean "not stated"; memory is in MiB.

    `locality` holds artifact keys; nodes that hold most of them are preferred (advisory). `require`: label → the
    values of which the node must have one. `resources`: amounts beside CPUs and memory, by name."""

    kind: HintKind
    cpu_count: int = 0
    memory_mb: int = 0
    images: tuple[str, ...] = ()
    template_id: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    locality: tuple[str, ...] = ()
    require: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """`hint` None is ordinary routing: a node is chosen and nothing reserved.

    `sandbox_id` names the new sandbox; None lets the node choose the id. `reservation_ttl_ms` None uses the ledger's
    `placement_reservation_ttl`. `idempotency_key` is the caller's; `caller` is the name of its API key, `anonymous`
    without keys."""

    hint: Hint | None = None
    lifecycle: Lifecycle = Lifecycle.EXPLICIT
    reservation_ttl_ms: int | None = None
    exclude_nodes: tuple[str, ...] = ()
    idempotency_key: str | None = None
    caller: str = "anonymous"
    request_id: str = ""
    sandbox_id: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`degraded`: no candidate was fresh, so an unhealthy node was chosen as the last resort."""

    node: NodeAddress
    strategy: Strategy
    replayed: bool = False
    degraded: bool = False
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Creations that are placed in one step. They have the same lifecycle, TTL, excluded nodes, caller and request id;
    the idempotency key is the batch's. `all_or_none`: reserve nothing unless every one fits."""

    requests: tuple[ScheduleRequest, ...]
    all_or_none: bool = False
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """One creation of a batch; `index` is its place in the request."""

    index: int
    node: NodeAddress
    reservation: Reservation
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """One creation of a batch that no node can take: how many nodes gave each reason, and what keeps most out."""

    index: int
    reasons: Mapping[str, int]
    over_limit: OverLimit | None = None


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """`replayed`: this was decided by an earlier call; what has ended since is shown as it is now."""

    placed: tuple[Placed, ...]
    refused: tuple[Refused, ...]
    strategy: Strategy
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class OverLimit:
    """What `current + pending + requested` exceeds, in its own unit: a limit of `node_resource_limit`, the capacity
    of a node (`cpu_count`, `memory_bytes`, the name of a further resource), or `spread`, where
    `current` counts all that is there."""

    limit: str
    current: int
    pending: int
    requested: int
    maximum: int


@dataclass(frozen=True, slots=True)
class LabelMismatch:
    """A label that the request requires; `found` None: the node does not have it."""

    label: str
    asked: tuple[str, ...]
    found: str | None


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Why one node is where it is: its rank (0 is first), or the reason why it is excluded. `pressure` is projected
    with the request on it; `over_limit` comes with `over_limit`, `insufficient_…`, `too_large` and
    `spread`, `label` with the reason of that name."""

    node_id: str
    status: NodeStatus
    rank: int | None
    reason: str | None
    pressure: Pressure
    pending: PendingTotals
    over_limit: OverLimit | None = None
    label: LabelMismatch | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`node` None: the request would be refused, and `reasons` counts why; `over_limit` is what keeps most nodes out,
    in figures. `nodes` in id order: all of them, or one page, and then the `cursor` of the next (None at the end)."""

    strategy: Strategy
    node: NodeAddress | None
    degraded: bool
    nodes: tuple[NodeExplanation, ...]
    reasons: Mapping[str, int] = field(default_factory=dict)
    over_limit: OverLimit | None = None
    cursor: str | None = None
