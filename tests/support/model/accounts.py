"""The model's books: one ledger of tests/support/accounting per node, and which node a sandbox is bound to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from scheduler.domain.node import NodeAddress
from scheduler.domain.reservation import ReservationState
from scheduler.domain.sandbox import SandboxEventType
from scheduler.domain.settings import LedgerSettings
from tests.support.accounting import ledger as calls
from tests.support.accounting import reports
from tests.support.accounting.ledger import Ledger, Record, Reservation, held, observed
from tests.support.accounting.rules import NEXT, Size, subtract
from tests.support.model.facts import ModelNode, ModelReservation, Totals
from tests.support.model.model import Model

# A report that lists nothing is read by its counters, as one without a roster is.
RULES = replace(NEXT, empty_rosters_tell_entries=False)
ZERO: Size = (0, 0, 0)  # CPUs, bytes, reservations


@dataclass(frozen=True)
class Binding:
    node_id: str
    recorded_at_ms: int


def sized(cpu: int, memory: int) -> Size:
    return (cpu, memory, 1)


def without_size(ledger: Ledger, sandbox_id: str) -> Ledger:
    record = ledger.record(sandbox_id)
    return ledger.put_record(record._replace(size=())) if record is not None else ledger


class AccountingModel(Model):
    """What reservations hold and which sandboxes they are. The rules are those of tests/support/accounting;
    here stands what lies between nodes: an id has one binding and one reservation in the whole domain."""

    def __init__(self, settings: LedgerSettings, now_ms: int) -> None:
        super().__init__(settings, now_ms)
        self.ledgers: dict[str, Ledger] = {}
        self.bindings: dict[str, Binding] = {}
        self.last_report_ms: dict[str, int] = {}
        self.left_at_ms: dict[str, int] = {}  # nodes taken off the list, until they report again
        self.installed: dict[str, set[str]] = {}  # the newest roster of each node, less what was taken over since
        self.deletes: dict[str, dict[str, Record]] = {}  # listed ids that a delete event named, and when
        self.events_seen: dict[str, set[tuple[SandboxEventType, str]]] = {}
        self.sizes_told: dict[str, set[str]] = {}  # by events, of ids that no confirming caller will name
        self.ended_ids: set[str] = set()  # listed or told once, and no more
        self.spread_keys: dict[str, str | None] = {}  # of bound sandboxes, as far as their reservation is known
        self.used_names: set[str] = set()  # reservations whose given name a roster has listed

    def ledger(self, node_id: str) -> Ledger:
        return self.ledgers.get(node_id) or Ledger(
            ZERO, load=ZERO, baseline_load=ZERO, grace=self.settings.binding_grace_ms
        )

    def put(self, node_id: str, ledger: Ledger) -> None:
        """A changed ledger: its reservations and its node look accordingly."""
        # In the count every sandbox is one, so that of the baseline is known exactly.
        counted = (*ledger.baseline_load[:2], len(ledger.baseline))
        ledger = self.ledgers[node_id] = ledger._replace(baseline_load=counted)
        for reservation in self.reservations:
            if reservation.node_id == node_id:
                self._show(reservation, ledger.reservation(reservation.name))
        self._lower(node_id)

    def _show(self, reservation: ModelReservation, kept: Reservation) -> None:
        was_open, before = reservation.open, reservation.state
        reservation.state, reservation.sandbox_id = ReservationState(kept.state), kept.sandbox or None
        reservation.reason = kept.reason or None
        reservation.held = Totals(*kept.held) if kept.open else Totals()
        if not kept.open and (was_open or reservation.state is not before):
            self.ended(reservation)

    def _lower(self, node_id: str) -> None:
        node = self.nodes.get(node_id)
        if node is not None:
            ledger = self.ledger(node_id)
            cpu, memory, _ = subtract(ledger.load, observed(ledger, RULES))
            node.lowered = Totals(cpu, memory)

    def keep_doubt(self, node_id: str, kept: Reservation) -> None:
        """The scripts know those that counters settled by their number alone, so one that gets a name, or counts again,
        takes none out: another is doubted a little longer."""
        if kept.reason != "counters" or not kept.doubt or kept.open:
            return
        ledger = self.ledger(node_id)
        doubted = kept._replace(name=f"doubt-{len(ledger.reservations)}", size=ZERO, sandbox="", told=False)
        ledger = ledger.put(kept._replace(doubt=0))
        self.put(node_id, ledger._replace(reservations=(*ledger.reservations, doubted)))

    def kept(self, reservation: ModelReservation) -> Reservation:
        return self.ledger(reservation.node_id).reservation(reservation.name)

    # What the model of placements asks

    def reserved(self, reservation: ModelReservation, sandbox_id: str | None) -> None:
        """An id that was given before to a reservation which ended is this one's now."""
        node_id, named = reservation.node_id, sandbox_id or ""
        ledger = self.ledger(node_id)
        deleted, size = ledger.deleted, sized(reservation.cpu, reservation.memory)
        ledger = ledger.drop_record(named)._replace(deleted=deleted - {named})
        made = calls.schedule(ledger, reservation.name, size, reservation.lifecycle.value, named)
        assert made is not None
        self.put(node_id, made._replace(deleted=deleted))

    def is_taken(self, sandbox_id: str) -> bool:
        """Of an open reservation, or a sandbox that runs or ended lately."""
        return self.carrier(sandbox_id) is not None or sandbox_id in self.bindings or sandbox_id in self.ended_ids

    def pending(self, node_id: str) -> Totals:
        return Totals(*held(self.ledger(node_id), RULES))

    def end_by_time(self, reservation: ModelReservation, reason: str) -> None:
        ledger = self.ledger(reservation.node_id)
        if reason != "node_removed":
            self.put(reservation.node_id, calls.expire(ledger, reservation.name))
            return
        kept = ledger.reservation(reservation.name)
        state = calls.EXPIRED if kept.state == calls.PENDING else calls.SETTLED
        ledger = calls.end(ledger, kept, state, reason)
        ledger = ledger.put(ledger.reservation(reservation.name)._replace(doubt=0))
        self.put(reservation.node_id, calls.drop_name(ledger, kept.sandbox))

    def advance(self, ms: int) -> None:
        super().advance(ms)
        for reservation in self.reservations:
            ledger = self.ledger(reservation.node_id)
            if not ledger.reservation(reservation.name).over and self._begins_no_more_at(reservation) <= self.now_ms:
                self.put(reservation.node_id, calls.doubt_is_over(ledger, reservation.name))

        self._forget_outlived()

    def _begins_no_more_at(self, reservation: ModelReservation) -> int:
        """Cancelled, nobody knows how: its deadline. Expired: another of its first TTL."""
        cancelled = reservation.state is ReservationState.CANCELLED
        return reservation.deadline_ms + (0 if cancelled else reservation.ttl_ms)

    def _forget_outlived(self) -> None:
        """What a node had reported before it was evicted tells nothing any more, so deletes are believed."""
        for node_id in filter(self.given_up, list(self.deletes)):
            for sandbox_id in list(self.deletes[node_id]):
                if self.is_bound(sandbox_id, node_id):
                    self.unbind(sandbox_id)
        for sandbox_id, binding in list(self.bindings.items()):
            listed = sandbox_id in self.installed.get(binding.node_id, ())
            since = binding.recorded_at_ms
            if listed:  # until the node has been silent, or gone, for so long
                since = self.left_at_ms.get(binding.node_id, self.last_report_ms.get(binding.node_id, since))
            if since + self.settings.binding_ttl_ms <= self.now_ms:
                self.unbind(sandbox_id)

    def valid_until(self, sandbox_id: str, binding: Binding) -> int:
        """binding_ttl after its recording, or after the last report of a node that lists it."""
        since = binding.recorded_at_ms
        if sandbox_id in self.installed.get(binding.node_id, ()):
            since = max(since, self.last_report_ms.get(binding.node_id, since))
        return since + self.settings.binding_ttl_ms

    # Spread: a reservation counts while it is open, until its sandbox does

    def spread_counts(self, key: str) -> Counter[str]:
        counted = Counter[str]()
        for sandbox_id, binding in self.bindings.items():
            if self.spread_keys.get(sandbox_id) == key and sandbox_id not in self.deletes.get(binding.node_id, {}):
                counted[binding.node_id] += 1
        for reservation in self.reservations:
            if reservation.open and reservation.spread_key == key and not self._counts_as_sandbox(reservation):
                counted[reservation.node_id] += 1
        return counted

    def _counts_as_sandbox(self, reservation: ModelReservation) -> bool:
        sandbox_id = reservation.sandbox_id
        return sandbox_id in self.bindings and self.spread_keys.get(sandbox_id) == reservation.spread_key

    def counts_for(self, reservation: ModelReservation, sandbox_id: str) -> None:
        """The sandbox is told to be what became of it, and of no other."""
        self.use_up(sandbox_id, reservation.node_id, but=reservation)
        if self.is_bound(sandbox_id, reservation.node_id):
            self.spread_keys[sandbox_id] = reservation.spread_key

    def use_up(self, sandbox_id: str, node_id: str, but: ModelReservation | None = None) -> None:
        """A name that was given is no longer awaited."""
        named = (r for r in self.reservations if r.sandbox_id == sandbox_id and r.node_id == node_id)
        self.used_names.update(r.name for r in named if r is not but)

    def counts_no_more(self, reservation: ModelReservation) -> None:
        """The name it has was another's."""
        sandbox_id = reservation.sandbox_id
        if sandbox_id and self.is_bound(sandbox_id, reservation.node_id) and self._counts_as_sandbox(reservation):
            self.spread_keys[sandbox_id] = None

    def claimant(self, node_id: str, sandbox_id: str) -> ModelReservation | None:
        """Of this node's reservations the one with that name: open, or its create may still begin."""
        named = [r for r in self.reservations if r.node_id == node_id and r.sandbox_id == sandbox_id]
        begins = {ReservationState.CANCELLED, ReservationState.EXPIRED}
        return next((r for r in reversed(named) if r.open or (r.state in begins and self._is_given(r))), None)

    def _is_given(self, reservation: ModelReservation) -> bool:
        kept = self.kept(reservation)
        awaited = not reservation.confirmed and reservation.name not in self.used_names
        return kept.told and not kept.known and kept.doubt > 0 and awaited

    # Discovery

    def set_node(self, address: NodeAddress, lingering: bool) -> None:
        """A node that comes back too late starts anew: old events and reservations tell nothing of it."""
        node_id = address.node_id
        returning = node_id not in self.nodes
        gone = self.given_up(node_id)
        super().set_node(address, lingering)
        for sandbox_id in list(self.deletes.get(node_id, ())) if gone else ():
            if self.is_bound(sandbox_id, node_id):
                self.unbind(sandbox_id)
        if returning:
            ledger = self._unobserved(self.ledger(node_id))
            if gone:
                ended = tuple(r._replace(doubt=0) if not r.open else r for r in ledger.reservations)
                ledger = ledger._replace(reservations=ended, created=frozenset(), deleted=frozenset(), recent_forks=0)
                for reservation in self.reservations:
                    reservation.nameable &= reservation.node_id != node_id
            self.put(node_id, ledger)

    def remove_node(self, node_id: str) -> None:
        super().remove_node(node_id)
        self.left_at_ms[node_id] = self.now_ms
        self.put(node_id, self._unobserved(self.ledger(node_id)))

    def unregister(self, node_id: str) -> None:
        """Of what was told only names stay that a caller gave, while their create may begin."""
        super().unregister(node_id)
        before = self._unobserved(self.ledger(node_id))
        for sandbox_id, binding in list(self.bindings.items()):
            if binding.node_id == node_id:
                self.unbind(sandbox_id)
        given = self._given(before)
        records = tuple(r._replace(named=True) for r in before.records if r.named or r.sandbox in given)
        deleted = self.ledger(node_id).deleted
        awaited = tuple(r._replace(missed_at=-1) for r in reports.confirmed_records(before))
        self.put(node_id, before._replace(records=(*records, *awaited), paused=frozenset(), deleted=deleted))

    def _given(self, ledger: Ledger) -> set[str]:
        """Names that callers gave to sandboxes whose create was cancelled or expired and may still begin, and that no
        roster has listed yet."""
        over = self.used_names | {r.name for r in self.reservations if r.confirmed}
        ended = [r for r in ledger.reservations if not r.open and r.name not in over]
        given = {r.sandbox for r in ended if r.told and not r.known and r.doubt}
        return given - {r.sandbox for r in ledger.reservations if r.open}

    def _unobserved(self, ledger: Ledger) -> Ledger:
        """The report is forgotten: nothing is taken off by it, and the next one is that of a new process."""
        earlier = (ledger.instance,) if ledger.instance else ()
        return ledger._replace(
            instance="",
            sequence=0,
            replaced=(*ledger.replaced, *earlier)[-8:],
            silent=True,
            whole=False,
            interval=0,
            load=ZERO,
            roster=frozenset(),
            listed_once=False,
            reservations=tuple(r._replace(older=False) for r in ledger.reservations),
        )

    # Bindings

    def bind(self, sandbox_id: str, node_id: str) -> None:
        """The last one wins, whoever held it before; what is known of the sandbox comes with it."""
        holder = self.bindings.get(sandbox_id)
        if holder is not None and holder.node_id != node_id:
            known, paused = self._take_away(sandbox_id, holder.node_id)
            ledger = self.ledger(node_id)
            own = ledger.record(sandbox_id) or Record(sandbox_id, generation=ledger.generation)
            moved = own._replace(told_at=self.now_ms, told=own.told or known.told, size=known.size or own.size)
            if moved.told:
                ledger = ledger.put_record(moved)
            self.put(node_id, ledger._replace(paused=ledger.paused | paused))
        self.bindings[sandbox_id] = Binding(node_id, self.now_ms)

    def _take_away(self, sandbox_id: str, holder: str) -> tuple[Record, frozenset[str]]:
        """The holder's load may still count it: until it reports again nothing is taken off by its roster. It goes on
        judging an id that a reservation of its own claims."""
        ledger = self.ledger(holder)
        known, paused = ledger.record(sandbox_id) or Record(sandbox_id), ledger.paused & {sandbox_id}
        carrier = ledger.carrier(sandbox_id)
        after = self._unlisted(ledger, {sandbox_id}, keep=carrier is not None and carrier.open)
        if sandbox_id in self._given(ledger):
            after = after.put_record(known._replace(named=True))
        self.put(holder, after)
        self._forget_listing(sandbox_id, holder)
        return known, paused

    def _unlisted(self, ledger: Ledger, ids: set[str], keep: bool = False) -> Ledger:
        if ids & ledger.roster:
            ledger = ledger._replace(roster=ledger.roster - ids, baseline=ledger.baseline - ids, whole=False)
            ledger = ledger._replace(listed_once=False)
        records = ledger.records if keep else tuple(r for r in ledger.records if r.sandbox not in ids)
        return ledger._replace(records=records, paused=ledger.paused - ids)

    def unbind(self, sandbox_id: str) -> None:
        binding = self.bindings.pop(sandbox_id)
        self.spread_keys.pop(sandbox_id, None)
        self.ended_ids.add(sandbox_id)
        self._forget_listing(sandbox_id, binding.node_id)
        ledger = self.ledger(binding.node_id)
        carrier = ledger.carrier(sandbox_id)
        self.put(binding.node_id, self._unlisted(ledger, {sandbox_id}, keep=carrier is not None and carrier.open))

    def _forget_listing(self, sandbox_id: str, node_id: str) -> None:
        self.installed.setdefault(node_id, set()).discard(sandbox_id)
        if (SandboxEventType.DELETE, sandbox_id) in self.events_seen.get(node_id, ()):
            ledger = self.ledger(node_id)
            self.put(node_id, ledger._replace(deleted=ledger.deleted | {sandbox_id}))
        self.deletes.setdefault(node_id, {}).pop(sandbox_id, None)

    def is_bound(self, sandbox_id: str, node_id: str) -> bool:
        return self.bindings.get(sandbox_id, Binding("", 0)).node_id == node_id

    def size_is_lost(self, sandbox_id: str, node_id: str) -> bool:
        """An event of this node told a size, which comes before the reservation's, and it is known no more."""
        holder = self.bindings.get(sandbox_id)
        known = holder and self.ledger(holder.node_id).record(sandbox_id)
        stated = sandbox_id in self.sizes_told.get(node_id, ()) and not self.given_up(node_id)
        return stated and not (known and known.size)

    def carrier(self, sandbox_id: str) -> ModelReservation | None:
        """The reservation that carries this id: open, or settled."""
        for reservation in self.reservations:
            if reservation.sandbox_id == sandbox_id and (
                reservation.open or reservation.state is ReservationState.SETTLED
            ):
                return reservation
        return None

    def is_fresh(self, node_id: str) -> bool:
        node: ModelNode | None = self.nodes.get(node_id)
        return (
            node is not None and node.snapshot is not None and not node.stale(self.now_ms, self.settings.report_ttl_ms)
        )

    def hold_begun(self, reservation: ModelReservation) -> None:
        """Its sandbox is told to exist: it is held as long as a confirmed one, and its own deadline is kept for the
        case that the name was another's."""
        deadline_ms = self.now_ms + self.settings.placement_reservation_ttl_ms
        if reservation.state is ReservationState.PENDING and deadline_ms > reservation.deadline_ms:
            reservation.own_deadline_ms = reservation.own_deadline_ms or reservation.deadline_ms
            reservation.deadline_ms = deadline_ms

    def unname(self, reservation: ModelReservation) -> None:
        """A provisional name was another's: it counts again, and ends at once when its deadline has passed."""
        ledger = self.ledger(reservation.node_id)
        kept = ledger.reservation(reservation.name)
        self.counts_no_more(reservation)
        self.keep_doubt(reservation.node_id, kept)
        ledger = self.ledger(reservation.node_id)
        self.put(reservation.node_id, calls.unname(ledger, kept if kept.open else kept._replace(left=None)))
        reservation.deadline_ms = reservation.own_deadline_ms or reservation.deadline_ms
        if reservation.open:
            self._end_by_time(reservation)
