"""One reservation from beginning to end: who asked, where it went, what ended it and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.domain.reservation import Reservation, ReservationState
from scheduler.errors import NotFound, NotRebuilt
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger

UNSETTLED = {ReservationState.PENDING, ReservationState.CONFIRMED}


@dataclass(frozen=True, slots=True)
class Moment:
    at_ms: int
    what: str


@dataclass(frozen=True, slots=True)
class GroupCharge:
    """What a placement group was charged. `counted`: not given back; `open`: that very group still is."""

    key: str
    cpu_count: int
    memory_mb: int
    counted: bool
    open: bool


@dataclass(frozen=True, slots=True)
class Story:
    """`moments` in order. `fields` is the hash as it stands, `binding_node_id` where its sandbox is bound now."""

    reservation: Reservation
    fields: Mapping[str, str]
    moments: tuple[Moment, ...]
    group: GroupCharge | None
    binding_node_id: str | None


async def tell_story(ledger: Ledger, reservation_id: str) -> Story:
    """Raises NotFound, or NotRebuilt while a lost ledger is being rebuilt."""
    reservation = await ledger.reservations.get(reservation_id)
    fields = codec.texts(await ledger.client.command("HGETALL", ledger.keys.reservation(reservation_id)))
    moments = [*_beginning(reservation, fields), *await _events(ledger, reservation)]
    moments += [*_confirmation(reservation), *_end(reservation, fields)]
    return Story(
        reservation,
        fields,
        tuple(sorted(moments, key=lambda moment: moment.at_ms)),
        await _group(ledger, fields),
        await _binding(ledger, reservation.sandbox_id),
    )


def _beginning(reservation: Reservation, fields: Mapping[str, str]) -> list[Moment]:
    if "tombstone" in fields:
        return []
    what = f"placed on node {reservation.node_id} by {fields.get('strategy', '?')}"
    if fields.get("degraded") == "1":
        what += ", as the last resort: no candidate was fresh"
    asked = f"asked by {reservation.caller or 'nobody named'}"
    if reservation.request_id:
        asked += f", request {reservation.request_id}"
    return [Moment(reservation.created_at_ms, f"{what}; {asked}")]


async def _events(ledger: Ledger, reservation: Reservation) -> list[Moment]:
    """What the node told of this sandbox; events are remembered for ten minutes."""
    if reservation.sandbox_id is None:
        return []
    explained = ledger.keys.node_explained(reservation.node_id)
    kinds = ("create", "delete")
    told = await ledger.client.pipeline([("ZSCORE", explained, f"{kind} {reservation.sandbox_id}") for kind in kinds])
    return [
        Moment(int(float(at_ms)), f"node {reservation.node_id} told of the {kind} of sandbox {reservation.sandbox_id}")
        for kind, at_ms in zip(kinds, told, strict=True)
        if at_ms is not None
    ]


def _confirmation(reservation: Reservation) -> list[Moment]:
    if reservation.confirmed_at_ms is None:
        return []
    what = f"confirmed: sandbox {reservation.sandbox_id} came of it"
    if reservation.orphaned:
        what += ", after the reservation had expired"
    return [Moment(reservation.confirmed_at_ms, what)]


def _end(reservation: Reservation, fields: Mapping[str, str]) -> list[Moment]:
    if reservation.finished_at_ms is None:
        return []
    if "tombstone" in fields:
        return [Moment(reservation.finished_at_ms, "cancelled by its Idempotency-Key before its schedule had arrived")]
    state = reservation.state.value
    return [Moment(reservation.finished_at_ms, f"{state}: {_why(reservation, fields)}")]


def _why(reservation: Reservation, fields: Mapping[str, str]) -> str:
    if reservation.state is ReservationState.CANCELLED:
        return f"given back ({reservation.reason or 'no reason told'})"
    generation = fields.get("report_generation")
    report = f"{f'report {generation}' if generation else 'a report'} of node {reservation.node_id}"
    sandbox = f"sandbox {reservation.sandbox_id}"
    reasons = {
        "listed": f"{report} lists {sandbox}, so its own figures account for it",
        "counters": f"the counters in {report} grew by as much",
        "deleted": f"node {reservation.node_id} told that {sandbox} was deleted",
        "gone": f"{report} no longer lists {sandbox}",
        "unobserved": "its deadline passed and no report had listed its sandbox",
        "deadline": "its deadline passed and nobody had confirmed it",
        "node_removed": f"node {reservation.node_id} left discovery and was not back in time",
    }
    return reasons.get(reservation.reason or "", reservation.reason or "no reason is kept")


async def _group(ledger: Ledger, fields: Mapping[str, str]) -> GroupCharge | None:
    key = fields.get("group_key")
    if not key:
        return None
    row = codec.text(await ledger.client.command("HGET", ledger.keys.groups, key))
    return GroupCharge(
        key,
        int(fields.get("group_cpu", 0)),
        int(fields.get("group_memory_mb", 0)),
        counted=fields.get("group_charged") == "1",
        open=row.partition(",")[0] == fields.get("group_sequence"),
    )


async def _binding(ledger: Ledger, sandbox_id: str | None) -> str | None:
    if sandbox_id is None:
        return None
    try:
        return (await ledger.bindings.lookup(sandbox_id)).node.node_id
    except (NotFound, NotRebuilt):
        return None
