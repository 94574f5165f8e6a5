"""The model with identity: confirm, cancel, renew, keys."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import ReservationState
from scheduler.domain.settings import LedgerSettings
from tests.support.accounting import ledger as calls
from tests.support.accounting.ledger import Record
from tests.support.model.accounts import RULES, without_size
from tests.support.model.avoiding import AvoidingModel
from tests.support.model.choosing import used_up
from tests.support.model.facts import ModelReservation
from tests.support.model.model import Refusal, Verdict


@dataclass(frozen=True)
class Done:
    """The call took effect, or had already (`replayed`)."""

    replayed: bool = False
    orphaned: bool = False


@dataclass(frozen=True)
class Conflicting:
    """Another truth is recorded."""


class LifecycleModel(AvoidingModel):
    """Adds what callers ask of single reservations."""

    def __init__(self, settings: LedgerSettings, now_ms: int) -> None:
        super().__init__(settings, now_ms)
        self.by_key: dict[str, tuple[ScheduleRequest, ModelReservation] | None] = {}  # None: a tombstone

    def set_node(self, address: NodeAddress, lingering: bool) -> None:
        if self.given_up(address.node_id):
            self.events_seen.pop(address.node_id, None)
            self.sizes_told.pop(address.node_id, None)
        if address.node_id not in self.nodes:
            self.explained.pop(address.node_id, None)
        super().set_node(address, lingering)

    def unregister(self, node_id: str) -> None:
        super().unregister(node_id)
        self.explained.pop(node_id, None)

    # Confirm, cancel, renew

    def confirm(self, reservation: ModelReservation, sandbox_id: str) -> Done | Conflicting:
        other, kept = self.carrier(sandbox_id), self.kept(reservation)
        if reservation.state is ReservationState.CANCELLED or (kept.told and kept.sandbox != sandbox_id):
            return Conflicting()
        if other is not None and other is not reservation and self.kept(other).told:
            return Conflicting()
        if reservation.confirmed and reservation.state in {ReservationState.CONFIRMED, ReservationState.SETTLED}:
            return Done(replayed=True, orphaned=reservation.orphaned)
        if other is not None and other is not reservation:
            self.unname(other)
        orphaned = reservation.state is ReservationState.EXPIRED
        reservation.orphaned |= orphaned
        reservation.confirmed = True
        if self._counts_again(reservation, sandbox_id) and self.given_up(reservation.node_id):
            self._confirm_nowhere(reservation, sandbox_id)
        else:
            self._confirm(reservation, sandbox_id)
        if (
            orphaned
            and reservation.group is not None
            and not reservation.group_charged
            and reservation.reason != "node_removed"
        ):
            self._charge_again(reservation)
        self.created(reservation)
        return Done(orphaned=orphaned)

    def _counts_again(self, reservation: ModelReservation, sandbox_id: str) -> bool:
        misnamed = reservation.sandbox_id not in {None, sandbox_id}
        settled = reservation.state is ReservationState.SETTLED
        return reservation.state is ReservationState.EXPIRED or (settled and misnamed)

    def _confirm_nowhere(self, reservation: ModelReservation, sandbox_id: str) -> None:
        """Its node is gone: there is nothing left to hold it on."""
        if reservation.sandbox_id != sandbox_id:
            self.counts_no_more(reservation)
        kept = self.kept(reservation)._replace(
            state=calls.SETTLED, reason="node_removed", sandbox=sandbox_id, told=True, doubt=0
        )
        self.put(reservation.node_id, self.ledger(reservation.node_id).put(kept))
        self.bind(sandbox_id, reservation.node_id)
        self.counts_for(reservation, sandbox_id)
        ledger = self.ledger(reservation.node_id)
        known = ledger.record(sandbox_id)
        size = known.size if known and known.size else kept.size
        told = Record(sandbox_id, size, told=True, told_at=self.now_ms, generation=ledger.generation)
        self.put(reservation.node_id, ledger.put_record(told))

    def _confirm(self, reservation: ModelReservation, sandbox_id: str) -> None:
        node_id = reservation.node_id
        self.keep_doubt(node_id, self.kept(reservation))
        if reservation.sandbox_id != sandbox_id:
            self.counts_no_more(reservation)
        misnamed = reservation.state is ReservationState.SETTLED and self._counts_again(reservation, sandbox_id)
        if misnamed or reservation.state in {ReservationState.PENDING, ReservationState.EXPIRED}:
            reservation.deadline_ms = self.now_ms + self.settings.placement_reservation_ttl_ms
        before = self.ledger(node_id)
        ended, lost = self.is_over(sandbox_id, node_id), self.size_is_lost(sandbox_id, node_id)
        if not self.is_bound(sandbox_id, node_id):  # what another reservation had named is not the size of this one
            self.put(node_id, self.ledger(node_id).drop_record(sandbox_id))
        if not ended:
            self.bind(sandbox_id, node_id)
            self.counts_for(reservation, sandbox_id)
        roster = self.ledger(node_id).roster
        asked = self.ledger(node_id)._replace(roster=frozenset(self.installed.get(node_id, ())))
        confirmed = calls.confirm(asked, RULES, reservation.name, sandbox_id, self.now_ms)
        assert confirmed is not None
        confirmed = confirmed._replace(roster=roster)
        kept = confirmed.reservation(reservation.name)
        # What counters had told of it is counted anew once it was open again.
        confirmed = confirmed.put(kept._replace(left=None if not before.reservation(kept.name).open else kept.left))
        if ended:  # nothing is bound, and the name its caller gave is used up
            kept_records = tuple(r for r in before.records if not (r.named and r.sandbox == sandbox_id))
            confirmed = confirmed._replace(records=kept_records)
        self.put(node_id, without_size(confirmed, sandbox_id) if lost else confirmed)
        if misnamed and not reservation.open:
            self.ended(reservation)  # it was open again in between, under its true name
        self.end_listed_or_deleted(reservation)

    def _charge_again(self, reservation: ModelReservation) -> None:
        reservation.group_charged = True
        group = reservation.group
        if group is not None and self.group_is_open(reservation):
            self._charge(reservation, 1)
            if used_up(group, self.settings):
                del self.groups[group.key]

    def cancel(self, reservation: ModelReservation, reason: str, answered: bool = False) -> Done | Conflicting:
        """`answered`: the caller had the node's answer."""
        replayed = reservation.state is ReservationState.CANCELLED
        if reservation.confirmed and reservation.state is not ReservationState.EXPIRED and not replayed:
            return Conflicting()
        if reservation.state is ReservationState.PENDING:
            ledger = calls.cancel(self.ledger(reservation.node_id), reservation.name, known=answered)
            self.put(reservation.node_id, ledger.put(ledger.reservation(reservation.name)._replace(reason=reason)))
            if answered:
                self.refused(reservation)
                self.cool_down(reservation)
        return Done(replayed=replayed, orphaned=reservation.orphaned)

    def renew(self, reservation: ModelReservation, ttl_ms: int) -> Done | Conflicting:
        if reservation.state is not ReservationState.PENDING:
            return Conflicting()
        reservation.deadline_ms, reservation.own_deadline_ms = self.now_ms + ttl_ms, None
        return Done()

    # Keys and names given in a schedule

    def schedule_named(self, request: ScheduleRequest, chosen: str | None = None) -> Verdict | Refusal | Conflicting:
        if request.sandbox_id is not None and request.hint is not None and self.is_taken(request.sandbox_id):
            return Conflicting()
        return self.schedule(request, chosen)

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
        verdict = self.schedule_named(request, chosen)
        if isinstance(verdict, Verdict) and verdict.reservation is not None:
            self.by_key[key] = (request, verdict.reservation)
        return verdict

    def cancel_by_key(self, key: str, reason: str) -> Done | Conflicting:
        if key not in self.by_key:
            self.by_key[key] = None
            return Done()
        earlier = self.by_key[key]
        return self.cancel(earlier[1], reason) if earlier else Done(replayed=True)
