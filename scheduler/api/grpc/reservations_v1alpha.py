"""`agentenv.scheduler.v1alpha.Reservations`: `/v1/schedule`, `/v1/explain` and `/v1/reservations` over gRPC.

A full fleet is RESOURCE_EXHAUSTED here, not UNAVAILABLE: the scheduler works, the fleet is full. The reasons per
node are in the status details (`Refusal`, and for other tools a `google.rpc.ErrorInfo`); a conflict carries the
recorded reservation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import grpc
from google.rpc.error_details_pb2 import ErrorInfo

from scheduler import errors
from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.grpc import reservations_codec as codec
from scheduler.api.grpc.answering import Answer, Method, caller, detailed_answer, invalid, plain_answer
from scheduler.api.grpc.generated import reservations_v1alpha_pb2 as v1alpha
from scheduler.api.status import grpc_status
from scheduler.domain.reservation import Reservation, ReservationResult
from scheduler.service.checks import trim

if TYPE_CHECKING:
    from scheduler.service import Services

SERVICE = "agentenv.scheduler.v1alpha.Reservations"


class ReservationsV1Alpha:
    """The handlers; repeating a call that took effect answers `replayed`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def methods(self) -> Mapping[str, Method]:
        return {
            "Reserve": Method(self.reserve, v1alpha.ReserveRequest, FOR_GATEWAYS),
            "ScheduleBatch": Method(self.schedule_batch, v1alpha.ScheduleBatchRequest, FOR_GATEWAYS),
            "Confirm": Method(self.confirm, v1alpha.ConfirmRequest, FOR_GATEWAYS),
            "Cancel": Method(self.cancel, v1alpha.CancelRequest, FOR_GATEWAYS),
            "Renew": Method(self.renew, v1alpha.RenewRequest, FOR_GATEWAYS),
            "Explain": Method(self.explain, v1alpha.ReserveRequest, FOR_GATEWAYS),
        }

    async def reserve(self, request: v1alpha.ReserveRequest) -> v1alpha.ReserveResponse:
        decision = await self._services.placement.schedule(codec.schedule_request_from(request, caller().name))
        return v1alpha.ReserveResponse(
            node=codec.node_to(decision.node),
            strategy=decision.strategy.value,
            replayed=decision.replayed,
            degraded=decision.degraded,
            reservation=None if decision.reservation is None else codec.reservation_to(decision.reservation),
        )

    async def schedule_batch(self, request: v1alpha.ScheduleBatchRequest) -> v1alpha.ScheduleBatchResponse:
        return codec.batch_to(
            await self._services.placement.schedule_batch(codec.batch_request_from(request, caller().name))
        )

    async def explain(self, request: v1alpha.ReserveRequest) -> v1alpha.ExplainResponse:
        return codec.explanation_to(
            await self._services.placement.explain(codec.schedule_request_from(request, caller().name))
        )

    async def confirm(self, request: v1alpha.ConfirmRequest) -> v1alpha.ReservationResponse:
        if not trim(request.reservation_id) or not trim(request.sandbox_id):
            raise invalid("reservation_id and sandbox_id are required")
        return _answer(await self._services.reservations.confirm(request.reservation_id, request.sandbox_id))

    async def cancel(self, request: v1alpha.CancelRequest) -> v1alpha.ReservationResponse:
        named, key = bool(trim(request.reservation_id)), request.idempotency_key
        if not named and not key:
            raise invalid("reservation_id or idempotency_key is required")
        cause = codec.cancel_cause_from(request)
        reservations, by = self._services.reservations, caller()
        if named:
            result = await reservations.cancel(request.reservation_id, request.reason, cause)
        else:
            result = await reservations.cancel_by_key(by.name, key, request.reason, cause)
        if by.is_known_admin:
            await self._services.audit.note_cancelled(by.name, result, request.reason)
        return _answer(result)

    async def renew(self, request: v1alpha.RenewRequest) -> v1alpha.ReservationResponse:
        if not trim(request.reservation_id):
            raise invalid("reservation_id is required")
        return _answer(await self._services.reservations.renew(request.reservation_id, request.ttl_ms))


def translate(error: errors.SchedulerError) -> Answer:
    """The table's answer, except that a full fleet is RESOURCE_EXHAUSTED and has details."""
    if isinstance(error, errors.NoNodes):
        exceeded = error.facts.get("over_limit")
        refusal = v1alpha.Refusal(
            candidates=error.candidates,
            reasons=error.reasons,
            over_limit=None if exceeded is None else codec.over_limit_to(exceeded),
        )
        about = {reason: str(count) for reason, count in error.reasons.items()}
        info = ErrorInfo(reason="NO_NODES", domain="agentenv.scheduler", metadata=about)
        return detailed_answer(error, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc_status(error)[1], [refusal, info])
    if isinstance(error, errors.Conflict):
        recorded = error.facts.get("reservation")
        if isinstance(recorded, Reservation):
            detail = v1alpha.Conflict(reservation=codec.reservation_to(recorded))
            return detailed_answer(error, *grpc_status(error), [detail])
    return plain_answer(error)


def _answer(result: ReservationResult) -> v1alpha.ReservationResponse:
    return v1alpha.ReservationResponse(
        reservation=codec.reservation_to(result.reservation), replayed=result.replayed, orphaned=result.orphaned
    )
