"""What the ledger remembers of one node, and what callers may do to it. Values, never changed in place."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.accounting.rules import Rules, Size, Unexplained, add, counted, discount, subtract, total

EXPLICIT, HEARTBEAT = "explicit", "heartbeat"
PENDING, CONFIRMED, SETTLED, CANCELLED, EXPIRED = "pending", "confirmed", "settled", "cancelled", "expired"
CLEAN_REPORTS = 2


class Reservation(NamedTuple):
    """`told`: a caller said the id; else an event did, and it is provisional. `older`: made before the last report.
    `doubt`: how many reports must still come until an end without a name owns no id; `over`: its create can
    begin no more, or the caller knew the node's answer (`known`). `left`: what counters of reports without ids have
    not accounted for; None: all of it."""

    name: str
    size: Size
    lifecycle: str = EXPLICIT
    state: str = PENDING
    reason: str = ""
    sandbox: str = ""
    told: bool = False
    older: bool = False
    known: bool = True
    over: bool = True
    doubt: int = 0
    left: Size | None = None

    @property
    def held(self) -> Size:
        return self.size if self.left is None else self.left

    @property
    def open(self) -> bool:
        return self.state in (PENDING, CONFIRMED)

    @property
    def unnamed(self) -> bool:
        return self.open and not self.sandbox


class Record(NamedTuple):
    """A sandbox that is told, or that the last roster lists: its binding. `size` empty: nobody stated it.
    `confirmed_at` and `missed_at` are times of the ledger; `missed_at` is that of the first report received
    after the telling that does not list it, -1 before."""

    sandbox: str
    size: Size = ()
    told: bool = False
    told_at: int = 0
    generation: int = 0
    missed_at: int = -1
    named: bool = False  # by its caller before it began, and by nobody since


class Ledger(NamedTuple):
    zero: Size
    reservations: tuple[Reservation, ...] = ()
    records: tuple[Record, ...] = ()
    instance: str = ""
    sequence: int = 0
    replaced: tuple[str, ...] = ()
    silent: bool = False  # the present instance was silent for report_ttl, or has unregistered
    generation: int = 0
    interval: int = 0
    grace: int = 0  # binding_grace, a floor where reports carry no sequence
    roster: frozenset[str] = frozenset()
    whole: bool = True  # the roster is that of the last report; else nothing is taken off by it
    listed_once: bool = True  # this instance has had its roster installed
    contested: int = 0  # of the last roster, kept by other nodes
    load: Size = ()
    entered: int = 0
    credit: int = 0
    successes: int = 0
    fails: int = 0
    shown: int = 0
    pauses: bool = False  # this process has paused a sandbox
    recent_forks: int = 0  # told since the last report that proves something
    baseline: frozenset[str] = frozenset()
    baseline_load: Size = ()
    deleted: frozenset[str] = frozenset()
    created: frozenset[str] = frozenset()
    paused: frozenset[str] = frozenset()
    forks: frozenset[tuple[str, Size]] = frozenset()

    # Looking things up

    def reservation(self, name: str) -> Reservation:
        return next(r for r in self.reservations if r.name == name)

    def carrier(self, sandbox: str) -> Reservation | None:
        """Who has this id, open or settled. At most one."""
        for r in self.reservations:
            if r.sandbox == sandbox and (r.open or r.state == SETTLED):
                return r
        return None

    def record(self, sandbox: str) -> Record | None:
        return next((r for r in self.records if r.sandbox == sandbox), None)

    def put(self, changed: Reservation) -> Ledger:
        return self._replace(reservations=tuple(changed if r.name == changed.name else r for r in self.reservations))

    def put_record(self, changed: Record) -> Ledger:
        """A baseline id that becomes told takes its size out of the baseline."""
        others = [r for r in self.records if r.sandbox != changed.sandbox]
        ledger = self._replace(records=tuple(sorted([*others, changed])))
        if not (changed.told and changed.size and changed.sandbox in self.baseline):
            return ledger
        left = tuple(max(0, part) for part in subtract(self.baseline_load, changed.size))
        return ledger._replace(baseline=self.baseline - {changed.sandbox}, baseline_load=left)

    def drop_record(self, sandbox: str) -> Ledger:
        return self._replace(records=tuple(r for r in self.records if r.sandbox != sandbox))


# What is believed


def waiting(ledger: Ledger, lifecycle: str) -> list[Reservation]:
    """W: open, unnamed, made before the last report was accepted."""
    return [r for r in ledger.reservations if r.unnamed and r.older and r.lifecycle == lifecycle]


def told_size(ledger: Ledger, sandbox: str) -> Size | None:
    """None: not told. Empty: told without a size."""
    for fork, size in ledger.forks:
        if fork == sandbox:
            return size
    record = ledger.record(sandbox)
    return record.size if record is not None and record.told else None


def known_size(ledger: Ledger, sandbox: str) -> Size:
    """As told_size, and also what an event said of a sandbox that may be a confirming caller's."""
    record = ledger.record(sandbox)
    return told_size(ledger, sandbox) or (record.size if record else ()) or ledger.zero


