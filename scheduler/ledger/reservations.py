"""Reservations by id: read, confirm, cancel, renew; and expiry of those that are due."""

from __future__ import annotations

from typing import Any

from scheduler.domain.reservation import CancelCause, OpenReservations, Reservation, ReservationResult, ReservationState
from scheduler.errors import Conflict
from scheduler.ledger import codec, request_codec
from scheduler.ledger.runner import Runner, missing, unexpected
from scheduler.ledger.upstream_bindings import UpstreamBindings

TOMBSTONE_MS = 3_600_000
READ_A_STEP = 250


class ReservationStore:
    def __init__(self, runner: Runner, upstream: UpstreamBindings | None = None) -> None:
        self._runner = runner
        self._upstream = upstream

    async def get(self, reservation_id: str) -> Reservation:
        """Raises NotFound, or NotRebuilt while a lost ledger is being rebuilt."""
        status, reply = await self._runner.run("read_reservation", reservation_id)
        if status == "missing":
            raise missing("reservation", reservation_id, reply)
        self._runner.memory.remember(reservation_id, reply[0])
        return codec.reservation(reservation_id, reply[0])

    async def list(
        self,
        node_id: str | None = None,
        state: ReservationState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[tuple[Reservation, ...], str | None]:
        """A page, oldest first, and the cursor of the next one (None at the end)."""
        found: list[tuple[int, Reservation]] = []
        after = cursor or ""
        while len(found) < limit:
            _, reply = await self._runner.run(
                "list_reservations", after, min(limit, READ_A_STEP), node_id or "", state.value if state else ""
            )
            after, page = codec.text(reply[0]), reply[1]
            for index in range(0, len(page), 2):
                sequence = codec.number(codec.texts(page[index + 1]).get("sequence"))
                found.append((sequence, codec.reservation(codec.text(page[index]), page[index + 1])))
            if not after:
                break
        if len(found) > limit:
            found = found[:limit]
            after = str(found[-1][0])
        return tuple(reservation for _, reservation in found), after or None

    async def tally(self) -> tuple[OpenReservations, ...]:
        """The number of open reservations, by node and state."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        first = "0"
        while first:
            _, (following, *entries) = await self._runner.run("tally_reservations", first)
            words = iter(codec.text(word) for word in entries)
            for node_id, state, count, age_ms in zip(words, words, words, words, strict=True):
                earlier_count, earlier_ms = found.get((node_id, state), (0, 0))
                found[node_id, state] = earlier_count + int(count), max(earlier_ms, int(age_ms))
            first = codec.text(following)
        return tuple(
            OpenReservations(node_id, ReservationState(state), count, oldest_ms)
            for (node_id, state), (count, oldest_ms) in sorted(found.items())
        )

    async def confirm(self, reservation_id: str, sandbox_id: str) -> ReservationResult:
        """Raises NotFound, NotRebuilt, Conflict (with the recorded reservation)."""
        result = await self._decide("confirm_reservation", reservation_id, sandbox_id)
        if self._upstream is not None:
            await self._upstream.follow([sandbox_id])
        return result

    async def cancel(
        self, reservation_id: str, reason: str = "", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        return await self._decide("cancel_reservation", reservation_id, reason, "", cause.value)

    async def cancel_by_key(
        self, caller: str, idempotency_key: str, reason: str = "", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        """Cancel by the idempotency key of its schedule, even before that schedule has arrived. Raises Conflict for the
        key of a batch, whose reservations have ids of their own."""
        reservation_id = request_codec.keyed_reservation_id(caller, idempotency_key)
        return await self._decide("cancel_reservation", reservation_id, reason, TOMBSTONE_MS, cause.value)

    async def renew(self, reservation_id: str, ttl_ms: int) -> ReservationResult:
        return await self._decide("renew_reservation", reservation_id, ttl_ms)

    async def sweep(self) -> int:
        """Process one slice of what is due; returns the number of changes."""
        _, reply = await self._runner.run("sweep_ledger")
        return int(reply[0])

    async def _decide(self, script: str, reservation_id: str, *args: Any) -> ReservationResult:
        status, reply = await self._runner.run(script, reservation_id, *args, durable=True)
        if status == "missing":
            raise missing("reservation", reservation_id, reply)
        if status == "conflict":
            why, fields = codec.text(reply[0]), reply[1]
            if not fields:
                raise Conflict(why)
            self._runner.memory.remember(reservation_id, fields)
            raise Conflict(
                f"the reservation is {why}" if " " not in why else why,
                reservation=codec.reservation(reservation_id, fields),
            )
        if status != "ok":
            raise unexpected(script, status)
        replayed, orphaned, fields, *others = reply
        self._runner.memory.remember(reservation_id, fields)
        if others:
            self._runner.memory.remember_changes(others[0])
        return ReservationResult(codec.reservation(reservation_id, fields), int(replayed) == 1, int(orphaned) == 1)
