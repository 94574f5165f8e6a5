"""Two nodes and one sandbox id: which of them the binding names. Rosters may be late, and lie.

The rule: a roster moves a binding unless its holder is fresh and lists the id, or the binding was told and the
holder has not yet sent the report that would prove the id absent. A node that never reported is not fresh. A report
whose caller has hung up moves nothing: calls end long before report_ttl, so no later one can be that old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.accounting.rules import Rules

PROVES = 2  # reports of the holder after the telling


class Node(NamedTuple):
    """`runs`: in truth. `air`: what a report under way says. `lists`: what its last accepted report said, None
    before the first. `misses`: reports since the telling that do not list what is told."""

    runs: bool = False
    air: bool | None = None
    lists: bool | None = None
    fresh: bool = False
    misses: int = 0
    given_up: bool = False  # the caller of the report under way has hung up
    sampled: int = 0


class Two(NamedTuple):
    """`holder` -1: no binding. `told`: by a confirm or RecordAssignment, where the sandbox ran at that time."""

    nodes: tuple[Node, Node] = (Node(), Node())
    holder: int = -1
    told: bool = False
    started: int = 0


def steps(rules: Rules, two: Two, reports: int) -> Iterator[tuple[str, Two]]:
    for index, node in enumerate(two.nodes):
        name = f"n{index + 1}"
        # One id runs on one node at a time, and on the second after the first: a move, or a restore.
        if not any(n.runs for n in two.nodes) and two.started <= index:
            yield f"the sandbox begins on {name}", _with(two, index, node._replace(runs=True), started=index + 1)
        if node.runs:
            yield f"it ends on {name}", _with(two, index, node._replace(runs=False))
            if not (two.told and two.holder == index):
                told = _with(two, index, node._replace(misses=0), holder=index, told=True)
                yield f"confirm: it runs on {name}", told
        if node.air is None and node.sampled < reports:
            sampled = node._replace(air=node.runs, given_up=False, sampled=node.sampled + 1)
            yield f"{name} samples {'it' if node.runs else 'nothing'}", _with(two, index, sampled)
        if node.air is not None:
            yield f"the report of {name} arrives", _arrive(rules, two, index)
        if node.fresh:
            nodes = [n._replace(given_up=n.air is not None) for n in two.nodes]
            nodes[index] = nodes[index]._replace(fresh=False)
            yield f"{name} is silent for report_ttl", two._replace(nodes=(nodes[0], nodes[1]))


def _with(two: Two, index: int, node: Node, **changes: object) -> Two:
    nodes = (node, two.nodes[1]) if index == 0 else (two.nodes[0], node)
    return two._replace(nodes=nodes)._replace(**changes)  # type: ignore[arg-type]  # fields of Two


def _arrive(rules: Rules, two: Two, index: int) -> Two:
    node, other = two.nodes[index], two.nodes[1 - index]
    if node.given_up and rules.hang_up_proves_nothing and two.holder == 1 - index:
        return _with(two, index, node._replace(air=None))
    listed, before = bool(node.air), node.lists
    node = node._replace(air=None, lists=listed, fresh=True)
    if listed:
        node = node._replace(misses=0)
        two = _with(two, index, node)
        if two.holder == 1 - index and rules.moves_guarded and _keeps(two, other):
            return two
        return two if two.holder == index else two._replace(holder=index, told=False)
    if two.holder != index:
        return _with(two, index, node)
    node = node._replace(misses=node.misses + 1)
    gone = bool(before) or not two.told or node.misses >= PROVES
    return _with(two, index, node, holder=-1, told=False) if gone else _with(two, index, node)


def _keeps(two: Two, holder: Node) -> bool:
    if holder.fresh and holder.lists:
        return True
    return two.told and holder.misses < PROVES and not holder.lists


def lost(said: str, after: Two) -> str | None:
    """With each report that lists the sandbox where it runs, there is a binding again. Until then a binding that two
    nodes contested may be missing for one report of the second."""
    for index, node in enumerate(after.nodes):
        if said == f"the report of n{index + 1} arrives" and node.runs and node.lists and after.holder == -1:
            return f"n{index + 1} runs and lists it, and there is no binding"
    return None


def moved(before: Two, after: Two) -> str | None:
    """A roster took a binding away from the node where the sandbox runs."""
    holder = before.holder
    if holder < 0 or not before.told or not before.nodes[holder].runs or after.holder == holder:
        return None
    return f"the binding left n{holder + 1}, where it runs"


def explore(rules: Rules, reports: int) -> tuple[str | None, list[str], int]:
    """The shortest story in which a binding is lost or stolen, and how many states there are."""
    first = Two()
    came_from: dict[Two, tuple[Two, str] | None] = {first: None}
    frontier = deque([first])
    while frontier:
        two = frontier.popleft()
        for said, after in steps(rules, two, reports):
            fault = moved(two, after) or lost(said, after)
            if after not in came_from:
                came_from[after] = (two, said)
                frontier.append(after)
            if fault is not None:
                return fault, [*_story(came_from, two), said], len(came_from)
    return None, [], len(came_from)


def _story(came_from: dict[Two, tuple[Two, str] | None], last: Two) -> list[str]:
    told: list[str] = []
    here = came_from[last]
    while here is not None:
        told.append(here[1])
        here = came_from[here[0]]
    return told[::-1]
