"""What a node tells: reports in any order, late or twice, and events."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.accounting.ledger import (
    CLEAN_REPORTS,
    CONFIRMED,
    EXPIRED,
    EXPLICIT,
    HEARTBEAT,
    SETTLED,
    Ledger,
    Record,
    Reservation,
    available,
    drop_name,
    end,
    told_size,
    unexplained,
    waiting,
)
from tests.support.accounting.rules import Rules, Size, subtract


class Report(NamedTuple):
    """What one sampling of the node saw. `sequence` 0: the node sends none, so this may be a copy.
    `given_up`: the caller has hung up before the answer. `acknowledged`: the generation it last was told.
    `contested`: further ids that it lists and another node keeps."""

    instance: str
    sequence: int
    roster: frozenset[str]
    load: Size
    starting: int = 0
    successes: int = 0
    fails: int = 0
    paused: int = 0
    given_up: bool = False
    acknowledged: int = -1
    contested: frozenset[str] = frozenset()


def is_stale(ledger: Ledger, rules: Rules, report: Report) -> bool:
    """Older than what was accepted, or of an instance that another has replaced, or that has unregistered."""
    if report.instance == ledger.instance:
        stale = 0 < report.sequence <= ledger.sequence
    else:
        stale = rules.replaced_stay_replaced and report.instance in ledger.replaced
    if rules.hang_up_proves_nothing and report.given_up and not ledger.instance and not ledger.replaced:
        return True  # of a node that nothing is known of it may be a late one
    # After a silence it is a restart, also under an id that was used before; a late call of a dead process is none.
    late = rules.hang_up_proves_nothing and report.given_up
    return stale and (late or not ledger.silent)


def accept(ledger: Ledger, rules: Rules, report: Report, now: int = 0) -> Ledger:
    """Install a report. What it proves ends in the same step, so nothing is free or counted twice between."""
    if is_stale(ledger, rules, report):
        return ledger
    proof = prove(ledger, rules, report, now)
    return tally(proof, rules, report)


class Proof(NamedTuple):
    """A report in between: what it tells by id has ended. `before` it; `first`: with a roster, of its instance."""

    ledger: Ledger
    before: Ledger
    first: bool


def prove(ledger: Ledger, rules: Rules, report: Report, now: int = 0) -> Proof:
    """Install load and roster; end what is listed or proven gone."""
    first = report.instance != ledger.instance or 0 < report.sequence <= ledger.sequence
    if first:
        ledger = _replace_instance(ledger, report)
    before = ledger
    ledger = ledger._replace(
        sequence=report.sequence,
        silent=False,
        generation=ledger.generation + 1,
        load=report.load,
        pauses=ledger.pauses or report.paused > 0,
        reservations=tuple(r._replace(older=True) for r in ledger.reservations),
    )
    if rules.hang_up_proves_nothing and report.given_up:
        return Proof(ledger._replace(whole=False), before, first)
    first = first or not before.listed_once
    # While another node keeps some of its ids, the load counts more than the installed roster lists.
    whole = not report.contested
    listed_once = whole or before.listed_once
    baseline = ledger.baseline & report.roster
    ledger = ledger._replace(
        roster=report.roster,
        whole=whole,
        listed_once=listed_once,
        baseline=baseline,
        contested=len(report.contested),
    )
    ledger = _settle_listed(ledger, report)
    for record in ledger.records:
        ledger = _judge(ledger, rules, before, record, report, now)
    return Proof(ledger, before, first)


def tally(proof: Proof, rules: Rules, report: Report) -> Ledger:
    """What its counts tell, and what it leaves unexplained."""
    ledger, before, first = proof
    if rules.hang_up_proves_nothing and report.given_up:
        if rules.entries_need_a_roster:
            return ledger
        return _count_entered(ledger, rules, ledger, report._replace(roster=ledger.roster), first)
    if not ledger.whole:
        return ledger if first or not ledger.listed_once else _count_listed(ledger, before, report)
    if rules.counted == "entered":
        ledger = _count_entered(ledger, rules, before, report, first)
    elif not first:
        ledger = _count_growth(ledger, before, report)
    ledger = ledger._replace(successes=report.successes, fails=report.fails)
    ledger = _clear_doubts(ledger, rules)._replace(recent_forks=0)
    return _set_baseline(ledger, first)


def _replace_instance(ledger: Ledger, report: Report) -> Ledger:
    """A restart. Nothing that the earlier process listed proves anything of this one."""
    replaced = [i for i in (*ledger.replaced, ledger.instance) if i not in ("", report.instance)]
    records = tuple(r._replace(missed_at=-1) for r in ledger.records if r.told)
    return ledger._replace(
        instance=report.instance,
        replaced=tuple(replaced[-8:]),
        roster=frozenset(),
        records=records,
        baseline=frozenset(),
        listed_once=False,
        credit=0,
        entered=0,
        pauses=False,
    )


def _settle_listed(ledger: Ledger, report: Report) -> Ledger:
    for r in ledger.reservations:
        if r.open and r.sandbox in ledger.roster | report.contested:
            ledger = end(ledger, r, SETTLED, "listed")
            if r.sandbox in ledger.roster and ledger.record(r.sandbox) is None:
                ledger = ledger.put_record(Record(r.sandbox, r.size, told=True))
            elif r.sandbox in report.contested:
                ledger = ledger.drop_record(r.sandbox)
    for sandbox in ledger.roster:
        record = ledger.record(sandbox) or Record(sandbox)
        ledger = ledger.put_record(record._replace(missed_at=-1, named=False))
    return ledger


def unregistered(ledger: Ledger, instance: str) -> Ledger:
    """A process ends in order, and takes its report and its bindings with it; what was reserved stays. Of what was told
    only names are left that a caller gave a create which may still begin. One that was replaced changes nothing."""
    if ledger.instance != instance:
        return ledger
    given = {r.sandbox for r in ledger.reservations if r.told and not r.open and not r.known and r.doubt}
    given -= {r.sandbox for r in ledger.reservations if r.open}
    records = tuple(r._replace(named=True) for r in ledger.records if r.named or r.sandbox in given)
    return ledger._replace(
        instance="",
        sequence=0,
        replaced=(*ledger.replaced, instance)[-8:],
        silent=True,
        whole=False,
        interval=0,
        load=ledger.zero,
        roster=frozenset(),
        listed_once=False,
        reservations=tuple(r._replace(older=False) for r in ledger.reservations),
        records=(*records, *(r._replace(missed_at=-1) for r in confirmed_records(ledger))),
        paused=frozenset(),
    )


def confirmed_records(ledger: Ledger) -> list[Record]:
    """What a confirm told of and no roster has listed: reports go on judging it."""
    told = {r.sandbox for r in ledger.reservations if r.state == CONFIRMED}
    return [r for r in ledger.records if r.sandbox in told and not r.named]


# Absence


def _judge(ledger: Ledger, rules: Rules, before: Ledger, record: Record, report: Report, now: int) -> Ledger:
    """Whether this report proves that a sandbox it does not list is gone."""
    if record.sandbox in report.roster | report.contested:
        return ledger
    if record.named:
        return ledger  # its caller has named it, and nobody said yet that it exists
    carrier = ledger.carrier(record.sandbox)
    if _is_gone(rules, before, record, report, now):
        if carrier is not None and carrier.open:
            ledger = end(ledger, carrier, SETTLED, "gone")
        return ledger.drop_record(record.sandbox)
    return ledger.put_record(record._replace(missed_at=now)) if record.missed_at < 0 else ledger


def _is_gone(rules: Rules, before: Ledger, record: Record, report: Report, now: int) -> bool:
    if record.sandbox in before.roster:
        return True
    if rules.absence in ("grace", "one"):
        return True  # the grace of 0.1 is time alone, and a report may be late by more than that
    if report.acknowledged > record.generation:
        return True
    if not report.sequence and now - record.told_at < before.grace:
        return False
    return record.missed_at >= 0 and 2 * (now - record.missed_at) >= before.interval


# Callers that never confirm


def _count_entered(ledger: Ledger, rules: Rules, before: Ledger, report: Report, first: bool) -> Ledger:
    if first:
        entered = report.successes + report.fails + report.starting
        return ledger._replace(entered=entered, shown=entered, credit=_lowest(ledger))
    entered, shown = _entered(ledger, rules, before, report)
    credit = ledger.credit + entered - ledger.entered
    still_open = sum(1 for r in ledger.reservations if r.open)
    credit = max(_lowest(ledger), min(credit, still_open))
    ledger = ledger._replace(entered=entered, shown=shown, credit=credit)
    uncertain = waiting(ledger, HEARTBEAT)
    if not (ledger.roster or rules.empty_rosters_tell_entries):
        return ledger
    if uncertain and available(ledger) >= len(uncertain):
        for r in uncertain:
            ledger = end(ledger, r, SETTLED, "counters")
    return ledger


def _newly_listed(before: Ledger, report: Report) -> int:
    """What another node keeps is listed each time."""
    return max(0, len((report.roster | report.contested) - before.roster) - before.contested)


def _count_listed(ledger: Ledger, before: Ledger, report: Report) -> Ledger:
    """What is new in a report that is not counted has entered all the same."""
    new = _newly_listed(before, report)
    still_open = sum(1 for r in ledger.reservations if r.open)
    credit = max(_lowest(ledger), min(ledger.credit + new, still_open))
    return ledger._replace(entered=ledger.entered + new, shown=ledger.shown + new, credit=credit)


def _entered(ledger: Ledger, rules: Rules, before: Ledger, report: Report) -> tuple[int, int]:
    """How many creates have surely entered this process, and how many it shows."""
    counts, listed_now = report.successes + report.fails, _newly_listed(before, report)
    sure = max(ledger.entered + listed_now, counts)
    again = before.shown + listed_now
    shown = min(counts + report.starting, max(again, sure + counts - before.successes - before.fails))
    if rules.starting == "always":
        return max(sure, counts + report.starting), shown
    if rules.starting == "never" or ledger.pauses:
        return sure, shown
    return max(sure, min(shown, max(again, sure + report.fails - before.fails))), shown


def _lowest(ledger: Ledger) -> int:
    """Ends and forks that were taken from the credit and that no report may have counted yet. Below that, the
    credit speaks of entries that never happened: of creates that ended without one. Counters that settled one whose
    name is told may have shown another's entry."""
    ended = [r for r in ledger.reservations if not r.open and r.doubt == CLEAN_REPORTS]
    return -sum(1 for r in ended if r.told or r.reason != "counters") - ledger.recent_forks


