"""Breadth-first search: every state that a number of steps can reach, and the shortest story to a broken promise."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tests.support.accounting.invariants import broken
from tests.support.accounting.ledger import believed
from tests.support.accounting.life import next_steps
from tests.support.accounting.rules import Rules
from tests.support.accounting.world import Features, World, beginning


@dataclass(frozen=True)
class Found:
    """`fault` None: none among `states`. `exhausted`: they are all there are; `depth` steps were looked at whole."""

    fault: str | None
    steps: tuple[str, ...]
    states: int
    depth: int
    exhausted: bool
    features: Features

    def __str__(self) -> str:
        if self.fault is None:
            bound = "all" if self.exhausted else f"every story of {self.depth} steps"
            return f"holds: {self.features}: {bound}, {self.states} states"
        told = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"{self.features}\n{told}\n  => {self.fault}"


def search(features: Features, rules: Rules, states: int) -> Found:
    """Look at as many states as asked, nearest first."""
    first = beginning(features)
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    frontier: deque[tuple[World, int]] = deque([(first, 0)])
    depth = 0
    while frontier and len(came_from) < states:
        world, depth = frontier.popleft()
        for said, after, _ in next_steps(features, rules, world):
            if after in came_from:
                continue
            came_from[after] = (world, said)
            fault = broken(features, rules, after)
            if fault is not None:
                return Found(fault, story(rules, came_from, after), len(came_from), depth + 1, False, features)
            frontier.append((after, depth + 1))
    return Found(None, (), len(came_from), depth, not frontier, features)


def story(rules: Rules, came_from: dict[World, tuple[World, str] | None], last: World) -> tuple[str, ...]:
    steps: list[str] = []
    here = came_from[last]
    reached = last
    while here is not None:
        figures = "/".join(map(str, believed(reached.ledger, rules)))
        steps.append(f"{here[1]} (believed: {figures})")
        reached = here[0]
        here = came_from[reached]
    return tuple(reversed(steps))
