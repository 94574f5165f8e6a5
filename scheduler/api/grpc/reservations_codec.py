"""Converts between `agentenv.scheduler.v1alpha` messages and the domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from scheduler.api.grpc.answering import invalid
from scheduler.api.grpc.generated import reservations_v1alpha_pb2 as v1alpha
from scheduler.domain.limits import BATCH_MAX
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import (
    OVER_NODES,
    BatchDecision,
    BatchRequest,
    Explanation,
    Hint,
    HintKind,
    NodeExplanation,
    ScheduleRequest,
    Spread,
)
from scheduler.domain.reservation import CancelCause, Lifecycle, Reservation, ReservationState

_KINDS = {v1alpha.Hint.KIND_COLD_SANDBOX: HintKind.COLD_SANDBOX, v1alpha.Hint.KIND_SANDBOX: HintKind.SANDBOX}
_LIFECYCLES = {
    v1alpha.LIFECYCLE_UNSPECIFIED: Lifecycle.EXPLICIT,
    v1alpha.LIFECYCLE_EXPLICIT: Lifecycle.EXPLICIT,
    v1alpha.LIFECYCLE_HEARTBEAT: Lifecycle.HEARTBEAT,
}
_CAUSES: dict[int, CancelCause] = {
    v1alpha.CANCEL_CAUSE_UNSPECIFIED: CancelCause.CALLER,
    v1alpha.CANCEL_CAUSE_CALLER: CancelCause.CALLER,
    v1alpha.CANCEL_CAUSE_NODE_REFUSED: CancelCause.NODE_REFUSED,
}
_WIRE_LIFECYCLES = {
    Lifecycle.EXPLICIT: v1alpha.LIFECYCLE_EXPLICIT,
    Lifecycle.HEARTBEAT: v1alpha.LIFECYCLE_HEARTBEAT,
}
_WIRE_STATES = {
    ReservationState.PENDING: v1alpha.RESERVATION_STATE_PENDING,
    ReservationState.CONFIRMED: v1alpha.RESERVATION_STATE_CONFIRMED,
    ReservationState.SETTLED: v1alpha.RESERVATION_STATE_SETTLED,
    ReservationState.CANCELLED: v1alpha.RESERVATION_STATE_CANCELLED,
    ReservationState.EXPIRED: v1alpha.RESERVATION_STATE_EXPIRED,
}


def schedule_request_from(request: v1alpha.ReserveRequest, caller: str) -> ScheduleRequest:
    if request.lifecycle not in _LIFECYCLES:
        raise invalid("lifecycle must be explicit or heartbeat")
    return ScheduleRequest(
        hint=_hint_from(request.hint) if request.HasField("hint") else None,
        lifecycle=_LIFECYCLES[request.lifecycle],
        reservation_ttl_ms=request.reservation_ttl_ms or None,
        exclude_nodes=tuple(request.exclude_nodes),
        idempotency_key=request.idempotency_key or None,
        caller=caller,
        sandbox_id=request.sandbox_id or None,
    )


def batch_request_from(request: v1alpha.ScheduleBatchRequest, caller: str) -> BatchRequest:
    if request.HasField("hint") == bool(request.requests):
        raise invalid("a batch has either hint and count, or requests")
    items = list(request.requests) or [v1alpha.BatchItem(hint=request.hint)]
    common = v1alpha.ReserveRequest(
        lifecycle=request.lifecycle,
        reservation_ttl_ms=request.reservation_ttl_ms,
        exclude_nodes=request.exclude_nodes,
    )
    shared = schedule_request_from(common, caller)
    requests = [
        replace(
            shared,
            hint=_hint_from(item.hint) if item.HasField("hint") else None,
            sandbox_id=item.sandbox_id or None,
        )
        for item in items
    ]
    repeated = request.count or 1
    if repeated > BATCH_MAX:
        raise invalid(f"count must be at most {BATCH_MAX}")
    if not request.requests:
        requests = requests * repeated
    elif request.count:
        raise invalid("count goes with hint; requests are counted by themselves")
    return BatchRequest(tuple(requests), request.all, request.idempotency_key or None)


def batch_to(decision: BatchDecision) -> v1alpha.ScheduleBatchResponse:
    return v1alpha.ScheduleBatchResponse(
        placed=[
            v1alpha.BatchPlacement(
                index=placed.index,
                node=node_to(placed.node),
                reservation=reservation_to(placed.reservation),
                degraded=placed.degraded,
            )
            for placed in decision.placed
        ],
        refused=[
            v1alpha.BatchRefusal(
                index=refused.index,
                reasons=dict(refused.reasons),
                over_limit=None if refused.over_limit is None else over_limit_to(asdict(refused.over_limit)),
            )
            for refused in decision.refused
        ],
        strategy=decision.strategy.value,
        replayed=decision.replayed,
    )


def cancel_cause_from(request: v1alpha.CancelRequest) -> CancelCause:
    if request.cause not in _CAUSES:
        raise invalid("cause must be caller or node_refused")
    return _CAUSES[request.cause]


def _hint_from(hint: v1alpha.Hint) -> Hint:
    if hint.kind not in _KINDS:
        raise invalid("hint.kind must be cold_sandbox or sandbox")
    return Hint(
        kind=_KINDS[hint.kind],
        cpu_count=hint.cpu_count,
        memory_mb=hint.memory_mb,
        images=tuple(hint.images),
        template_id=hint.template_id,
        metadata=dict(hint.metadata),
        locality=tuple(hint.locality),
        resources=dict(hint.resources),
        require={label: tuple(each.values) for label, each in hint.require.items()},
        spread=_spread_from(hint.spread) if hint.HasField("spread") else None,
    )


def _spread_from(spread: v1alpha.Spread) -> Spread:
    bound = {"max": spread.max} if spread.HasField("max") else {"skew": spread.skew} if spread.HasField("skew") else {}
    return Spread(spread.key, spread.over or OVER_NODES, **bound)


def node_to(address: NodeAddress) -> v1alpha.Node:
    return v1alpha.Node(node_id=address.node_id, endpoint=address.endpoint)


def reservation_to(reservation: Reservation) -> v1alpha.Reservation:
    return v1alpha.Reservation(
        reservation_id=reservation.reservation_id,
        node_id=reservation.node_id,
        state=_WIRE_STATES[reservation.state],
        lifecycle=_WIRE_LIFECYCLES[reservation.lifecycle],
        cpu_count=reservation.cpu_count,
        memory_bytes=reservation.memory_bytes,
        sandbox_id=reservation.sandbox_id or "",
        created_at_ms=reservation.created_at_ms,
        expires_at_ms=reservation.expires_at_ms,
        reason=reservation.reason or "",
        resources=reservation.resources,
    )


def explanation_to(explanation: Explanation) -> v1alpha.ExplainResponse:
    return v1alpha.ExplainResponse(
        strategy=explanation.strategy.value,
        node=None if explanation.node is None else node_to(explanation.node),
        degraded=explanation.degraded,
        nodes=[_node_explanation_to(node) for node in explanation.nodes],
        reasons=dict(explanation.reasons),
        over_limit=None if explanation.over_limit is None else over_limit_to(asdict(explanation.over_limit)),
    )


def over_limit_to(exceeded: Mapping[str, Any]) -> v1alpha.OverLimit:
    return v1alpha.OverLimit(**exceeded)


def _node_explanation_to(node: NodeExplanation) -> v1alpha.NodeExplanation:
    return v1alpha.NodeExplanation(
        node_id=node.node_id,
        status=node.status.value,
        rank=node.rank,
        reason=node.reason or "",
        cpu_pressure=node.pressure.cpu,
        memory_pressure=node.pressure.memory,
        pending=v1alpha.PendingTotals(
            cpu_count=node.pending.cpu_count,
            memory_bytes=node.pending.memory_bytes,
            sandbox_count=node.pending.sandbox_count,
        ),
        over_limit=None if node.over_limit is None else over_limit_to(asdict(node.over_limit)),
        label=None if node.label is None else v1alpha.LabelMismatch(**asdict(node.label)),
    )