def _count_growth(ledger: Ledger, before: Ledger, report: Report) -> Ledger:
    """0.1: successes take counts and growth takes sizes, oldest first, whole reservations only."""
    count, growth = report.successes - before.successes, subtract(report.load, before.load)
    for r in waiting(ledger, HEARTBEAT):
        if count > 0 and all(size <= grown for size, grown in zip(r.size, growth, strict=True)):
            count, growth = count - 1, subtract(growth, r.size)
            ledger = end(ledger, r, SETTLED, "counters")
    return ledger


# Doubt and baseline


def _clear_doubts(ledger: Ledger, rules: Rules) -> Ledger:
    clean = unexplained(ledger).ids == 0
    changed = [_less_doubted(r, rules, clean) if r.doubt else r for r in ledger.reservations]
    cleared = [r.sandbox for r in ledger.reservations if r.doubt == 1 and _less_doubted(r, rules, clean).doubt == 0]
    ledger = ledger._replace(reservations=tuple(changed))
    for sandbox in cleared:
        ledger = drop_name(ledger, sandbox)
    return ledger


def _less_doubted(r: Reservation, rules: Rules, clean: bool) -> Reservation:
    known = r.known and r.reason != "counters"
    if known or (clean and (r.over or not rules.doubt_until_over)):
        return r._replace(doubt=r.doubt - 1)
    return r._replace(doubt=CLEAN_REPORTS)


