"""The model's reports: which are believed, what they end, and what counters say where no id is listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from scheduler.domain.node import NodeSnapshot
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.sandbox import SandboxEventType
from scheduler.domain.settings import LedgerSettings
from tests.support.accounting import ledger as calls
from tests.support.accounting import reports
from tests.support.accounting.ledger import Record
from tests.support.accounting.reports import Report
from tests.support.accounting.rules import Rules
from tests.support.model.accounts import RULES, AccountingModel, Binding, sized
from tests.support.model.facts import ModelReservation, Totals

LEAST_INTERVAL_MS = 1000


@dataclass(frozen=True)
class Told:
    """One report as a node sends it. `acknowledged`: how many reports of it were accepted when it sampled."""

    instance: str
    snapshot: NodeSnapshot
    roster: tuple[str, ...] | None
    sequence: int | None = None
    hung_up: bool = False
    acknowledged: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, ResourceLoad] = field(default_factory=dict)


@dataclass
class Explained:
    """Growth since a node's last report that no counter may credit again: what reservations that are told by id,
    identities and forks account for. A size nobody stated may be all of it."""

    totals: Totals
    any_cpu: bool = False
    any_memory: bool = False

    def add(self, cpu: int, memory: int) -> None:
        self.totals += Totals(cpu, memory, 1)
        self.any_cpu |= cpu == 0
        self.any_memory |= memory == 0


class ReportingModel(AccountingModel):
    def __init__(self, settings: LedgerSettings, now_ms: int) -> None:
        super().__init__(settings, now_ms)
        self.explained: dict[str, Explained] = {}
        self.listing: set[str] = set()  # nodes whose present process has told a roster
        self.sampled_ms: dict[str, int] = {}  # when each node sampled its last accepted report, on its clock

    def is_stale(self, node_id: str, told: Told) -> bool:
        ledger, node = self.ledger(node_id), self.nodes[node_id]
        overdue = node.snapshot is None or node.stale(self.now_ms, self.settings.report_ttl_ms)
        if self._is_copy(node_id, told) and (told.hung_up or not overdue):
            return True
        return reports.is_stale(ledger._replace(silent=overdue), RULES, _report(told, told.roster or ()))

    def _is_copy(self, node_id: str, told: Told) -> bool:
        """Without a sequence, by the node's own clock. One that goes back further was set back."""
        sampled_ms = told.snapshot.reported_at_unix_ms
        if told.sequence is not None or not sampled_ms or told.instance != self.ledger(node_id).instance:
            return False
        return 0 < self.sampled_ms[node_id] - sampled_ms <= self.settings.report_ttl_ms

    def is_replaced(self, node_id: str, instance: str) -> bool:
        """Whether what this process tells is stale, whenever it tells it."""
        node = self.nodes[node_id]
        if node.snapshot is None or node.stale(self.now_ms, self.settings.report_ttl_ms):
            return False
        return instance in self.ledger(node_id).replaced

    def heartbeat(self, node_id: str, told: Told) -> bool:
        """Install a report; whether it was stale instead."""
        if self.is_stale(node_id, told):
            return True
        node, before = self.nodes[node_id], self.nodes[node_id].snapshot
        sequence, instance = self.ledger(node_id).sequence, self.ledger(node_id).instance
        same = told.instance == instance
        fell = before is not None and told.snapshot.create_successes < before.create_successes
        again = 0 < (told.sequence or 0) <= sequence or self._is_copy(node_id, told)
        first = before is None or not same or fell or again
        self.tells_outcomes(node_id, None if first else before, told.snapshot)
        if first and same:
            self.put(node_id, self.ledger(node_id)._replace(instance=""))
        elif not told.hung_up and not first and not node.stale(self.now_ms, self.settings.report_ttl_ms):
            self._learn_interval(node_id)
        listing = told.roster is not None and not told.hung_up
        mine, contested = self._admit(node_id, told.roster or ()) if listing else (set(), set())
        if listing:
            self._expect(node_id, mine, first or node_id not in self.listing)
        report = _report(told, mine, contested)._replace(given_up=not listing)
        if first:
            report = report._replace(acknowledged=-1)
        self._undo_deletes(node_id, report, first)
        proof = reports.prove(self.ledger(node_id), self._rules_of_absence(), report, self.now_ms)
        self.put(node_id, proof.ledger)
        if before is not None and not first and not told.hung_up and not told.roster:
            self._acknowledge(node_id, told, before)
        done = reports.tally(proof._replace(ledger=self.ledger(node_id)), RULES, report)
        kept = sequence if same and told.sequence is None else told.sequence or 0
        self.put(node_id, done._replace(sequence=kept))
        if first:
            self.listing.discard(node_id)
        if listing:
            self.listing.add(node_id)
            self._rebind(node_id, mine)
        node.snapshot, node.instance, node.last_seen_ms = told.snapshot, told.instance, self.now_ms
        node.reported_labels = told.labels
        self.labels_before.pop(node_id, None)
        node.resources = {name: (load.total, load.allocated) for name, load in told.resources.items()}
        self.last_report_ms[node_id] = self.now_ms
        self.sampled_ms[node_id] = told.snapshot.reported_at_unix_ms
        self.left_at_ms.pop(node_id, None)
        self.explained.pop(node_id, None)
        self._lower(node_id)
        return False

    def tells_outcomes(self, node_id: str, before: NodeSnapshot | None, after: NodeSnapshot) -> None:
        """How many creations failed and succeeded since the report before; None: this is a restart."""

    def _rules_of_absence(self) -> Rules:
        """`binding_grace: 0` is upstream's rule: the first roster proves."""
        return replace(RULES, absence="one") if self.settings.binding_grace_ms == 0 else RULES

    def _learn_interval(self, node_id: str) -> None:
        ledger = self.ledger(node_id)
        gap_ms = self.now_ms - self.nodes[node_id].last_seen_ms
        interval = int(ledger.interval + (gap_ms - ledger.interval) // 8) if ledger.interval else gap_ms
        self.put(node_id, ledger._replace(interval=max(LEAST_INTERVAL_MS, interval)))

    # Whose the listed ids are

    def _admit(self, node_id: str, roster: Iterable[str]) -> tuple[set[str], set[str]]:
        """Those that the node may have, and those that a fresh node holds: it lists them, or was told of them."""
        mine, contested = set[str](), set[str]()
        for sandbox_id in roster:
            holder = self.bindings.get(sandbox_id, Binding(node_id, 0)).node_id
            held = holder != node_id and self.is_fresh(holder) and sandbox_id not in self.deletes.get(holder, {})
            (contested if held else mine).add(sandbox_id)
        return mine, contested

    def _expect(self, node_id: str, mine: set[str], restarted: bool) -> None:
        """What is known of newly listed ids. A new process may have been restarted with what the earlier one listed:
        what was told is awaited again."""
        installed, deletes = self.installed.setdefault(node_id, set()), self.deletes.setdefault(node_id, {})
        for sandbox_id in mine - installed:
            owner = self.claimant(node_id, sandbox_id)
            if sandbox_id not in self.bindings:
                self._remember(sandbox_id, node_id, owner)
            if not self.is_bound(sandbox_id, node_id):
                self.bind(sandbox_id, node_id)
            if owner is not None:
                self.counts_for(owner, sandbox_id)
                self.used_names.add(owner.name)
            record, told = self.ledger(node_id).record(sandbox_id), self.ledger(node_id).generation + 1
            if record is not None:
                self.put(node_id, self.ledger(node_id).put_record(record._replace(generation=told)))
            if (SandboxEventType.DELETE, sandbox_id) in self.events_seen.get(node_id, ()):
                deletes[sandbox_id] = Record(sandbox_id, generation=told)
        ledger = self.ledger(node_id)
        ledger = ledger._replace(deleted=ledger.deleted | (deletes.keys() & (mine - installed)))
        for sandbox_id in installed - mine if restarted else ():
            record = ledger.record(sandbox_id)
            if sandbox_id in deletes:
                ledger = ledger.drop_record(sandbox_id)
            elif record is not None and self.is_bound(sandbox_id, node_id):
                ledger = ledger.put_record(record._replace(told_at=self.now_ms))
                self.bindings[sandbox_id] = Binding(node_id, self.now_ms)
        self.put(node_id, ledger)

    def _remember(self, sandbox_id: str, node_id: str, owner: ModelReservation | None) -> None:
        """Of a sandbox that was unbound only its reservation tells."""
        ledger = self.ledger(node_id).drop_record(sandbox_id)
        if owner is not None:
            record = self.ledger(node_id).record(sandbox_id) or Record(sandbox_id)
            size = () if self.size_is_lost(sandbox_id, node_id) else sized(owner.cpu, owner.memory)
            ledger = ledger.put_record(record._replace(size=size, told=True))
        self.put(node_id, ledger)

    def _rebind(self, node_id: str, mine: set[str]) -> None:
        ledger = self.ledger(node_id)
        seen = self.events_seen.get(node_id, set())
        left = frozenset(s for kind, s in seen if kind is SandboxEventType.DELETE and s not in mine)
        self.put(node_id, ledger._replace(deleted=ledger.deleted | left))
        self.installed[node_id] = set(mine)
        self.deletes[node_id] = {s: told for s, told in self.deletes.get(node_id, {}).items() if s in mine}
        for sandbox_id, binding in list(self.bindings.items()):
            if binding.node_id == node_id and ledger.record(sandbox_id) is None:
                self.use_up(sandbox_id, node_id)
                self.unbind(sandbox_id)

    def _undo_deletes(self, node_id: str, report: Report, first: bool) -> None:
        """A report certainly sampled after a delete event still lists the id: it lives."""
        ledger, deletes = self.ledger(node_id), self.deletes.setdefault(node_id, {})
        for sandbox_id in list(deletes):
            told = deletes[sandbox_id]._replace(missed_at=-1) if first else deletes[sandbox_id]
            deletes[sandbox_id] = told
            if report.given_up or told.generation > ledger.generation:
                continue
            interval_ms = ledger.interval or LEAST_INTERVAL_MS
            spaced = told.missed_at >= 0 and 2 * (self.now_ms - told.missed_at) >= interval_ms
            if spaced or report.acknowledged > told.generation or self.settings.binding_grace_ms == 0:
                del deletes[sandbox_id]
                ledger = ledger._replace(deleted=ledger.deleted - {sandbox_id})
            elif told.missed_at < 0:
                deletes[sandbox_id] = told._replace(missed_at=self.now_ms)
        self.put(node_id, ledger)

    # Counters, of reports that list nothing

    def ended(self, reservation: ModelReservation) -> None:
        super().ended(reservation)
        if reservation.lifecycle is Lifecycle.EXPLICIT or reservation.reason in {"listed", "deleted"}:
            self.explain(reservation.node_id, reservation.cpu, reservation.memory)

    def explain(self, node_id: str, cpu: int, memory: int) -> None:
        self.explained.setdefault(node_id, Explained(Totals())).add(cpu, memory)

    def _acknowledge(self, node_id: str, told: Told, before: NodeSnapshot) -> None:
        """Oldest first: successes take counts, growth takes CPUs and bytes of counted ones."""
        creditable = []
        for reservation in self.open_on(node_id):
            confirmed = reservation.state is ReservationState.CONFIRMED and told.roster is None
            if reservation.lifecycle is Lifecycle.HEARTBEAT or confirmed:
                creditable.append(reservation)
            else:  # an explicit one that was open since the last report may be what grew
                self.explain(node_id, reservation.cpu, reservation.memory)
        credit = self._credit(node_id, before, told.snapshot)
        left = {r.name: list(self.kept(r).held) for r in creditable}
        for held in left.values():
            if held[2] and credit[2] > 0:
                held[2] = 0
                credit[2] -= 1
        for reservation in creditable:
            held = left[reservation.name]
            for d in range(2):
                if held[2] == 0 and 0 < held[d] <= credit[d]:
                    credit[d] -= held[d]
                    held[d] = 0
            ledger = self.ledger(node_id)
            kept = ledger.reservation(reservation.name)
            if held == [0, 0, 0]:
                ledger = calls.drop_name(calls.end(ledger, kept, calls.SETTLED, "counters"), kept.sandbox)
            elif held != list(kept.held):
                ledger = ledger.put(kept._replace(left=tuple(held)))
            self.put(node_id, ledger)

    def _credit(self, node_id: str, before: NodeSnapshot, after: NodeSnapshot) -> list[int]:
        """Growth since the last report, less what others explain of it."""
        explained = self.explained.get(node_id, Explained(Totals()))
        cpu = after.allocated_cpu - before.allocated_cpu - explained.totals.cpu
        memory = after.allocated_memory_bytes - before.allocated_memory_bytes - explained.totals.memory
        count = after.create_successes - before.create_successes - explained.totals.count
        return [min(cpu, 0) if explained.any_cpu else cpu, min(memory, 0) if explained.any_memory else memory, count]


def _report(told: Told, roster: Iterable[str], contested: Iterable[str] = ()) -> Report:
    shot, listed = told.snapshot, frozenset(roster)
    cpu = shot.allocated_cpu + shot.paused_allocated_cpu
    memory = shot.allocated_memory_bytes + shot.paused_allocated_memory_bytes
    return Report(
        told.instance,
        told.sequence or 0,
        listed,
        (cpu, memory, len(listed)),
        starting=shot.sandbox_starting_count,
        successes=shot.create_successes,
        fails=shot.create_fails,
        paused=shot.paused_sandbox_count,
        given_up=told.hung_up,
        acknowledged=-1 if told.acknowledged is None else told.acknowledged,
        contested=frozenset(contested),
    )
