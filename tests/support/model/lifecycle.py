"""The model with identity: confirm, cancel, renew, events, rosters, bindings, keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.domain.node import NodeAddress, NodeSnapshot
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings
from tests.support.model.choosing import used_up
from tests.support.model.facts import Explained, ModelNode, ModelReservation, Totals
from tests.support.model.model import Model, Refusal, Verdict


@dataclass(frozen=True)
class Done:
    """The call took effect, or had already (`replayed`)."""

    replayed: bool = False
    orphaned: bool = False


@dataclass(frozen=True)
class Conflicting:
    """Another truth is recorded."""


class LifecycleModel(Model):
    """Adds what callers and nodes tell by id to what `Model` knows of counters and time."""

    def __init__(self, settings: LedgerSettings, now_ms: int) -> None:
        super().__init__(settings, now_ms)
        self.rosters: dict[str, set[str]] = {}
        self.last_report_ms: dict[str, int] = {}
        self.bindings: dict[str, tuple[str, int]] = {}  # sandbox → node, recorded at
        self.events_seen: dict[str, set[tuple[SandboxEventType, str]]] = {}
        self.by_key: dict[str, tuple[ScheduleRequest, ModelReservation] | None] = {}  # None: a tombstone

    # Discovery

    def set_node(self, address: NodeAddress, lingering: bool) -> None:
        """A node that comes back too late starts anew: old events and promises tell nothing of it."""
        if self.given_up(address.node_id):
            self.events_seen.pop(address.node_id, None)
            for reservation in self.reservations:
                reservation.nameable &= reservation.node_id != address.node_id
        super().set_node(address, lingering)

    # Confirm, cancel, renew

    def confirm(self, reservation: ModelReservation, sandbox_id: str) -> Done | Conflicting:
        other = self.carrier(sandbox_id)
        if reservation.state is ReservationState.CANCELLED:
            return Conflicting()
        if reservation.told not in {None, sandbox_id}:
            return Conflicting()
        if other is not None and other is not reservation and other.told:
            return Conflicting()
        if reservation.told and reservation.state in {ReservationState.CONFIRMED, ReservationState.SETTLED}:
            return Done(replayed=True, orphaned=reservation.orphaned)
        if other is not None and other is not reservation:
            self._lose_name(other)
        orphaned = reservation.state is ReservationState.EXPIRED
        misnamed = reservation.suggested not in {None, sandbox_id}
        self._become_confirmed(reservation, orphaned, misnamed)
        reservation.told, reservation.suggested, reservation.confirmed_at_ms = sandbox_id, None, self.now_ms
        if reservation.state is ReservationState.CONFIRMED and sandbox_id in self.roster_of(reservation.node_id):
            self.finish(reservation, ReservationState.SETTLED, "listed")
        self.bind(sandbox_id, reservation.node_id)
        return Done(orphaned=orphaned)

    def _become_confirmed(self, reservation: ModelReservation, orphaned: bool, misnamed: bool) -> None:
        settled = reservation.state is ReservationState.SETTLED
        reservation.orphaned |= orphaned
        if (orphaned or (settled and misnamed)) and self.given_up(reservation.node_id):
            # There is nothing left to hold it on.
            reservation.state, reservation.reason = ReservationState.SETTLED, "node_removed"
            return
        if settled and not misnamed:
            return  # what settled it stays true
        if orphaned or settled:
            self._count_again(reservation)
        if orphaned and reservation.group is not None and not reservation.group_charged:
            self._charge_again(reservation)
        reservation.state = ReservationState.CONFIRMED
        reservation.deadline_ms = self.now_ms + self.settings.placement_reservation_ttl_ms

    def _charge_again(self, reservation: ModelReservation) -> None:
        reservation.group_charged = True
        group = reservation.group
        if group is not None and self.group_is_open(reservation):
            self._charge(reservation, 1)
            if used_up(group, self.settings):
                del self.groups[group.key]

    def _count_again(self, reservation: ModelReservation) -> None:
        reservation.held = Totals(reservation.cpu, reservation.memory, 1)
        reservation.reason = None

    def _lose_name(self, reservation: ModelReservation) -> None:
        """Its name was another's: it counts again under its old deadline."""
        reservation.suggested = None
        if reservation.state is ReservationState.SETTLED:
            self._count_again(reservation)
            reservation.state = ReservationState.PENDING
            self._end_by_time(reservation)

    def cancel(self, reservation: ModelReservation, reason: str) -> Done | Conflicting:
        replayed = reservation.state is ReservationState.CANCELLED
        if reservation.told and reservation.state is not ReservationState.EXPIRED and not replayed:
            return Conflicting()
        if reservation.state is ReservationState.PENDING:
            self.finish(reservation, ReservationState.CANCELLED, reason)
        return Done(replayed=replayed, orphaned=reservation.orphaned)

    def renew(self, reservation: ModelReservation, ttl_ms: int) -> Done | Conflicting:
        if reservation.state is not ReservationState.PENDING:
            return Conflicting()
        reservation.deadline_ms = self.now_ms + ttl_ms
        return Done()

    # Keys

    def schedule_by_key(
        self, key: str, request: ScheduleRequest, chosen: str | None = None
    ) -> Verdict | Refusal | Conflicting | ModelReservation:
        """A reservation alone means the first attempt's answer, told again."""
        if key in self.by_key:
            earlier = self.by_key[key]
            if earlier is None or earlier[0] != request:
                return Conflicting()
            ended = earlier[1].state in {ReservationState.CANCELLED, ReservationState.EXPIRED}
            return Conflicting() if ended else earlier[1]
        verdict = self.schedule(request, chosen)
        if isinstance(verdict, Verdict) and verdict.reservation is not None:
            self.by_key[key] = (request, verdict.reservation)
        return verdict

    def cancel_by_key(self, key: str, reason: str) -> Done | Conflicting:
        if key not in self.by_key:
            self.by_key[key] = None
            return Done()
        earlier = self.by_key[key]
        return self.cancel(earlier[1], reason) if earlier else Done(replayed=True)

    # Names

    def carrier(self, sandbox_id: str) -> ModelReservation | None:
        """The reservation that carries this id: open, or settled by it."""
        for reservation in self.reservations:
            if reservation.sandbox_id == sandbox_id and (
                reservation.open or reservation.state is ReservationState.SETTLED
            ):
                return reservation
        return None

    def record_events(self, node_id: str, events: Iterable[SandboxEvent]) -> int:
        """How many were new. A create names, a delete ends, a fork explains."""
        seen = self.events_seen.setdefault(node_id, set())
        counted = 0
        for event in events:
            if (event.event_type, event.sandbox_id) in seen:
                continue
            seen.add((event.event_type, event.sandbox_id))
            counted += 1
            if event.event_type is SandboxEventType.CREATE and self.carrier(event.sandbox_id) is None:
                self._suggest(node_id, event)
            elif event.event_type is SandboxEventType.DELETE:
                self._delete(node_id, event.sandbox_id)
            elif event.event_type is SandboxEventType.FORK:
                self.nodes[node_id].explained.add(event.requested_cpu, event.requested_memory_bytes)
        return counted

    def _suggest(self, node_id: str, event: SandboxEvent) -> None:
        """Names the oldest that fits; several stated sizes that all fit leave it open."""
        fitting = [r for r in self.reservations if self._unnamed(r, node_id) and _fits(r, event)]
        if len({(r.cpu, r.memory) for r in fitting}) != 1:
            return
        reservation = fitting[0]
        reservation.suggested = event.sandbox_id
        if reservation.open and event.sandbox_id in self.roster_of(node_id):
            self.finish(reservation, ReservationState.SETTLED, "listed")

    def _unnamed(self, reservation: ModelReservation, node_id: str) -> bool:
        acknowledged = reservation.state is ReservationState.SETTLED and reservation.reason == "counters"
        nameless = reservation.sandbox_id is None and (reservation.open or acknowledged)
        return nameless and reservation.nameable and reservation.node_id == node_id

    def _delete(self, node_id: str, sandbox_id: str) -> None:
        reservation = self.carrier(sandbox_id)
        if reservation is not None and reservation.open and reservation.node_id == node_id:
            self.finish(reservation, ReservationState.SETTLED, "deleted")
        self.unbind(sandbox_id, node_id)

    # Rosters and bindings

    def roster_of(self, node_id: str) -> set[str]:
        """What the node listed last, less what was taken over or deleted since."""
        return self.rosters.setdefault(node_id, set())

    def heartbeat(self, node_id: str, instance: str, snapshot: NodeSnapshot, roster: Iterable[str] | None) -> None:
        super().heartbeat(node_id, instance, snapshot, roster)
        self.last_report_ms[node_id] = self.now_ms
        if roster is not None:
            self._apply_roster(node_id, set(roster))

    def judge_roster(self, node: ModelNode, roster: set[str], explained: Explained) -> None:
        for reservation in self.open_on(node.node_id):
            if reservation.sandbox_id in roster:
                if reservation.lifecycle is Lifecycle.HEARTBEAT:
                    explained.add(reservation.cpu, reservation.memory)
                self.finish(reservation, ReservationState.SETTLED, "listed")
            elif (
                reservation.state is ReservationState.CONFIRMED
                and self.now_ms - reservation.confirmed_at_ms >= self.settings.binding_grace_ms
            ):
                assert reservation.told is not None
                self.finish(reservation, ReservationState.SETTLED, "gone")
                self.unbind(reservation.told, node.node_id)

    def _apply_roster(self, node_id: str, roster: set[str]) -> None:
        before = set(self.roster_of(node_id))
        for sandbox_id in roster - before:
            if self.bindings.get(sandbox_id, ("", 0))[0] != node_id:
                self.bind(sandbox_id, node_id)
            self.roster_of(node_id).add(sandbox_id)
        for sandbox_id in before - roster:
            self.unbind(sandbox_id, node_id)
        for sandbox_id, (holder, recorded_at_ms) in list(self.bindings.items()):
            overdue = self.now_ms - recorded_at_ms >= self.settings.binding_grace_ms
            if holder == node_id and sandbox_id not in roster and overdue:
                self.unbind(sandbox_id, node_id)

    def bind(self, sandbox_id: str, node_id: str) -> None:
        """The last one wins; whoever listed it before does not any more."""
        for other, roster in self.rosters.items():
            if other != node_id:
                roster.discard(sandbox_id)
        self.bindings[sandbox_id] = (node_id, self.now_ms)

    def unbind(self, sandbox_id: str, node_id: str) -> None:
        self.roster_of(node_id).discard(sandbox_id)
        if self.bindings.get(sandbox_id, ("", 0))[0] == node_id:
            del self.bindings[sandbox_id]

    def record_assignment(self, sandbox_id: str, node_id: str) -> None:
        """Binds, and turns a suggested name into a told one; alone it names nothing."""
        self.bind(sandbox_id, node_id)
        reservation = self.carrier(sandbox_id)
        if reservation is not None and reservation.node_id == node_id and reservation.told is None:
            reservation.told, reservation.suggested = sandbox_id, None

    def unregister(self, node_id: str) -> None:
        super().unregister(node_id)
        self.last_report_ms.pop(node_id, None)
        for sandbox_id, (holder, _) in list(self.bindings.items()):
            if holder == node_id:
                self.unbind(sandbox_id, node_id)
        self.rosters[node_id] = set()

    def lookup(self, sandbox_id: str) -> str | None:
        """Valid until binding_ttl after its recording or the last report of a node that lists it."""
        if sandbox_id not in self.bindings:
            return None
        node_id, since = self.bindings[sandbox_id]
        if sandbox_id in self.roster_of(node_id):
            since = max(since, self.last_report_ms.get(node_id, since))
        return node_id if since + self.settings.binding_ttl_ms > self.now_ms else None


def _fits(reservation: ModelReservation, event: SandboxEvent) -> bool:
    """An unstated dimension fits any size; a stated one only its own."""
    return reservation.cpu in {0, event.requested_cpu} and reservation.memory in {0, event.requested_memory_bytes}
