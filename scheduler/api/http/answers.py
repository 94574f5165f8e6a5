"""The shapes of answers that several nouns share, and those of placing, for the OpenAPI document; a noun's own stand in
its file in `routes`. Tests compare real answers with them.

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


class OverLimitAnswer(Answer):
    """What current + pending + requested exceeds, on one of the nodes that it keeps out."""

    limit: str = Field(
        description="a name of node_resource_limit, cpu_count, memory_bytes, a further resource, or spread"
    )
    current: int = Field(description="what is on the node, in the limit's unit")
    pending: int = Field(description="what reservations hold there")
    requested: int
    maximum: int


class RefusedAnswer(Answer):
    index: int
    reasons: dict[str, int] = Field(description="why, and of how many nodes")
    over_limit: OverLimitAnswer | None = Field(description="what keeps most nodes out, in figures")


class BatchAnswer(Answer):
    placed: list[PlacedAnswer]
    refused: list[RefusedAnswer]
    strategy: StrategyName
    replayed: bool = Field(description="decided by an earlier call with the same key; shown as it is now")


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
    over_limit: OverLimitAnswer | None = Field(description="what it lacks or exceeds, in figures")
    label: LabelMismatchAnswer | None = Field(description="which label, when that is the reason")


class ExplanationAnswer(Answer):
    strategy: StrategyName
    node: NodeAddressAnswer | None = Field(description="null: the request would be refused")
    degraded: bool
    nodes: list[NodeExplanationAnswer]
    reasons: dict[str, int]
    over_limit: OverLimitAnswer | None = Field(
        description="when it would be refused: what keeps most nodes out, in figures"
    )
    cursor: str | None
    warnings: list[str] = Field(default_factory=list, description="what `request` held that was not read")


class P2pEndpointAnswer(Answer):
    backend: str
    address: str


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
