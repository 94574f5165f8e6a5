"""A lost ledger and two replicas that remember: whatever order they put back in, nothing is revived or lost.

Each replica remembers the newest revision of what it answered or saw end. Until every replica has put back what it
remembers, or a dead one's lease has passed, placements and unknown ids are answered `not_rebuilt`, and so is every
change of a reservation that is back already: one replica may have put back an older state than another remembers,
and a confirm of a reservation that was cancelled would be acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

OPEN, CONFIRMED, ENDED = "open", "confirmed", "ended"
REPLICAS = ("A", "B")


@dataclass(frozen=True)
class PutBack:
    """How memories come back. The defaults are the design."""

    at_all: bool = True
    newest_wins: bool = True  # False: what is put back first stays
    ends_remembered: bool = True
    placements_wait: bool = True
    changes_wait: bool = True


class Entry(NamedTuple):
    state: str
    revision: int


Memory = tuple[tuple[str, Entry], ...]  # by reservation


class Cluster(NamedTuple):
    """One node with capacity for one reservation. `truth`: what callers were answered; `witness`: by whom last.
    `died_with`: reservations whose newest state only a replica knew that died before it could put back."""

    truth: Memory = ()
    ledger: Memory = ()
    a: Memory = ()
    b: Memory = ()
    witness: tuple[tuple[str, str], ...] = ()
    died_with: frozenset[str] = frozenset()
    to_put_back: frozenset[str] = frozenset()
    alive: frozenset[str] = frozenset(REPLICAS)
    lost: int = 0
    asked: int = 0


def _put(memory: Memory, name: str, entry: Entry) -> Memory:
    return tuple(sorted([*((n, e) for n, e in memory if n != name), (name, entry)]))


def _memory(cluster: Cluster, replica: str) -> Memory:
    return cluster.a if replica == "A" else cluster.b


def _answer(how: PutBack, cluster: Cluster, replica: str, name: str, entry: Entry) -> Cluster:
    """The ledger has decided, and the replica remembers what it answers."""
    memory = _memory(cluster, replica)
    if entry.state != ENDED or how.ends_remembered:
        memory = _put(memory, name, entry)
    else:
        memory = tuple((n, e) for n, e in memory if n != name)
    witness = tuple(sorted([*((n, w) for n, w in cluster.witness if n != name), (name, replica)]))
    cluster = cluster._replace(
        ledger=_put(cluster.ledger, name, entry), truth=_put(cluster.truth, name, entry), witness=witness
    )
    return cluster._replace(a=memory) if replica == "A" else cluster._replace(b=memory)


def steps(how: PutBack, cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    known = dict(cluster.ledger)
    rebuilding = bool(cluster.to_put_back)
    may_place, may_change = not (how.placements_wait and rebuilding), not (how.changes_wait and rebuilding)
    for replica in sorted(cluster.alive):
        full = any(entry.state != ENDED for entry in known.values())
        if cluster.asked < 2 and may_place and not full:
            name = f"r{cluster.asked + 1}"
            placed = _answer(how, cluster, replica, name, Entry(OPEN, 1))
            yield f"{replica} answers schedule {name}", placed._replace(asked=cluster.asked + 1)
        for name, entry in known.items():
            if not may_change:
                continue
            if entry.state == OPEN:
                confirmed = Entry(CONFIRMED, entry.revision + 1)
                yield f"{replica} answers confirm {name}", _answer(how, cluster, replica, name, confirmed)
            if entry.state in (OPEN, CONFIRMED):
                ended = Entry(ENDED, entry.revision + 1)
                said = "cancel" if entry.state == OPEN else "a report that ends"
                yield f"{replica} answers {said} {name}", _answer(how, cluster, replica, name, ended)
        if replica in cluster.to_put_back:
            yield f"{replica} puts back what it remembers", _rebuild(how, cluster, replica)
    if not cluster.lost:
        waiting = cluster.alive if how.at_all else frozenset()
        lost = cluster._replace(ledger=(), to_put_back=frozenset(waiting), lost=1)
        yield "the ledger is lost", _forget_what_died(lost, frozenset(REPLICAS) - cluster.alive)
    if len(cluster.alive) == 2:
        died = cluster._replace(alive=frozenset("A"), b=())
        yield "replica B dies", _forget_what_died(died, cluster.to_put_back - {"A"})
    for dead in sorted(cluster.to_put_back - cluster.alive):
        yield f"the lease of {dead} passes", cluster._replace(to_put_back=cluster.to_put_back - {dead})


def _forget_what_died(cluster: Cluster, dead: frozenset[str]) -> Cluster:
    names = {name for name, replica in cluster.witness if replica in dead}
    return cluster._replace(died_with=cluster.died_with | names)


def _rebuild(how: PutBack, cluster: Cluster, replica: str) -> Cluster:
    ledger = dict(cluster.ledger)
    for name, entry in _memory(cluster, replica):
        held = ledger.get(name)
        if held is None or (how.newest_wins and entry.revision > held.revision):
            ledger[name] = entry
    return cluster._replace(ledger=tuple(sorted(ledger.items())), to_put_back=cluster.to_put_back - {replica})


def broken(cluster: Cluster) -> str | None:
    """Judged for what a living replica can know: what only a dead one answered is lost, and said so."""
    ledger = dict(cluster.ledger)
    truth = {name: entry for name, entry in cluster.truth if name not in cluster.died_with}
    granted = [name for name, entry in truth.items() if entry.state != ENDED]
    if len(granted) > 1:
        return f"capacity is given twice: {' and '.join(granted)}"
    if cluster.to_put_back:
        return None
    for name, entry in truth.items():
        found = ledger.get(name)
        if entry.state == ENDED and found is not None and found.state != ENDED:
            return f"{name} has ended and is {found.state} again"
        if entry.state != ENDED and found != entry:
            return f"{name} is {entry.state}, and the ledger says {found.state if found else 'nothing'}"
    return None


def explore(how: PutBack) -> tuple[str | None, list[str], int]:
    """The shortest story to a broken promise, and how many states there are."""
    first = Cluster()
    came_from: dict[Cluster, tuple[Cluster, str] | None] = {first: None}
    frontier = deque([first])
    while frontier:
        cluster = frontier.popleft()
        for said, after in steps(how, cluster):
            if after in came_from:
                continue
            came_from[after] = (cluster, said)
            fault = broken(after)
            if fault is not None:
                return fault, _story(came_from, after), len(came_from)
            frontier.append(after)
    return None, [], len(came_from)


def _story(came_from: Mapping[Cluster, tuple[Cluster, str] | None], last: Cluster) -> list[str]:
    told: list[str] = []
    here = came_from[last]
    while here is not None:
        told.append(here[1])
        here = came_from[here[0]]
    return told[::-1]
