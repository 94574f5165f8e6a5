"""The model's events and assignments: what nodes and gateways tell of single sandboxes."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from tests.support.accounting import ledger as calls
from tests.support.accounting import reports
from tests.support.accounting.ledger import Ledger, Record, Reservation
from tests.support.accounting.rules import Size
from tests.support.model.accounts import RULES, sized, without_size
from tests.support.model.facts import ModelReservation
from tests.support.model.reporting import ReportingModel


class TellingModel(ReportingModel):
    """Adds what is told by id."""

    def record_events(self, node_id: str, instance: str, events: Iterable[SandboxEvent]) -> int:
        """How many were new, none of a replaced process. A create names, a delete ends, a fork explains."""
        if self.is_replaced(node_id, instance):
            return 0
        seen = self.events_seen.setdefault(node_id, set())
        counted = 0
        for event in events:
            self._pause(node_id, event)
            if (event.event_type, event.sandbox_id) in seen:
                continue
            seen.add((event.event_type, event.sandbox_id))
            counted += 1
            if event.event_type is SandboxEventType.CREATE:
                self._create(node_id, event)
            elif event.event_type is SandboxEventType.DELETE:
                self._delete(node_id, event.sandbox_id)
            elif event.event_type is SandboxEventType.FORK:
                self._fork(node_id, event)
        return counted

    def _pause(self, node_id: str, event: SandboxEvent) -> None:
        """A sandbox may be paused again and again, so this is no matter of counting once."""
        ledger = self.ledger(node_id)
        kinds = {SandboxEventType.PAUSE: reports.paused, SandboxEventType.RESUME: reports.resumed}
        if event.event_type in kinds:
            told = kinds[event.event_type](ledger, event.sandbox_id)
            known = self.is_bound(event.sandbox_id, node_id)
            self.put(node_id, told if known else told._replace(paused=ledger.paused))

    def _create(self, node_id: str, event: SandboxEvent) -> None:
        """Names at most one reservation whose caller never confirms, and records what runs here."""
        sandbox_id, size = event.sandbox_id, sized(event.requested_cpu, event.requested_memory_bytes)
        before, carrier = self.ledger(node_id), self.carrier(sandbox_id)
        awaited = any(
            r.unnamed and r.lifecycle == calls.EXPLICIT and reports.fits(r, size) for r in before.reservations
        )
        if carrier is None and awaited:
            return  # its caller will name it
        self.sizes_told.setdefault(node_id, set()).add(sandbox_id)
        elsewhere = self._is_elsewhere(sandbox_id, node_id) or (carrier is not None and carrier.node_id != node_id)
        named = self._named_by(node_id, size) if carrier is None else None
        shown = [r for r in before.reservations if r.sandbox == sandbox_id or (r == named and r.open)]
        deleted = frozenset[str]() if elsewhere else before.deleted
        roster = frozenset(self.installed.get(node_id, ()))
        asked = before._replace(reservations=tuple(shown), deleted=deleted, roster=roster)
        told = reports.created(asked, RULES, sandbox_id, size, self.now_ms)
        after = told._replace(reservations=before.reservations, deleted=before.deleted, roster=before.roster)
        for changed in told.reservations:
            after = after.put(changed)
        if named is not None and not named.open:
            after = after.put(named._replace(sandbox=sandbox_id))
        self._told_here(node_id, sandbox_id, before, after, elsewhere)
        carrier = self.carrier(sandbox_id)
        if carrier is not None and carrier.node_id == node_id and not elsewhere:
            if not self.is_over(sandbox_id, node_id):
                self.counts_for(carrier, sandbox_id)
            self.end_listed_or_deleted(carrier)
            self.hold_begun(carrier)

    def _told_here(self, node_id: str, sandbox_id: str, before: Ledger, after: Ledger, elsewhere: bool) -> None:
        """What is told of a sandbox that another node holds, or that has ended, binds nothing."""
        if elsewhere or self.is_over(sandbox_id, node_id):
            load = before.baseline_load
            self.put(node_id, after._replace(records=before.records, baseline=before.baseline, baseline_load=load))
        else:
            self.put(node_id, self._awaited_anew(after, sandbox_id))
            self.bind(sandbox_id, node_id)

    def is_over(self, sandbox_id: str, node_id: str) -> bool:
        """Its end was told before its beginning, and no roster says otherwise."""
        listed = sandbox_id in self.installed.get(node_id, ())
        return sandbox_id in self.ledger(node_id).deleted and not listed and not self.given_up(node_id)

    def _awaited_anew(self, ledger: Ledger, sandbox_id: str) -> Ledger:
        record = ledger.record(sandbox_id)
        if record is None:
            return ledger
        return ledger.put_record(record._replace(told_at=self.now_ms, generation=ledger.generation, missed_at=-1))

    def end_listed_or_deleted(self, reservation: ModelReservation) -> None:
        """Even the roster of an earlier process: what it lists is in the load, or over."""
        ledger, kept = self.ledger(reservation.node_id), self.kept(reservation)
        if not kept.open:
            return
        if kept.sandbox in ledger.deleted:
            self.put(reservation.node_id, calls.end(ledger, kept, calls.SETTLED, "deleted"))
        elif kept.sandbox in self.installed.get(reservation.node_id, ()):
            self.put(reservation.node_id, calls.end(ledger, kept, calls.SETTLED, "listed"))

    def _is_elsewhere(self, sandbox_id: str, node_id: str) -> bool:
        return sandbox_id in self.bindings and not self.is_bound(sandbox_id, node_id)

    def _named_by(self, node_id: str, size: Size) -> Reservation | None:
        """The oldest that fits, first of those that counters settled: the event may come late and mean one of these.
        None when sizes differ, or one in doubt has this size."""
        ledger = self.ledger(node_id)
        fitting = [r for r in ledger.reservations if reports.fits(r, size)]
        for r in fitting:
            if not r.open and not r.told and r.doubt > 0 and r.reason not in {"listed", "counters"}:
                return None
        nameable = [r for r in fitting if reports.nameable(r, RULES) or self._was_counted(r)]
        return min(nameable, key=lambda r: r.open) if len({r.size for r in nameable}) == 1 else None

    def _was_counted(self, r: Reservation) -> bool:
        nameable = any(m.nameable for m in self.reservations if m.name == r.name)
        return nameable and r.state == calls.SETTLED and r.reason == "counters" and not r.sandbox

    def _delete(self, node_id: str, sandbox_id: str) -> None:
        ledger = self.ledger(node_id)
        listed = sandbox_id in self.installed.get(node_id, ())
        after = reports.deleted(ledger, RULES, sandbox_id)
        self.put(node_id, after._replace(records=ledger.records) if listed else after)
        if not self.is_bound(sandbox_id, node_id):
            return
        if listed:
            self.deletes.setdefault(node_id, {})[sandbox_id] = Record(sandbox_id, generation=ledger.generation)
            self.ended_ids.add(sandbox_id)
        else:
            self.unbind(sandbox_id)

    def _fork(self, node_id: str, event: SandboxEvent) -> None:
        """A child is nobody's create; a name that an event gave it was wrong."""
        sandbox_id, size = event.sandbox_id, sized(event.requested_cpu, event.requested_memory_bytes)
        self.explain(node_id, event.requested_cpu, event.requested_memory_bytes)
        self.sizes_told.setdefault(node_id, set()).add(sandbox_id)
        carrier = self.carrier(sandbox_id)
        if carrier is not None and not self.kept(carrier).told:
            self.unname(carrier)
        before = self.ledger(node_id)
        roster = frozenset(self.installed.get(node_id, ()))
        after = reports.forked(before._replace(roster=roster), sandbox_id, size)
        after = after._replace(forks=frozenset(), roster=before.roster)
        known = after.record(sandbox_id) or Record(sandbox_id)
        after = after.put_record(known._replace(size=size, told=True, named=False))
        self._told_here(node_id, sandbox_id, before, after, self._is_elsewhere(sandbox_id, node_id))

    def record_assignment(self, sandbox_id: str, node_id: str) -> None:
        """Binds, and turns a suggested name into a told one; alone it names nothing."""
        lost = self.size_is_lost(sandbox_id, node_id)
        self.bind(sandbox_id, node_id)
        carried = self.ledger(node_id).carrier(sandbox_id)
        if carried is not None and not carried.told:
            self.keep_doubt(node_id, carried)
        ledger = calls.assign(self.ledger(node_id), sandbox_id, self.now_ms)
        carrier, record = ledger.carrier(sandbox_id), ledger.record(sandbox_id)
        if carrier is not None:
            known = self.reservations[int(carrier.name[1:])]
            if not known.confirmed:
                self.hold_begun(known)
            known.confirmed = True
            if record is not None and not record.size:
                ledger = ledger.put_record(record._replace(size=carrier.size))
        if lost:
            ledger = without_size(ledger, sandbox_id)
        self.put(node_id, self._awaited_anew(ledger, sandbox_id))
        owner = known if carrier is not None else self.claimant(node_id, sandbox_id)
        if owner is not None:
            self.counts_for(owner, sandbox_id)

    def lookup(self, sandbox_id: str) -> str | None:
        binding = self.bindings.get(sandbox_id)
        if binding is None or sandbox_id in self.deletes.get(binding.node_id, {}):
            return None
        return binding.node_id if self.valid_until(sandbox_id, binding) > self.now_ms else None