def unexplained(ledger: Ledger) -> Unexplained:
    """What the last report shows beyond told ids and the baseline."""
    load, ids = subtract(ledger.load, ledger.baseline_load), 0
    stated = [True] * len(ledger.zero)
    for sandbox in ledger.roster:
        size = told_size(ledger, sandbox)
        if size is None:
            ids += sandbox not in ledger.baseline
            continue
        load = subtract(load, size or ledger.zero)
        for d in range(len(stated)):
            stated[d] &= bool(size) and size[d] > 0
    return Unexplained(ids, load, tuple(stated))


def doubted(ledger: Ledger) -> int:
    ended = sum(1 for r in ledger.reservations if not r.open and not r.told and r.doubt > 0)
    return ended + len(waiting(ledger, HEARTBEAT))


def available(ledger: Ledger) -> int:
    """How many of the unnamed heartbeat reservations have surely entered the node. What was made after the last report
    is no part of its credit."""
    others = sum(1 for r in ledger.reservations if r.open and r.older and not (r.unnamed and r.lifecycle == HEARTBEAT))
    return ledger.credit - others


def held(ledger: Ledger, rules: Rules) -> Size:
    sizes = [r.held for r in ledger.reservations if r.open and r.sandbox not in ledger.roster]
    kept = total(sizes, ledger.zero)
    if not ledger.whole:
        return kept
    if rules.unnamed == "bounded":
        explicit = [r.held for r in waiting(ledger, EXPLICIT)]
        if explicit:
            doubts = doubted(ledger) if rules.doubt else 0
            kept = subtract(kept, discount(explicit, unexplained(ledger), doubts))
    if rules.counted == "entered" and (ledger.roster or rules.empty_rosters_tell_entries):
        uncertain = [r.held for r in waiting(ledger, HEARTBEAT)]
        kept = subtract(kept, counted(uncertain, available(ledger), len(ledger.zero)))
    return kept


def observed(ledger: Ledger, rules: Rules) -> Size:
    load = ledger.load
    if rules.delete_lowers and ledger.whole:
        for sandbox in ledger.roster & ledger.deleted - ledger.paused:
            load = subtract(load, known_size(ledger, sandbox))
    return load


def believed(ledger: Ledger, rules: Rules) -> Size:
    """The projected load by which the next placement is judged."""
    return add(observed(ledger, rules), held(ledger, rules))


# What callers do


def schedule(ledger: Ledger, name: str, size: Size, lifecycle: str = EXPLICIT, sandbox: str = "") -> Ledger | None:
    """A reservation; with `sandbox` the caller names it. None: that id is taken."""
    made = Reservation(name, size, lifecycle, sandbox=sandbox, told=bool(sandbox))
    if sandbox:
        if ledger.record(sandbox) or ledger.carrier(sandbox) or sandbox in ledger.roster | ledger.deleted:
            return None
        ledger = ledger.put_record(Record(sandbox, size, told=True, named=True))
    return ledger._replace(reservations=(*ledger.reservations, made))


