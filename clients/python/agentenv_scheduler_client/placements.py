"""Placement: what a gateway asks, and what the scheduler answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

from agentenv_scheduler_client.nodes import NodeAddress, NodeStatus, PendingTotals, Pressure
from agentenv_scheduler_client.reading import OpenEnum, Unreadable, body_of, read
from agentenv_scheduler_client.reservations import Lifecycle, Reservation

# So many nodes a request may exclude.
EXCLUDED_MAX = 64


class Strategy(OpenEnum):
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOADED = "least_loaded"
    GROUPED_ROUND_ROBIN = "grouped_round_robin"
    MOST_LOADED = "most_loaded"


@dataclass(frozen=True, slots=True)
class Spread:
    """Sandboxes with one `key` spread over nodes, or over the values of a label: at most `max` in one place, or at most
    `skew` more than in the place with fewest; one of the two. The key is any text, such as a tenant's name: the same
    text is the same key, whoever asks."""

    key: str
    over: str = "node"
    max: int | None = None
    skew: int | None = None


@dataclass(frozen=True, slots=True)
class ColdSandbox:
    """A sandbox from an image. 0 means not stated; memory is in MiB.

    `locality` holds keys of artifacts: nodes that have most of them are preferred. `resources`, `require` (label →
    text or texts) and `spread` bind under every strategy; a server that does not know them refuses the request."""

    kind: ClassVar[str] = "cold_sandbox"

    cpu_count: int = 0
    memory_mb: int = 0
    images: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    locality: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    require: Mapping[str, Any] = field(default_factory=dict)
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class TemplateSandbox:
    """A sandbox from a template. Its size is the template's, where the scheduler knows it."""

    kind: ClassVar[str] = "sandbox"

    template_id: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    locality: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    require: Mapping[str, Any] = field(default_factory=dict)
    spread: Spread | None = None


Hint = ColdSandbox | TemplateSandbox


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A sandbox API request as a gateway received it; the scheduler reads the hint from it. Its body as JSON (`body`)
    or exactly as it came (`body_text`). `strict` reads it as AgentENV's own gateway does: all or nothing."""

    method: str
    path: str
    body: Any = None
    body_text: str | None = None
    strict: bool | None = None


class RequestOptions(TypedDict, total=False):
    """`lifecycle` heartbeat: nobody will confirm. `exclude_nodes`: at most 64 ids that must not be chosen.
    `sandbox_id`: the caller names the sandbox itself; the first report that lists it settles the reservation."""

    lifecycle: Lifecycle
    reservation_ttl_seconds: float | None
    exclude_nodes: tuple[str, ...]
    sandbox_id: str | None


class ScheduleOptions(RequestOptions, total=False):
    """`idempotency_key`: 1 to 255 visible ASCII characters; without one the client makes one for each call."""

    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """`reservation` None: it was no creation. `replayed`: an earlier answer to the same key. `degraded`: no node was
    fresh, and an unhealthy one is named as the last resort. `warnings`: what an `ApiRequest` held that was not read."""

    node: NodeAddress
    strategy: Strategy
    replayed: bool = False
    degraded: bool = False
    reservation: Reservation | None = None
    warnings: tuple[str, ...] = ()


class BatchOptions(TypedDict, total=False):
    """The options of a single schedule, for a batch. `all_or_none`: reserve nothing unless every creation fits; then
    NoNodes is raised."""

    all_or_none: bool
    lifecycle: Lifecycle
    reservation_ttl_seconds: float | None
    exclude_nodes: tuple[str, ...]
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Creation:
    """One sandbox of a batch. `sandbox_id`: the caller names it itself; no two of a batch have the same."""

    hint: Hint
    sandbox_id: str | None = None