def _set_baseline(ledger: Ledger, first: bool) -> Ledger:
    """What nobody can be waiting for is not unexplained any more."""
    if first or not waiting(ledger, EXPLICIT) or unexplained(ledger).ids == 0:
        strangers = frozenset(s for s in ledger.roster if told_size(ledger, s) is None)
        load = ledger.load
        for sandbox in ledger.roster:
            load = subtract(load, told_size(ledger, sandbox) or ledger.zero)
        return ledger._replace(baseline=strangers, baseline_load=tuple(max(0, part) for part in load))
    left = ledger.baseline & ledger.roster
    return ledger._replace(baseline=left, baseline_load=ledger.baseline_load if left else ledger.zero)


# Events


def created(ledger: Ledger, rules: Rules, sandbox: str, size: Size, now: int = 0) -> Ledger:
    """A create event names the first due reservation of its size whose caller never confirms, unless sizes differ, or
    the event may come late and mean one that ended without a name. A confirming caller names its sandbox itself:
    until then the id stays unexplained where it may be that caller's."""
    if sandbox in ledger.created:
        return ledger
    ledger = ledger._replace(created=ledger.created | {sandbox})
    record = ledger.record(sandbox) or Record(sandbox, told_at=now, generation=ledger.generation)
    named_later = any(r.unnamed and r.lifecycle == EXPLICIT and fits(r, size) for r in ledger.reservations)
    carried = ledger.carrier(sandbox) is not None
    if named_later and not carried and not rules.events_name_explicit:
        return ledger
    ledger = ledger.put_record(record._replace(size=size, told=True, named=False))
    if carried:
        return ledger
    fitting = [r for r in ledger.reservations if nameable(r, rules) and fits(r, size)]
    meant = any(_ended_without_a_name(r) and fits(r, size) for r in ledger.reservations)
    if len({r.size for r in fitting}) != 1 or (meant and not rules.events_name_explicit):
        return ledger
    named = fitting[0]._replace(sandbox=sandbox)
    ledger = ledger.put(named)
    if rules.delete_remembered and sandbox in ledger.deleted:
        ended = end(ledger, named, SETTLED, "deleted")
        return ended if sandbox in ledger.roster else ended.drop_record(sandbox)
    return end(ledger, named, SETTLED, "listed") if sandbox in ledger.roster else ledger


