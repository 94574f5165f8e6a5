"""Reservations: confirm, cancel, renew, list and read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import Answer, ReservationAnswer
from scheduler.api.http.fields import PAGE_DEFAULT, Body, Cursor, Duration, Id, PageLimit, duration_ms
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import reservation_result_view, reservation_view
from scheduler.domain.limits import IDEMPOTENCY_KEY_MAX, TEXT_BYTES_MAX
from scheduler.domain.reservation import CancelCause, ReservationState

router = noun_router("reservations")


class ReservationResultAnswer(Answer):
    reservation: ReservationAnswer | None = Field(description="without a node: cancelled before its schedule came")
    replayed: bool = Field(description="the call had already taken effect")
    orphaned: bool = Field(description="confirmed after it expired")


class ReservationsAnswer(Answer):
    reservations: list[ReservationAnswer]
    cursor: str | None


State = Literal["pending", "confirmed", "settled", "cancelled", "expired"]


class ConfirmBody(Body):
    sandbox_id: Id


Cause = Annotated[
    Literal["caller", "node_refused"],
    Field(description="`node_refused`: the node refused to create it, which counts against the node"),
]


Reason = Annotated[str, Field(description=f"for people; cut to {TEXT_BYTES_MAX:,} bytes")]


class CancelBody(Body):
    reason: Reason = ""
    cause: Cause = "caller"


class CancelByKeyBody(Body):
    idempotency_key: Annotated[
        str, Field(json_schema_extra={"minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[!-~]+$"})
    ]
    reason: Reason = ""
    cause: Cause = "caller"


class RenewBody(Body):
    ttl: Duration


@router.post(
    "/v1/reservations/{reservation_id}/confirm", response_model=ReservationResultAnswer, summary="The sandbox exists"
)
@reach(FOR_GATEWAYS)
async def confirm_reservation(call: Call, reservation_id: Id, body: ConfirmBody) -> Any:
    return reservation_result_view(await call.services.reservations.confirm(reservation_id, body.sandbox_id))


@router.post("/v1/reservations/cancel", response_model=ReservationResultAnswer, summary="Cancel by idempotency key")
@reach(FOR_GATEWAYS)
async def cancel_reservation_by_key(call: Call, body: CancelByKeyBody) -> Any:
    caller = call.principal.name
    result = await call.services.reservations.cancel_by_key(
        caller, body.idempotency_key, body.reason, CancelCause(body.cause)
    )
    if call.principal.is_known_admin:
        await call.services.audit.note_cancelled(call.principal.name, result, body.reason)
    return reservation_result_view(result)


@router.post(
    "/v1/reservations/{reservation_id}/cancel", response_model=ReservationResultAnswer, summary="Nothing was created"
)
@reach(FOR_GATEWAYS)
async def cancel_reservation(call: Call, reservation_id: Id, body: CancelBody | None = None) -> Any:
    body = body if body is not None else CancelBody()
    result = await call.services.reservations.cancel(reservation_id, body.reason, CancelCause(body.cause))
    if call.principal.is_known_admin:
        await call.services.audit.note_cancelled(call.principal.name, result, body.reason)
    return reservation_result_view(result)


@router.post(
    "/v1/reservations/{reservation_id}/renew", response_model=ReservationResultAnswer, summary="Move the deadline"
)
@reach(FOR_GATEWAYS)
async def renew_reservation(call: Call, reservation_id: Id, body: RenewBody) -> Any:
    result = await call.services.reservations.renew(reservation_id, duration_ms(body.ttl))
    return reservation_result_view(result)


@router.get("/v1/reservations", response_model=ReservationsAnswer, summary="A page of reservations, oldest first")
@reach(FOR_GATEWAYS)
async def list_reservations(
    call: Call,
    node_id: Id | None = None,
    state: State | None = None,
    limit: PageLimit = PAGE_DEFAULT,
    cursor: Cursor | None = None,
) -> Any:
    wanted = None if state is None else ReservationState(state)
    found, next_cursor = await call.services.reservations.list(node_id, wanted, limit, cursor)
    return {"reservations": [reservation_view(reservation) for reservation in found], "cursor": next_cursor}


@router.get("/v1/reservations/{reservation_id}", response_model=ReservationResultAnswer, summary="One reservation")
@reach(FOR_GATEWAYS)
async def read_reservation(call: Call, reservation_id: Id) -> Any:
    reservation = await call.services.reservations.get(reservation_id)
    return {"reservation": reservation_view(reservation), "replayed": False, "orphaned": reservation.orphaned}
