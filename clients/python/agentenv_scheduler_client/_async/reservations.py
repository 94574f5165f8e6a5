"""What becomes of a reservation."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentenv_scheduler_client._async.calls import AsyncCalls
from agentenv_scheduler_client.asking import Question, given, path
from agentenv_scheduler_client.errors import InvalidRequest
from agentenv_scheduler_client.placements import duration
from agentenv_scheduler_client.reading import read
from agentenv_scheduler_client.reservations import (
    REASON_BYTES_MAX,
    CancelCause,
    KeyResult,
    Reservation,
    ReservationPage,
    ReservationResult,
    ReservationState,
)


class AsyncReservations:
    """Reached as `client.reservations`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def get(self, reservation_id: str) -> ReservationResult:
        """One, and whether it was confirmed after it had expired. Raises NotFound."""
        question = Question("GET", path("reservations", reservation_id))
        return await self._calls.ask(question, lambda a: read(ReservationResult, a))

    async def list(
        self,
        *,
        node_id: str | None = None,
        state: ReservationState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ReservationPage:
        """A page, oldest first; `limit` is at most 1,000."""
        params = given(node_id=node_id, state=state, limit=str(limit), cursor=cursor)
        question = Question("GET", path("reservations"), params=params)
        return await self._calls.ask(question, lambda a: read(ReservationPage, a))

    async def each(
        self, *, node_id: str | None = None, state: ReservationState | None = None
    ) -> AsyncIterator[Reservation]:
        """Yields every reservation, oldest first; reads page after page as it goes."""
        cursor: str | None = None
        while True:
            page = await self.list(node_id=node_id, state=state, limit=1000, cursor=cursor)
            for reservation in page.reservations:
                yield reservation
            cursor = page.cursor
            if cursor is None:
                return

    async def confirm(self, reservation_id: str, sandbox_id: str) -> ReservationResult:
        """The sandbox exists: it is bound to the node in the same step. Raises Conflict when another truth is recorded
        (a cancel, another sandbox)."""
        question = Question("POST", path("reservations", reservation_id, "confirm"), {"sandbox_id": sandbox_id})
        return await self._calls.ask(question, lambda a: read(ReservationResult, a))

    async def cancel(
        self, reservation_id: str, reason: str = "", *, cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        """Nothing was created, or what was created is gone: the capacity is free at once."""
        where = path("reservations", reservation_id, "cancel")
        try:
            question = Question("POST", where, _described(reason) | _told(cause))
            return await self._calls.ask(question, lambda a: read(ReservationResult, a))
        except InvalidRequest as error:
            if not _is_about_cause(error):
                raise
            # A replica of 0.1 knows no cause; the capacity must be free all the same.
            return await self._calls.ask(
                Question("POST", where, _described(reason)), lambda a: read(ReservationResult, a)
            )

    async def cancel_by_key(
        self, idempotency_key: str, reason: str = "", *, cause: CancelCause = CancelCause.CALLER
    ) -> KeyResult:
        """Cancels by the idempotency key of the schedule. A schedule that arrives after its cancel is refused."""
        body = {"idempotency_key": idempotency_key, **_described(reason)}
        try:
            question = Question("POST", path("reservations", "cancel"), body | _told(cause))
            return await self._calls.ask(question, lambda a: read(KeyResult, a))
        except InvalidRequest as error:
            if not _is_about_cause(error):
                raise
            question = Question("POST", path("reservations", "cancel"), body)
            return await self._calls.ask(question, lambda a: read(KeyResult, a))

    async def renew(self, reservation_id: str, ttl_seconds: float) -> ReservationResult:
        """The create takes longer: the capacity is held for so long from now. Raises Conflict when it is not
        pending."""
        question = Question("POST", path("reservations", reservation_id, "renew"), {"ttl": duration(ttl_seconds)})
        return await self._calls.ask(question, lambda a: read(ReservationResult, a))


def _described(reason: str) -> dict[str, str]:
    """What no server refuses: the capacity must be free, whatever a node said."""
    return given(reason=reason.encode("utf-8", "ignore")[:REASON_BYTES_MAX].decode("utf-8", "ignore"))


def _told(cause: CancelCause) -> dict[str, str]:
    return {} if cause == CancelCause.CALLER else {"cause": str(cause)}


def _is_about_cause(error: InvalidRequest) -> bool:
    return any(broken.field == "cause" for broken in error.errors)