def end(ledger: Ledger, r: Reservation, state: str, reason: str, known: bool = True, over: bool = True) -> Ledger:
    """The one way a reservation stops holding. Its end is doubted for a while: what it started may not have been
    reported yet; without a told name it may own an id that is listed, and a name from an event may be another's."""
    doubt = 0 if reason == "listed" else CLEAN_REPORTS
    ended = r._replace(state=state, reason=reason, known=known, over=over, doubt=doubt)
    return ledger.put(ended)._replace(credit=ledger.credit - 1)


def confirm(ledger: Ledger, rules: Rules, name: str, sandbox: str, now: int = 0) -> Ledger | None:
    """The caller says which sandbox it is. None: a conflict."""
    r, other = ledger.reservation(name), ledger.carrier(sandbox)
    if r.state == CANCELLED or (r.told and r.sandbox != sandbox) or (other and other != r and other.told):
        return None
    if other and other != r:
        ledger = unname(ledger, other)
    was_open, misnamed = r.open, r.sandbox not in ("", sandbox)
    reopened = r.state == EXPIRED or (r.state == SETTLED and (misnamed or (not r.sandbox and r.reason != "counters")))
    r = r._replace(sandbox=sandbox, told=True, known=True, over=True, doubt=0)
    ledger = ledger._replace(credit=ledger.credit + (1 if reopened else 0))
    earlier = ledger.record(sandbox)
    size = earlier.size if earlier and earlier.size else r.size
    ledger = ledger.put_record(Record(sandbox, size, True, now, ledger.generation))
    if was_open or reopened:
        r = r._replace(state=CONFIRMED, reason="")
        if rules.delete_remembered and sandbox in ledger.deleted:
            ended = end(ledger, r, SETTLED, "deleted")
            return ended if sandbox in ledger.roster else ended.drop_record(sandbox)
        if sandbox in ledger.roster:
            return end(ledger, r, SETTLED, "listed")
    return ledger.put(r)


def assign(ledger: Ledger, sandbox: str, now: int = 0) -> Ledger:
    """RecordAssignment: this sandbox runs here. Makes a provisional name a told one; alone it names nothing and
    states no size, so an exact load is not believed beside it."""
    earlier = ledger.record(sandbox) or Record(sandbox)
    if not earlier.told or earlier.named:
        ledger = ledger.put_record(Record(sandbox, earlier.size, True, now, ledger.generation))
    carrier = ledger.carrier(sandbox)
    return ledger.put(carrier._replace(told=True, doubt=0)) if carrier is not None else ledger


def unname(ledger: Ledger, r: Reservation) -> Ledger:
    """A provisional name was another's: the reservation counts again, until its old deadline."""
    if r.state == SETTLED:
        ledger = ledger._replace(credit=ledger.credit + 1)
    return ledger.put(r._replace(sandbox="", state=PENDING, reason=""))


def cancel(ledger: Ledger, name: str, known: bool) -> Ledger:
    """`known`: the caller has the node's answer (the create failed); else it may still go on."""
    r = ledger.reservation(name)
    if r.state != PENDING:
        return ledger
    ledger = end(ledger, r, CANCELLED, "cancelled", known, over=known)
    return drop_name(ledger, r.sandbox) if known else ledger


def drop_name(ledger: Ledger, sandbox: str) -> Ledger:
    """What its caller had named will not begin."""
    record = ledger.record(sandbox)
    return ledger.drop_record(sandbox) if record is not None and record.named else ledger


def expire(ledger: Ledger, name: str) -> Ledger:
    """The deadline has come."""
    r = ledger.reservation(name)
    if r.state == CONFIRMED:
        return end(ledger, r, SETTLED, "unobserved")
    if r.state != PENDING:
        return ledger
    # A caller that never confirms has said with its deadline how long a create may take to begin.
    return end(ledger, r, EXPIRED, "deadline", known=False, over=r.lifecycle == HEARTBEAT)


def doubt_is_over(ledger: Ledger, name: str) -> Ledger:
    """The create of an ended reservation can begin no more: the deadline has passed, or another TTL."""
    return ledger.put(ledger.reservation(name)._replace(over=True))
