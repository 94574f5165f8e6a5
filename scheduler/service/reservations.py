"""A reservation after it was made: confirm, cancel, renew, and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from scheduler.domain.limits import PAGE_DEFAULT, TEXT_BYTES_MAX
from scheduler.domain.reservation import CancelCause, Reservation, ReservationResult, ReservationState
from scheduler.domain.text import cut
from scheduler.errors import Conflict, NotFound, SchedulerError
from scheduler.observability.call_log import CallLog
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics
from scheduler.service.checks import (
    clean_id,
    clean_idempotency_key,
    clean_ttl_ms,
    required,
)

if TYPE_CHECKING:
    from scheduler.ledger.reservations import ReservationStore

log = get_logger("scheduler.reservations")


class ReservationService:
    def __init__(self, store: ReservationStore, metrics: Metrics, calls: CallLog) -> None:
        self._store = store
        self._metrics = metrics
        self._calls = calls

    async def get(self, reservation_id: str) -> Reservation:
        reservation_id = clean_id("reservation_id", reservation_id)
        with self._metrics.ledger_call("get_reservation"):
            return await self._store.get(reservation_id)

    async def list(
        self,
        node_id: str | None = None,
        state: ReservationState | None = None,
        limit: int = PAGE_DEFAULT,
        cursor: str | None = None,
    ) -> tuple[tuple[Reservation, ...], str | None]:
        """A page, oldest first, and the cursor of the next one."""
        node_id = None if node_id is None else clean_id("node_id", node_id)
        with self._metrics.ledger_call("list_reservations"):
            return await self._store.list(node_id=node_id, state=state, limit=limit, cursor=cursor)

    async def confirm(self, reservation_id: str, sandbox_id: str) -> ReservationResult:
        """The sandbox exists: confirms the reservation and binds the sandbox to the node in one step."""
        reservation_id = clean_id("reservation_id", reservation_id)
        required("sandbox_id is required", sandbox_id=sandbox_id)
        sandbox_id = clean_id("sandbox_id", sandbox_id)
        result = await self._call(
            "confirm", reservation_id, sandbox_id, self._store.confirm(reservation_id, sandbox_id)
        )
        if result.orphaned and not result.replayed:
            self._metrics.count_orphaned()
        if result.reservation.reason == "node_removed" and not result.replayed:
            self._metrics.count_unbound()
        return result

    async def cancel(
        self, reservation_id: str, reason: str = "", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        """Nothing was created: frees the capacity at once, for every replica."""
        reservation_id = clean_id("reservation_id", reservation_id)
        reason = cut(reason, TEXT_BYTES_MAX)  # a description costs no cancel
        return await self._call("cancel", reservation_id, None, self._store.cancel(reservation_id, reason, cause))

    async def cancel_by_key(
        self, caller: str, key: str, reason: str = "", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        """Cancel by the caller's idempotency key; before the schedule has arrived this leaves a tombstone."""
        key = clean_idempotency_key("idempotency_key", key)
        reason = cut(reason, TEXT_BYTES_MAX)
        return await self._call("cancel_by_key", None, None, self._store.cancel_by_key(caller, key, reason, cause))

    async def renew(self, reservation_id: str, ttl_ms: int) -> ReservationResult:
        """Moves the deadline of a pending reservation to `ttl_ms` from now."""
        reservation_id = clean_id("reservation_id", reservation_id)
        ttl_ms = clean_ttl_ms("ttl", ttl_ms)
        return await self._call("renew", reservation_id, None, self._store.renew(reservation_id, ttl_ms))

    async def sweep(self) -> int:
        """Process one slice of what is due, which placements would otherwise do."""
        with self._metrics.ledger_call("sweep"):
            return await self._store.sweep()

    async def _call(
        self, call: str, reservation_id: str | None, sandbox_id: str | None, outcome: Awaitable[ReservationResult]
    ) -> ReservationResult:
        """Awaits one ledger call about a reservation, with its metrics and one log line."""
        clock = asyncio.get_running_loop().time
        started = clock()
        label = "failed"
        try:
            with self._metrics.ledger_call(call):
                result = await outcome
            label = "replayed" if result.replayed else "done"
        except SchedulerError as error:
            label = _failure_label(error)
            if isinstance(error, Conflict):
                self._metrics.count_conflict(call)
            self._calls.info(
                log,
                call,
                reservation_id=reservation_id,
                sandbox_id=sandbox_id,
                result=label,
                detail=error.detail,
            )
            raise
        finally:
            self._metrics.observe_reservation_call(call, label, clock() - started)
        if result.replayed:
            self._metrics.count_replay(call)
        self._log_result(call, result)
        return result

    def _log_result(self, call: str, result: ReservationResult) -> None:
        reservation = result.reservation
        self._calls.info(
            log,
            call,
            reservation_id=reservation.reservation_id,
            sandbox_id=reservation.sandbox_id,
            node_id=reservation.node_id,
            state=reservation.state.value,
            result="replayed" if result.replayed else "done",
            orphaned=result.orphaned,
        )


def _failure_label(error: SchedulerError) -> str:
    if isinstance(error, Conflict):
        return "conflict"
    return "not_found" if isinstance(error, NotFound) else "failed"
