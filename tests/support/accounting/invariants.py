"""What must hold in every state, or in a few reports' time from it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.accounting import ledger as calls
from tests.support.accounting.ledger import HEARTBEAT, PENDING, believed, observed, told_size
from tests.support.accounting.life import deliver
from tests.support.accounting.rules import Rules, Size, add, subtract
from tests.support.accounting.world import (
    ASKED,
    BOOTING,
    CHILD,
    DROPPED,
    FAILED,
    LIVE,
    RUNNING,
    UNASKED,
    Features,
    World,
    live,
    real_load,
    reservation,
    sample,
    sandbox,
    zero,
)

GIVEN_TWICE = "capacity is given twice"
COUNTED_TWICE = "counted twice"
DELETED_COUNTED = "deleted, and still counted"
DELETED_HELD = "deleted, and still held"
NOT_LET_GO = "held for nothing"
BINDING_LOST = "the binding of a running sandbox is lost"
TWO_OWNERS = "one told id belongs to two reservations"


def broken(features: Features, rules: Rules, world: World) -> str | None:
    """The first promise that this state breaks, with its figures."""
    return (
        _given_twice(features, rules, world)
        or _two_owners(world)
        or _binding_lost(world)
        or _deleted_counted(rules, world)
        or _counted_twice(features, rules, world)
        or _not_let_go(features, rules, world)
    )


def owed(features: Features, world: World) -> Size:
    """What must not be free: what a standing reservation holds, and what the node lists."""
    total = zero(features)
    for index, phase in enumerate(world.phases):
        if phase not in (ASKED, BOOTING, RUNNING):
            continue
        standing = world.ledger.reservation(reservation(index)).state in ("pending", "confirmed", "settled")
        standing &= not _was_due(features, world, index)
        if standing or (phase in LIVE and sandbox(index) in world.ledger.roster):
            total = add(total, features.sizes[index])
    if world.fork == RUNNING and CHILD in world.ledger.roster:
        total = add(total, features.fork)
    return total


def _was_due(features: Features, world: World, index: int) -> bool:
    """Deadlines of callers that never confirm come in order: a later one's has come, so has this one's, even if
    an event that names the first of two of one size swapped them."""
    return features.lifecycle(index) == HEARTBEAT and any(
        r.state == "expired" and r.lifecycle == HEARTBEAT for r in world.ledger.reservations[index + 1 :]
    )


def _given_twice(features: Features, rules: Rules, world: World) -> str | None:
    if world.fork != UNASKED and (world.fork_misled or not world.fork_was_told):
        return None  # forks aside until they are told; what one released before stays released
    found, needed = believed(world.ledger, rules), owed(features, world)
    if all(have >= need for have, need in zip(found, needed, strict=True)):
        return None
    return f"{GIVEN_TWICE}: {_figures(needed)} is in use or reserved, the ledger believes {_figures(found)}"


def _two_owners(world: World) -> str | None:
    owners: set[str] = set()
    for r in world.ledger.reservations:
        if r.sandbox and (r.open or r.state == "settled"):
            if r.sandbox in owners:
                return f"{TWO_OWNERS}: {r.sandbox}"
            owners.add(r.sandbox)
    return None


def _binding_lost(world: World) -> str | None:
    for index, phase in enumerate(world.phases):
        if phase != RUNNING:
            continue
        r = world.ledger.reservation(reservation(index))
        if r.told and r.state in ("confirmed", "settled") and world.ledger.record(sandbox(index)) is None:
            return f"{BINDING_LOST}: {r.sandbox}"
    return None


def _deleted_counted(rules: Rules, world: World) -> str | None:
    """What is told, listed and deleted is not part of the load any more, and its reservation has ended."""
    ledger = world.ledger
    for r in ledger.reservations:
        if r.open and r.sandbox in ledger.deleted:
            return f"{DELETED_HELD}: {r.sandbox}"
    ended = ledger.roster & ledger.deleted - ledger.paused
    load = ledger.load
    for name in ended:
        load = subtract(load, told_size(ledger, name) or ledger.zero)
    found = observed(ledger, rules)
    return None if all(a <= b for a, b in zip(found, load, strict=True)) else f"{DELETED_COUNTED}: {sorted(ended)}"


def _counted_twice(features: Features, rules: Rules, world: World) -> str | None:
    """Nothing is under way, the last report lists what lives, and nobody ended in doubt."""
    ledger = world.ledger
    still = not world.air and not world.events and ASKED not in world.phases
    seen = ledger.roster == frozenset(live(world)) and ledger.instance == f"i{world.process}"
    open_ended = any(
        r.state == PENDING and phase not in LIVE for r, phase in zip(ledger.reservations, world.phases, strict=False)
    )
    if HEARTBEAT in features.lifecycles:
        # Deadlines free what no pull brought; a boot that failed between two reports was never listed, and is
        # counted as entered only when the others have booted.
        entered = sum(phase not in (UNASKED, ASKED, DROPPED) for phase in world.phases)
        open_ended |= DROPPED in world.phases or ledger.entered < entered
    if not still or not seen or open_ended or ledger.baseline or not ledger.whole or _doubtful(features, world):
        return None
    if any(r.open and r.sandbox for r in ledger.reservations) or not _all_older(world):
        return None  # two more reports will tell
    found, real = believed(ledger, rules), real_load(features, world)
    if ledger.load != real or found == real:
        return None
    return f"{COUNTED_TWICE}: {_figures(real)} is in use, the ledger believes {_figures(found)}"


def _all_older(world: World) -> bool:
    return all(r.older or not r.open for r in world.ledger.reservations)


def _doubtful(features: Features, world: World) -> bool:
    """Sides on which the rules hold more on purpose: doubts, mixed callers, what RecordAssignment leaves unsized."""
    mixed = len(set(features.lifecycles)) > 1
    strangers = world.fork != UNASKED or features.assigned
    return mixed or strangers or any(r.doubt and not r.told for r in world.ledger.reservations)


def _not_let_go(features: Features, rules: Rules, world: World) -> str | None:
    """Once every create has ended or runs, callers have spoken, and two reports have come: nothing is held.
    What nobody spoke of is held to its deadline, and four reports long where an end stays in doubt."""
    if world.air or world.events or ASKED in world.phases:
        return None
    if BOOTING in world.phases:
        return _held_while_others_boot(features, rules, world)
    if DROPPED in world.phases and any(r.state == PENDING for r in world.ledger.reservations):
        return _held_after(features, rules, _after_deadlines(world), 5)
    if any(r.state == PENDING and not _enters(world, i) for i, r in enumerate(world.ledger.reservations)):
        return _held_after(features, rules, _after_deadlines(world), 5)
    if any(r.state == PENDING and r.lifecycle != HEARTBEAT for r in world.ledger.reservations):
        return _held_after(features, rules, _after_deadlines(world), 5)
    doubts = any(r.doubt and not r.told for r in world.ledger.reservations) or len(set(features.lifecycles)) > 1
    # Counters say nothing of what a replaced process has started: it is held to its deadline.
    doubts = doubts or world.process > 1 or world.fork != UNASKED
    return _held_after(features, rules, _after_deadlines(world) if doubts else world, 5 if doubts else 2)


def _held_while_others_boot(features: Features, rules: Rules, world: World) -> str | None:
    """What failed before a report listed it is not held until the others have booted, where nothing pauses."""
    ledger = world.ledger
    silent = set(features.lifecycles) == {HEARTBEAT} and not features.named and not features.assigned
    plain = world.process == 1 and world.fork == UNASKED and DROPPED not in world.phases and not ledger.pauses
    if (
        not silent
        or not plain
        or world.paused
        or world.resuming
        or any(r.doubt or r.sandbox for r in ledger.reservations)
    ):
        return None
    return _held_after(features, rules, world, 2)


def _enters(world: World, index: int) -> bool:
    return world.phases[index] not in (FAILED, DROPPED) or index >= len(world.phases)


def _after_deadlines(world: World) -> World:
    ledger = world.ledger
    for r in ledger.reservations:
        # What its process took along by unregistering no report judges any more.
        if r.state == PENDING or (r.open and ledger.record(r.sandbox) is None):
            ledger = calls.expire(ledger, r.name)
    for r in ledger.reservations:
        ledger = calls.doubt_is_over(ledger, r.name)
    return world._replace(ledger=ledger)


def _held_after(features: Features, rules: Rules, world: World, count: int) -> str | None:
    later = world
    sure = replace(features, hang_ups_seen=True)
    for _ in range(count):
        later = later._replace(process_sampled=later.process_sampled + 1, now=later.now + 2)
        later = deliver(rules, later, sample(sure, later, later.process_sampled))
    found, real = believed(later.ledger, rules), real_load(features, later)
    if found == real:
        return None
    return f"{NOT_LET_GO}: {count} reports later {_figures(real)} is in use, the ledger believes {_figures(found)}"


def _figures(size: Size) -> str:
    return "/".join(map(str, size))