def _ended_without_a_name(r: Reservation) -> bool:
    return not r.open and not r.told and (not r.sandbox or r.state == EXPIRED)


def nameable(r: Reservation, rules: Rules) -> bool:
    return r.unnamed and (r.lifecycle == HEARTBEAT or rules.events_name_explicit)


def fits(r: Reservation, size: Size) -> bool:
    return all(own in (0, told) for own, told in zip(r.size, size, strict=True))


def deleted(ledger: Ledger, rules: Rules, sandbox: str) -> Ledger:
    """Ends the reservation of that id at once, and of one that is confirmed later."""
    carrier = ledger.carrier(sandbox)
    if carrier is not None and carrier.open:
        ledger = end(ledger, carrier, SETTLED, "deleted")
    record = ledger.record(sandbox)
    given_up = carrier is None and record is not None and record.named
    if sandbox not in ledger.roster and not given_up:
        ledger = ledger.drop_record(sandbox)
    return ledger._replace(deleted=ledger.deleted | {sandbox})


def paused(ledger: Ledger, sandbox: str) -> Ledger:
    return ledger._replace(paused=ledger.paused | {sandbox}, pauses=True)


def resumed(ledger: Ledger, sandbox: str) -> Ledger:
    return ledger._replace(paused=ledger.paused - {sandbox}, pauses=True)


def forked(ledger: Ledger, sandbox: str, size: Size) -> Ledger:
    """Takes a child out of what could be somebody's create; a name that an event gave it was wrong."""
    if any(fork == sandbox for fork, _ in ledger.forks):
        return ledger
    carrier = ledger.carrier(sandbox)
    if carrier is not None and not carrier.told:
        ledger = ledger.put(carrier._replace(sandbox="", state="pending", reason=""))
    ledger = ledger._replace(forks=ledger.forks | {(sandbox, size)})
    if sandbox in ledger.roster:  # already counted; what it released by then stays released
        return ledger._replace(credit=max(ledger.credit - 1, min(ledger.credit, _lowest(ledger))))
    return ledger._replace(credit=ledger.credit - 1, recent_forks=ledger.recent_forks + 1)
