"""Schedule, explain, and reading a sandbox API request as a hint."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header
from pydantic import ConfigDict, Field, JsonValue

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import BatchAnswer, DecisionAnswer, ExplanationAnswer, HintAnswer
from scheduler.api.http.fields import (
    PAGE_MAX,
    BatchCount,
    Body,
    Duration,
    Id,
    IdCursor,
    Label,
    PageLimit,
    Require,
    Resources,
    SandboxCpu,
    SandboxMemoryMb,
    SpreadBound,
    duration_ms,
)
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import batch_view, decision_view, explanation_view, hint_view
from scheduler.domain.limits import (
    BATCH_MAX,
    EXCLUDED_NODES_MAX,
    IDEMPOTENCY_KEY_MAX,
    IMAGES_MAX,
    LOCALITY_KEYS_MAX,
)
from scheduler.domain.placement import OVER_NODES, BatchRequest, Hint, HintKind, ScheduleRequest, Spread
from scheduler.domain.reservation import Lifecycle
from scheduler.errors import FieldError, InvalidRequest
from scheduler.service.hints import HintReading, HintService

router = noun_router("placing")


def required_values(require: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {label: tuple(values) for label, values in require.items()}


def _either(first: str, second: str, apart: tuple[str, ...] = ()) -> dict[str, Any]:
    """A schema for the document: exactly one of the two is given, and none of `apart` with the second; null counts as
    absent."""
    given, absent = {"not": {"type": "null"}}, {"type": "null"}
    return {
        "oneOf": [
            {"required": [first], "properties": {first: given, second: absent}},
            {"required": [second], "properties": {second: given, **dict.fromkeys((first, *apart), absent)}},
        ]
    }


class SpreadBody(Body):
    """Sandboxes with one key are spread over nodes, or over values of a label; the place with fewest comes first."""

    model_config = ConfigDict(json_schema_extra=_either("max", "skew"))

    key: Id
    over: Label = OVER_NODES
    max: SpreadBound | None = None
    skew: SpreadBound | None = None

    def as_spread(self) -> Spread:
        return Spread(self.key, self.over, self.max, self.skew)


class ColdSandboxHint(Body):
    """A sandbox from an image. 0 means not stated; memory is in MiB."""

    kind: Literal["cold_sandbox"]
    cpu_count: SandboxCpu = 0
    memory_mb: SandboxMemoryMb = 0
    images: list[str] = Field(default_factory=list, max_length=IMAGES_MAX)
    metadata: dict[str, str] = Field(default_factory=dict)
    locality: list[str] = Field(default_factory=list, max_length=LOCALITY_KEYS_MAX)
    require: Require = Field(default_factory=dict)
    resources: Resources = Field(default_factory=dict)
    spread: SpreadBody | None = None

    def as_hint(self) -> Hint:
        return Hint(
            HintKind.COLD_SANDBOX,
            cpu_count=self.cpu_count,
            memory_mb=self.memory_mb,
            images=tuple(self.images),
            metadata=self.metadata,
            locality=tuple(self.locality),
            require=required_values(self.require),
            resources=self.resources,
            spread=None if self.spread is None else self.spread.as_spread(),
        )


class SandboxHint(Body):
    """A sandbox from a template."""

    kind: Literal["sandbox"]
    template_id: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    locality: list[str] = Field(default_factory=list, max_length=LOCALITY_KEYS_MAX)
    require: Require = Field(default_factory=dict)
    resources: Resources = Field(default_factory=dict)
    spread: SpreadBody | None = None

    def as_hint(self) -> Hint:
        return Hint(
            HintKind.SANDBOX,
            template_id=self.template_id,
            metadata=self.metadata,
            locality=tuple(self.locality),
            require=required_values(self.require),
            resources=self.resources,
            spread=None if self.spread is None else self.spread.as_spread(),
        )


def _not_both(first: str, second: str) -> dict[str, Any]:
    """A schema for the document: at most one of the two is given; null counts as absent."""
    given = {"not": {"type": "null"}}
    return {"not": {"required": [first, second], "properties": {first: given, second: given}}}


class SandboxApiRequest(Body):
    """A sandbox API request as a gateway received it, its body as JSON or as the exact text."""

    model_config = ConfigDict(json_schema_extra=_not_both("body", "body_text"))

    method: str
    path: str
    body: JsonValue = None
    body_text: str | None = None
    strict: bool | None = None

    def read(self, hints: HintService) -> HintReading:
        if self.body is not None and self.body_text is not None:
            raise InvalidRequest(
                "body and body_text exclude each other", [FieldError("body_text", "both", "only one of the two")]
            )
        text = self.body_text or ""
        if self.body is not None:
            text = HintService.body_text(self.body)
        return hints.read(self.method, self.path, text, self.strict)


class ScheduleBody(Body):
    """Without `hint` and `request` this is ordinary routing: a node is chosen and nothing is reserved.

    `sandbox_id` names the new sandbox: 409 while another reservation or sandbox has this id, or had it lately."""

    model_config = ConfigDict(json_schema_extra=_not_both("hint", "request"))

    hint: Annotated[ColdSandboxHint | SandboxHint, Field(discriminator="kind")] | None = None
    request: SandboxApiRequest | None = None
    lifecycle: Literal["explicit", "heartbeat"] = "explicit"
    reservation_ttl: Duration | None = None
    exclude_nodes: list[Id] = Field(default_factory=list, max_length=EXCLUDED_NODES_MAX)
    sandbox_id: Id | None = None


class BatchItem(Body):
    hint: Annotated[ColdSandboxHint | SandboxHint, Field(discriminator="kind")]
    sandbox_id: Id | None = None


class BatchBody(Body):
    """Either `hint` and how often (`count`), or `requests`. `all`: reserve nothing unless every one fits."""

    model_config = ConfigDict(json_schema_extra=_either("hint", "requests", apart=("count",)))

    count: BatchCount | None = None
    hint: Annotated[ColdSandboxHint | SandboxHint, Field(discriminator="kind")] | None = None
    requests: Annotated[list[BatchItem], Field(min_length=1, max_length=BATCH_MAX)] | None = None
    all: bool = False
    lifecycle: Literal["explicit", "heartbeat"] = "explicit"
    reservation_ttl: Duration | None = None
    exclude_nodes: list[Id] = Field(default_factory=list, max_length=EXCLUDED_NODES_MAX)

    def items(self) -> list[BatchItem]:
        if (self.hint is None) == (self.requests is None):
            raise InvalidRequest(
                "a batch has either hint and count, or requests", [FieldError("hint", "both or none", "one of the two")]
            )
        if self.hint is not None:
            return [BatchItem(hint=self.hint)] * (self.count or 1)
        if self.count is not None:
            raise InvalidRequest(
                "count goes with hint", [FieldError("count", str(self.count), "nothing: requests are counted")]
            )
        return self.requests or []


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        json_schema_extra={"minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[!-~]+$"},
    ),
]


@router.post("/v1/schedule", response_model=DecisionAnswer, summary="Choose a node and reserve on it")
@reach(FOR_GATEWAYS)
async def schedule_sandbox(call: Call, body: ScheduleBody | None = None, idempotency_key: IdempotencyKey = None) -> Any:
    request, warnings = _schedule_request(call, body, idempotency_key)
    view = decision_view(await call.services.placement.schedule(request))
    view.update(warnings)
    return view


@router.post("/v1/schedule/batch", response_model=BatchAnswer, summary="Place many sandboxes in one step")
@reach(FOR_GATEWAYS)
async def schedule_batch(call: Call, body: BatchBody, idempotency_key: IdempotencyKey = None) -> Any:
    ttl_ms = None if body.reservation_ttl is None else duration_ms(body.reservation_ttl)
    requests = tuple(
        ScheduleRequest(
            hint=item.hint.as_hint(),
            lifecycle=Lifecycle(body.lifecycle),
            reservation_ttl_ms=ttl_ms,
            exclude_nodes=tuple(body.exclude_nodes),
            caller=call.principal.name,
            request_id=call.request_id,
            sandbox_id=item.sandbox_id,
        )
        for item in body.items()
    )
    return batch_view(await call.services.placement.schedule_batch(BatchRequest(requests, body.all, idempotency_key)))


@router.post(
    "/v1/explain", response_model=ExplanationAnswer, summary="Rank or refusal reason of every node for a request"
)
@reach(FOR_GATEWAYS)
async def explain_schedule(
    call: Call, body: ScheduleBody | None = None, limit: PageLimit = PAGE_MAX, cursor: IdCursor | None = None
) -> Any:
    request, warnings = _schedule_request(call, body, None)
    return explanation_view(await call.services.placement.explain(request, limit, cursor)) | warnings


@router.post("/v1/hints", response_model=HintAnswer, summary="The hint read from a sandbox API request")
@reach(FOR_GATEWAYS)
async def read_hint(call: Call, body: SandboxApiRequest) -> Any:
    reading = body.read(call.services.hints)
    return {
        "hint": None if reading.hint is None else hint_view(reading.hint),
        "warnings": list(reading.warnings),
    }


def _schedule_request(
    call: Call, body: ScheduleBody | None, idempotency_key: str | None
) -> tuple[ScheduleRequest, dict[str, list[str]]]:
    """The request, and the `warnings` to add to the answer when something was not read."""
    body = body if body is not None else ScheduleBody()
    reading = _reading(call, body)
    request = ScheduleRequest(
        hint=reading.hint,
        lifecycle=Lifecycle(body.lifecycle),
        reservation_ttl_ms=None if body.reservation_ttl is None else duration_ms(body.reservation_ttl),
        exclude_nodes=tuple(body.exclude_nodes),
        idempotency_key=idempotency_key,
        caller=call.principal.name,
        request_id=call.request_id,
        sandbox_id=body.sandbox_id,
    )
    return request, {"warnings": list(reading.warnings)} if reading.warnings else {}


def _reading(call: Call, body: ScheduleBody) -> HintReading:
    if body.request is None:
        return HintReading(None if body.hint is None else body.hint.as_hint())
    if body.hint is not None:
        raise InvalidRequest(
            "hint and request exclude each other", [FieldError("request", "both", "only one of the two")]
        )
    return body.request.read(call.services.hints)
