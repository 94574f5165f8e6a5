"""The shapes of answers, for the OpenAPI document; tests compare real answers with them.

`scheduler/api/views.py` builds the same shapes as plain mappings, because validating our own answers would cost more
than the request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from scheduler.domain.placement import Strategy


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NodeAddressAnswer(Answer):
    node_id: str
    endpoint: str


class PendingAnswer(Answer):
    """What reservations hold on the node beyond its own report."""

    cpu_count: int
    memory_bytes: int
    sandbox_count: int


class PressureAnswer(Answer):
    """Projected load divided by effective capacity; null where the capacity is unknown."""

    cpu: float | None
    memory: float | None
    highest: float | None


Status = Literal["ready", "connecting", "unhealthy", "lingering"]
StrategyName = Annotated[str, Field(json_schema_extra={"enum": [strategy.value for strategy in Strategy]})]


class ReservationAnswer(Answer):
    reservation_id: str
    node_id: str
    state: Literal["pending", "confirmed", "settled", "cancelled", "expired"]
    lifecycle: Literal["explicit", "heartbeat"]
    cpu_count: int = Field(description="as asked; 0 when not stated")
    memory_bytes: int
    sandbox_id: str | None
    created_at_ms: int
    expires_at_ms: int
    confirmed_at_ms: int | None
    finished_at_ms: int | None
    reason: str | None = Field(description="why it ended, when it did")
    group_key: str | None
    resources: dict[str, int] = Field(description="as asked, beside CPUs and memory")


class DecisionAnswer(Answer):
    node: NodeAddressAnswer
    strategy: StrategyName
    replayed: bool = Field(description="the answer of an earlier call with the same key")
    degraded: bool = Field(description="no candidate was fresh: the last resort")
    reservation: ReservationAnswer | None
    warnings: list[str] = Field(default_factory=list, description="what `request` held that was not read")


class PlacedAnswer(Answer):
    index: int = Field(description="place in the request, from 0")
    node: NodeAddressAnswer
    degraded: bool = Field(description="no candidate was fresh: the last resort")
    reservation: ReservationAnswer


class RefusedAnswer(Answer):
    index: int
    reasons: dict[str, int] = Field(description="why, and of how many nodes")


class BatchAnswer(Answer):
    placed: list[PlacedAnswer]
    refused: list[RefusedAnswer]
    strategy: StrategyName
    replayed: bool = Field(description="decided by an earlier call with the same key; shown as it is now")


class OverLimitAnswer(Answer):
    limit: str
    current: int = Field(description="what is on the node, in the limit's unit")
    pending: int = Field(description="what reservations hold there")
    requested: int
    maximum: int


class LabelMismatchAnswer(Answer):
    label: str
    asked: list[str]
    found: str | None = Field(description="null: the node has no such label")


class NodeExplanationAnswer(Answer):
    node_id: str
    status: Status
    rank: int | None = Field(description="0 is first")
    reason: str | None = Field(description="why it was left out")
    pressure: PressureAnswer
    pending: PendingAnswer
    over_limit: OverLimitAnswer | None = Field(description="which limit, when that is the reason")
    label: LabelMismatchAnswer | None = Field(description="which label, when that is the reason")


class ExplanationAnswer(Answer):
    strategy: StrategyName
    node: NodeAddressAnswer | None = Field(description="null: the request would be refused")
    degraded: bool
    nodes: list[NodeExplanationAnswer]
    reasons: dict[str, int]
    over_limit: OverLimitAnswer | None = Field(description="the commonest limit, when it would be refused for one")
    cursor: str | None
    warnings: list[str] = Field(default_factory=list, description="what `request` held that was not read")


class ReservationResultAnswer(Answer):
    reservation: ReservationAnswer | None = Field(description="null: a cancel by key that came before its schedule")
    replayed: bool = Field(description="the call had already taken effect")
    orphaned: bool = Field(description="confirmed after it expired")


class ReservationsAnswer(Answer):
    reservations: list[ReservationAnswer]
    cursor: str | None


class DiskAnswer(Answer):
    mount_point: str
    device: str
    filesystem_type: str
    used_bytes: int
    total_bytes: int


class SnapshotAnswer(Answer):
    status: Status
    cpu_count: int
    memory_total_bytes: int
    allocated_cpu: int
    allocated_memory_bytes: int
    paused_allocated_cpu: int
    paused_allocated_memory_bytes: int
    cpu_percent: int
    memory_used_bytes: int
    sandbox_count: int
    sandbox_starting_count: int
    paused_sandbox_count: int
    create_successes: int
    create_fails: int
    reported_at_unix_ms: int
    disks: list[DiskAnswer]


class MachineInfoAnswer(Answer):
    cpu_family: str
    cpu_model: str
    cpu_model_name: str
    cpu_architecture: str
    cpu_config_json: str


class P2pEndpointAnswer(Answer):
    backend: str
    address: str


class ResourceAnswer(Answer):
    total: int = Field(description="what the node has; -1: not known")
    allocated: int = Field(description="what sandboxes use of it, as the node reports")
    pending: int = Field(description="what reservations hold")


class NodeAnswer(Answer):
    node_id: str
    endpoint: str
    cluster_id: str
    service_instance_id: str
    version: str
    commit: str
    labels: dict[str, str] = Field(description="those in force, of all sources")
    resources: dict[str, ResourceAnswer] = Field(
        description="disk and those that the settings list, as far as they are known"
    )
    discovery: Literal["active", "lingering"]
    status: Status
    last_seen_ms: int | None = Field(description="null: it never reported")
    generation: int
    snapshot: SnapshotAnswer
    machine_info: MachineInfoAnswer | None
    p2p_endpoint: P2pEndpointAnswer | None
    pending: PendingAnswer
    pressure: PressureAnswer
    cordoned: bool = Field(description="its present process is cordoned: it drains until it is uncordoned or replaced")
    eligible: bool
    ineligible_reason: str | None


class NodesAnswer(Answer):
    nodes: list[NodeAnswer | dict[str, Any]] = Field(
        description="whole ones, or `node_id` and the members that `fields` names"
    )
    cursor: str | None


class ListedNodeAnswer(Answer):
    node_id: str
    endpoint: str
    state: Literal["active", "lingering"]


class ListedNodesAnswer(Answer):
    active: int
    lingering: int


class CordonAnswer(Answer):
    node_id: str
    service_instance_id: str
    cordoned: bool = Field(description="whether nothing new is placed on it")


class NodeGoneAnswer(Answer):
    node_id: str
    removed: bool = Field(description="true: no longer listed; false: only its report and bindings are forgotten")


class HeartbeatAnswer(Answer):
    generation: int
    cpu_config_json: str
    stale: bool


class EventsAnswer(Answer):
    counted: int = Field(description="events that were new")


class BindingAnswer(Answer):
    sandbox_id: str
    node: NodeAddressAnswer


class TemplateAnswer(Answer):
    template_id: str
    cpu_count: int
    memory_mb: int
    source: str = Field(description="declared or learned")


class TemplatesAnswer(Answer):
    templates: list[TemplateAnswer]
    cursor: str | None


class DeletedAnswer(Answer):
    deleted: str


class GroupAnswer(Answer):
    key: str
    node_id: str
    sandbox_count: int
    cpu_count: int
    memory_mb: int
    max_sandbox_count: int
    max_cpu_count: int
    max_memory_mb: int
    opened_at_ms: int
    sequence: int


class GroupsAnswer(Answer):
    total: int
    groups: list[GroupAnswer]
    cursor: str | None


class ColdHintAnswer(Answer):
    kind: Literal["cold_sandbox"]
    cpu_count: int
    memory_mb: int
    images: list[str]
    metadata: dict[str, str]


class TemplateHintAnswer(Answer):
    kind: Literal["sandbox"]
    template_id: str
    metadata: dict[str, str]


class HintAnswer(Answer):
    hint: ColdHintAnswer | TemplateHintAnswer | None
    warnings: list[str]


class PeerAnswer(Answer):
    node_id: str
    endpoint: P2pEndpointAnswer


class PeersAnswer(Answer):
    peers: list[PeerAnswer]


class ArtifactAnswer(Answer):
    cluster_id: str
    backend: str
    key: str
    node_id: str


class ReplicaAnswer(Answer):
    replica_id: str = Field(description="as configured, or generated when it started")
    expires_at_ms: int = Field(description="when its last keepalive expires, in the ledger's time")


class ReplicasAnswer(Answer):
    replicas: list[ReplicaAnswer] = Field(description="those that are alive, in id order")
    now_ms: int = Field(description="the ledger's time")


class SettingsAnswer(Answer):
    domain: str = Field(description="which ledger")
    revision: int = Field(description="of the configuration that wrote them; the highest wins")
    epoch: str = Field(description="the random id of this ledger; an emptied one gets a new id")
    rebuilding: bool = Field(description="the ledger was lost, and what is missing may come back")
    clock_skew_ms: int = Field(description="how far the ledger's time is ahead of its server's clock")
    settings: dict[str, Any] = Field(description="by name; durations in milliseconds, null where there is no limit")
    sources: dict[str, Any] = Field(description="by the same names: `default`, or `configuration` where it differs")


class PastDecisionAnswer(Answer):
    instant_ms: int = Field(description="when it was made, in the ledger's time")
    outcome: Literal["placed", "refused"] = Field(description="whether a node was chosen")
    reason: str | None = Field(description="of a refusal: the reason that kept most nodes out")
    reasons: dict[str, int] = Field(description="of a refusal: nodes by the first reason that kept each out")
    over_limit: OverLimitAnswer | None = Field(description="of a refusal: the commonest limit")
    hint: dict[str, Any] | None = Field(description="what was asked for; long texts are cut")
    node_id: str | None = Field(description="the node that was chosen")
    reservation_id: str | None = Field(description="what holds the capacity")
    degraded: bool
    caller: str = Field(description="the name of the caller's API key")
    request_id: str
    strategy: str = Field(description="the strategy in force")


class PastDecisionsAnswer(Answer):
    decisions: list[PastDecisionAnswer] = Field(description="newest first")
    cursor: str | None


class ActAnswer(Answer):
    instant_ms: int = Field(description="when, in the ledger's time")
    actor: str = Field(description="the name of the API key, or of the replica for its settings")
    act: str = Field(description="what was done: node.put, nodes.replace, node.remove, node.cordon, settings.put, …")
    subject: str = Field(description="to what: an id")
    details: dict[str, Any] = Field(description="how")


class AuditAnswer(Answer):
    acts: list[ActAnswer] = Field(description="newest first")
    cursor: str | None


class LedgerAnswer(Answer):
    epoch: str = Field(description="the random id of this ledger; an emptied one gets a new id")
    rebuilding: bool = Field(description="the ledger was lost, and what is missing may come back")
    clock_skew_ms: int = Field(description="how far the ledger's time is ahead of its server's clock")


class AmountAnswer(Answer):
    """Of the nodes that take creations and say what they have."""

    cpu_count: int
    memory_bytes: int


class LargestFreeAnswer(Answer):
    """On one node, each for itself; null where the capacity is not known."""

    cpu_count: int | None = Field(description="the most CPUs that are free on one node")
    memory_bytes: int | None = Field(description="the most memory that is free on one node")


class RatesAnswer(Answer):
    placed: float = Field(description="sandboxes placed")
    refused: dict[str, float] = Field(description="requests refused, by the reason that kept most nodes out")


class SummaryAnswer(Answer):
    domain: str = Field(description="which ledger")
    strategy: StrategyName = Field(description="the strategy in force")
    settings_revision: int = Field(description="of the settings in force")
    ledger: LedgerAnswer = Field(description="the ledger itself")
    now_ms: int = Field(description="the ledger's time")
    replicas: list[str] = Field(description="the ids of those that are alive")
    nodes: dict[str, int] = Field(description="how many there are, by status")
    capacity: AmountAnswer = Field(description="after overcommit")
    allocated: AmountAnswer = Field(description="reported as allocated, to paused sandboxes as well")
    reserved: AmountAnswer = Field(description="held by reservations beyond the reports")
    free: AmountAnswer = Field(description="what capacity and limits leave")
    largest_free: dict[str, LargestFreeAnswer] = Field(description="by class of node: its size, and its labels")
    reservations: dict[str, int] = Field(description="how many there are, by state; finished ones while readable")
    oldest_pending_ms: int | None = Field(description="when the oldest pending one was made; null: none is pending")
    waiting: int = Field(description="requests that wait for capacity")
    rates: RatesAnswer = Field(description="per second, over the last minute")


class HealthAnswer(Answer):
    status: Literal["ok"]


class ReadyAnswer(Answer):
    status: Literal["ready"]
    settings: dict[str, Any]


class FieldErrorAnswer(Answer):
    field: str
    found: Any
    allowed: str


class ProblemAnswer(BaseModel):
    """RFC 9457, with a stable `code`; further members depend on the code."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldErrorAnswer] | None = None
    reservation: ReservationAnswer | None = None
    candidates: int | None = None
    reasons: dict[str, int] | None = None
    over_limit: OverLimitAnswer | None = None
