"""Everything that may happen next, with the words a story is told in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.support.accounting import ledger as calls
from tests.support.accounting import reports
from tests.support.accounting.ledger import EXPIRED, HEARTBEAT, PENDING, Ledger
from tests.support.accounting.rules import Rules
from tests.support.accounting.world import (
    ASKED,
    BOOTING,
    CHILD,
    DROPPED,
    ENDED,
    FAILED,
    RUNNING,
    UNASKED,
    Features,
    World,
    reservation,
    sample,
    sandbox,
    size_of,
)


class Step(NamedTuple):
    """`call`: what it asks of the ledger, so that a real one can be asked the same. Empty: nothing."""

    said: str
    world: World
    call: tuple[Any, ...] = ()


def next_steps(features: Features, rules: Rules, world: World) -> Iterator[Step]:
    for index, phase in enumerate(world.phases):
        yield from _node(features, world, index, phase)
        yield from _caller(features, rules, world, index, phase)
        yield from _deadline(features, world, index, phase)
    yield from _forks_and_pauses(features, world)
    yield from _reports(features, rules, world)
    yield from _events(features, rules, world)
    if features.restart and world.process == 1:
        restarted = _restart(features, world)
        yield restarted
        if features.unregisters:
            ledger = reports.unregistered(world.ledger, f"i{world.process}")
            said = restarted.said.replace("is replaced", "unregisters and is replaced")
            yield Step(said, restarted.world._replace(ledger=ledger), ("unregister", f"i{world.process}"))
    if features.spaced and world.now < 2:
        yield Step("half a report interval passes", world._replace(now=world.now + 1))


def _phase(world: World, index: int, phase: int) -> World:
    return world._replace(phases=(*world.phases[:index], phase, *world.phases[index + 1 :]))


def _tell(features_on: bool, world: World, kind: str, name: str) -> World:
    return world._replace(events=world.events | {(kind, name)}) if features_on else world


# The node


def _node(features: Features, world: World, index: int, phase: int) -> Iterator[Step]:
    name = sandbox(index)
    if phase == ASKED and not _too_late(features, world, index):
        booting = _phase(world, index, BOOTING)
        yield Step(
            f"the node starts {name}, which boots",
            _tell(features.create_events == "boots", booting, "create", name),
        )
    if phase == ASKED and (features.pulls_fail or _too_late(features, world, index)):
        yield Step(f"the image of {name} cannot be pulled", _phase(world, index, DROPPED))
    elif phase == BOOTING:
        running = _phase(world, index, RUNNING)._replace(successes=world.successes + 1)
        yield Step(f"{name} runs", _tell(features.create_events == "runs", running, "create", name))
        if features.boots_fail:
            yield Step(f"{name} fails to boot", _phase(world, index, FAILED)._replace(fails=world.fails + 1))
    elif phase == RUNNING and features.ends:
        ended = _phase(world, index, ENDED)._replace(paused=world.paused - {name}, resuming=world.resuming - {name})
        yield Step(f"{name} ends", _tell(features.delete_events, ended, "delete", name))


def _too_late(features: Features, world: World, index: int) -> bool:
    """A caller that never confirms lets its deadline tell when a create can begin no more. This is an assumption
    of the rules: such callers need a deadline that is longer than their longest pull."""
    expired = world.ledger.reservation(reservation(index)).state == EXPIRED
    return expired and features.lifecycle(index) == HEARTBEAT


def _forks_and_pauses(features: Features, world: World) -> Iterator[Step]:
    if features.fork and world.fork == UNASKED and RUNNING in world.phases:
        forked = world._replace(fork=RUNNING, successes=world.successes + 1, fork_counted=world.successes + 1)
        yield Step("a running sandbox forks a child", _tell(features.fork_told, forked, "fork", CHILD))
    if world.fork == RUNNING and features.ends:
        yield Step("the child ends", world._replace(fork=ENDED))
    if not features.pauses:
        return
    for index, phase in enumerate(world.phases):
        name = sandbox(index)
        if phase == RUNNING and name in world.resuming:
            yield Step(f"{name} runs again", world._replace(resuming=world.resuming - {name}))
        elif phase == RUNNING and name in world.paused:
            if world.ledger.pauses or not features.pauses_seen:
                resumes = world._replace(paused=world.paused - {name}, resuming=world.resuming | {name})
                yield Step(f"{name} resumes", _tell(features.pauses_told, resumes, "resume", name))
        elif phase == RUNNING:
            paused = world._replace(paused=world.paused | {name})
            yield Step(f"{name} is paused", _tell(features.pauses_told, paused, "pause", name))


def _restart(features: Features, world: World) -> Step:
    """A new process counts from nothing. What was only asked for may still reach it."""
    air = tuple(r._replace(given_up=features.hang_ups_seen) for r in world.air)
    fresh = world._replace(process=2, process_sampled=0, successes=0, fails=0, acknowledged=-1, air=air)
    if features.restart == "keeps":
        return Step("the node's process is replaced; its sandboxes go on", fresh)
    phases = tuple({BOOTING: FAILED, RUNNING: ENDED}.get(phase, phase) for phase in world.phases)
    fork = ENDED if world.fork == RUNNING else world.fork
    ended = fresh._replace(phases=phases, fork=fork, paused=frozenset(), resuming=frozenset())
    return Step("the node's process is replaced; its sandboxes end", ended)


# Callers


def _caller(features: Features, rules: Rules, world: World, index: int, phase: int) -> Iterator[Step]:
    name, own, ledger = reservation(index), sandbox(index), world.ledger
    if phase == UNASKED:
        # Reservations are asked for in their order: which is which is only a matter of names.
        if index == 0 or world.phases[index - 1] != UNASKED:
            made = calls.schedule(
                ledger, name, features.sizes[index], features.lifecycle(index), own if index < features.named else ""
            )
            assert made is not None
            said = f"schedule {name} ({_sized(features, own)}{_whose(features, index)})"
            yield Step(said, _phase(world, index, ASKED)._replace(ledger=made), ("schedule", index))
        return
    r = ledger.reservation(name)
    if features.assigned and phase in (RUNNING, ENDED):
        record = ledger.record(own)
        if record is None or not record.told:
            assigned = world._replace(ledger=calls.assign(ledger, own, world.now))
            yield Step(f"RecordAssignment of {own}", assigned, ("assign", own))
    if features.lifecycle(index) == HEARTBEAT:
        return
    if features.confirms and phase in (RUNNING, ENDED) and not (r.told and r.state != PENDING):
        told = calls.confirm(ledger, rules, name, own, world.now)
        if told is not None:
            yield Step(f"confirm {name} = {own}", world._replace(ledger=told), ("confirm", name, own))
    if r.state == PENDING and phase in (FAILED, DROPPED):
        refused = world._replace(ledger=calls.cancel(ledger, name, known=True))
        yield Step(f"cancel {name}: the node answered no", refused, ("cancel", name, True))
    if features.callers_give_up and r.state == PENDING and phase in (ASKED, BOOTING, RUNNING):
        left = world._replace(ledger=calls.cancel(ledger, name, known=False))
        said = f"the caller of {name} gives up and cancels; the node goes on"
        yield Step(said, left, ("cancel", name, False))


def _sized(features: Features, name: str) -> str:
    return "size " + ", ".join(map(str, size_of(features, name)))


def _whose(features: Features, index: int) -> str:
    return ", never confirmed" if features.lifecycle(index) == HEARTBEAT else ""


def _deadline(features: Features, world: World, index: int, phase: int) -> Iterator[Step]:
    if phase == UNASKED:
        return
    r = world.ledger.reservation(reservation(index))
    record = world.ledger.record(r.sandbox) if r.sandbox else None
    begun = record is not None and record.told and not record.named  # has another deadline, as a confirm gives it
    if (
        features.deadlines
        and r.state == PENDING
        and not begun
        and not _an_earlier_one_may_begin(features, world, index)
    ):
        due = world._replace(ledger=calls.expire(world.ledger, r.name))
        yield Step(f"{r.name} reaches its deadline", due, ("expire", r.name))
    # An ended create that the node still pulls may begin: only afterwards can the time for it be over.
    if not r.over and phase != ASKED:
        yield Step(
            f"the create of {r.name} can begin no more",
            world._replace(ledger=calls.doubt_is_over(world.ledger, r.name)),
        )


def _an_earlier_one_may_begin(features: Features, world: World, index: int) -> bool:
    """Deadlines of callers that never confirm come in the order of their reservations."""
    earlier = [i for i in range(index) if features.lifecycle(i) == HEARTBEAT]
    return features.lifecycle(index) == HEARTBEAT and any(world.phases[i] == ASKED for i in earlier)


# Reports and events


def _reports(features: Features, rules: Rules, world: World) -> Iterator[Step]:
    if world.sampled < features.reports and len(world.air) < features.air:
        # Nodes report one at a time: a second one under way means that the first call was given up.
        report = sample(features, world, world.process_sampled + 1)
        under_way = tuple(r._replace(given_up=features.hang_ups_seen) for r in world.air)
        taken = world._replace(
            air=(*under_way, report), sampled=world.sampled + 1, process_sampled=world.process_sampled + 1
        )
        yield Step(f"{'the node gives its call up; it' if world.air else 'the node'} samples {told(report)}", taken)
    for position, report in enumerate(world.air):
        others = (*world.air[:position], *world.air[position + 1 :])
        arrived = deliver(rules, world, report)
        yield Step(f"report {report_name(world, report)} arrives", arrived._replace(air=others), ("report", report))
        if not features.sequences and len(world.air) == 1:
            yield Step(f"report {report_name(world, report)} arrives, and will again", arrived, ("report", report))
        yield Step(f"report {report_name(world, report)} is lost", world._replace(air=others))
    if world.ledger.instance and not world.ledger.silent and features.restart:
        silent = world._replace(ledger=world.ledger._replace(silent=True))
        yield Step("the node is silent for report_ttl", silent, ("silent",))


def deliver(rules: Rules, world: World, report: reports.Report) -> World:
    after = reports.accept(world.ledger, rules, report, world.now)
    # An answer that the node has: it was not given up, and the process is still there.
    answered = not report.given_up and report.instance == f"i{world.process}"
    counts_child = CHILD in report.roster or 0 < world.fork_counted <= report.successes
    misled = world.fork_misled or (counts_child and not world.fork_was_told)
    return world._replace(
        ledger=after, fork_misled=misled, acknowledged=after.generation if answered else world.acknowledged
    )


def report_name(world: World, report: reports.Report) -> str:
    return f"{report.instance}/{report.sequence}" if report.sequence else report.instance


def told(report: reports.Report) -> str:
    listed = " ".join(sorted(report.roster)) or "nothing"
    load = ",".join(map(str, report.load))
    return f"{report.instance}/{report.sequence}: lists {listed}, load {load}, successes {report.successes}"


def _events(features: Features, rules: Rules, world: World) -> Iterator[Step]:
    handlers: dict[str, Callable[[str], Ledger]] = {
        "create": lambda s: reports.created(world.ledger, rules, s, size_of(features, s), world.now),
        "pause": lambda s: reports.paused(world.ledger, s),
        "resume": lambda s: reports.resumed(world.ledger, s),
        "delete": lambda s: reports.deleted(world.ledger, rules, s),
        "fork": lambda s: reports.forked(world.ledger, s, size_of(features, s)),
    }
    for kind, name in sorted(world.events):
        left = world.events - {(kind, name)}
        arrived = world._replace(ledger=handlers[kind](name), events=left)
        arrived = arrived._replace(fork_was_told=world.fork_was_told or kind == "fork")
        yield Step(f"{kind} event of {name} arrives", arrived, ("event", kind, name))
        if features.events_lost:
            yield Step(f"{kind} event of {name} is lost", world._replace(events=left))