@dataclass(frozen=True, slots=True)
class BatchPlacement:
    """One creation that has a node; `index` is its place in the batch, from 0."""

    index: int
    node: NodeAddress
    reservation: Reservation
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class BatchRefusal:
    """One creation that no node can take: how many nodes gave each reason, and what keeps most out."""

    index: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    over_limit: OverLimit | None = None


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """`replayed`: decided by an earlier call with the same key; the reservations are as they are now."""

    placed: tuple[BatchPlacement, ...]
    refused: tuple[BatchRefusal, ...]
    strategy: Strategy
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class OverLimit:
    """What `current + pending + requested` exceeds, in its own unit: a limit, a capacity, or what a spread allows."""

    limit: str
    current: int
    pending: int
    requested: int
    maximum: int


@dataclass(frozen=True, slots=True)
class LabelMismatch:
    """A label that the request requires; `found` None: the node does not have it."""

    label: str
    asked: tuple[str, ...] = ()
    found: str | None = None


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Where one node stands: its rank (0 is first), or the reason why it is out. `pressure` includes the request."""

    node_id: str
    status: NodeStatus
    rank: int | None = None
    reason: str | None = None
    pressure: Pressure = field(default_factory=Pressure)
    pending: PendingTotals = field(default_factory=PendingTotals)
    over_limit: OverLimit | None = None
    label: LabelMismatch | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`node` None: the request would be refused, and `reasons` counts why."""

    strategy: Strategy
    node: NodeAddress | None
    degraded: bool = False
    nodes: tuple[NodeExplanation, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    over_limit: OverLimit | None = None
    warnings: tuple[str, ...] = ()
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class HintReading:
    """`hint` None: the request creates no sandbox, or one of a kind that this version of the client does not know;
    `warnings` then says so."""

    hint: Hint | None
    warnings: tuple[str, ...] = ()


def schedule_body(what: Hint | ApiRequest | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a schedule or explain; `options` are RequestOptions."""
    body: dict[str, Any] = {}
    if isinstance(what, ApiRequest):
        body["request"] = body_of(what)
    elif what is not None:
        body["hint"] = {"kind": what.kind, **body_of(what)}
    if (lifecycle := options.get("lifecycle", Lifecycle.EXPLICIT)) != Lifecycle.EXPLICIT:
        body["lifecycle"] = str(lifecycle)
    if (ttl_seconds := options.get("reservation_ttl_seconds")) is not None:
        body["reservation_ttl"] = duration(ttl_seconds)
    if excluded := options.get("exclude_nodes"):
        body["exclude_nodes"] = list(excluded)
    if (sandbox_id := options.get("sandbox_id")) is not None:
        body["sandbox_id"] = sandbox_id
    return body


def batch_body(creations: Sequence[Creation], options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a batch; `options` are BatchOptions. What is asked for many times is written once."""
    body = schedule_body(None, options)
    if options.get("all_or_none"):
        body["all"] = True
    first = creations[0] if creations else None
    if first is not None and first.sandbox_id is None and all(each == first for each in creations):
        return body | schedule_body(first.hint, {}) | {"count": len(creations)}
    requests = [schedule_body(each.hint, {"sandbox_id": each.sandbox_id}) for each in creations]
    return body | {"requests": requests}


def read_hint(answer: Any) -> HintReading:
    if not isinstance(answer, dict) or not isinstance(told := answer.get("hint", {}), dict | None):
        raise Unreadable("no hint")
    warnings = tuple(str(each) for each in answer.get("warnings", ()))
    if told is None:
        return HintReading(None, warnings)
    if (kind := told.get("kind")) == ColdSandbox.kind:
        return HintReading(read(ColdSandbox, told), warnings)
    if kind == TemplateSandbox.kind:
        return HintReading(read(TemplateSandbox, told), warnings)
    return HintReading(None, (*warnings, f"a hint of kind {kind}, which this client does not know"))


def duration(seconds: float) -> str:
    """A duration as the API writes it, in whole milliseconds; one above 0 never becomes 0."""
    return f"{max(round(seconds * 1000), 1 if seconds > 0 else 0)}ms"
