"""What no scheduler could have bettered: bounds for a run, from what was placed and when.

At an instant the running sandboxes are known, with their sizes. A linear program spreads them over the fleet as if
they could be cut in pieces, each only over machines that could bear the whole of it; what it finds, no placement can be
below. It is solved for the instants with most load, so that the bound of a run costs seconds whatever its length.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from scheduler.lab.trace import NodeSpec

WORST_INSTANTS = 12
SAMPLED_INSTANTS = 40
# Of the solver's answers, which are a hair off what they should be.
TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Stay:
    """A sandbox on its node, from its placement to its end; `end_ms` None: it never ended."""

    start_ms: int
    end_ms: int | None
    cpu_count: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """`peak_pressure`: no placement of these sandboxes has a lower peak. `nodes`: the fewest machines of this fleet
    that hold them at the busiest instant, none above its capacity; `nodes_mean`: averaged over time. None: not all of
    the machines together hold them."""

    peak_pressure: float
    nodes: int | None
    nodes_mean: float | None


Shape = tuple[int, int]
# Sizes, and how many there are of each: sandboxes at one instant, or machines.
Amounts = frozenset[tuple[Shape, int]]


def bounds_available() -> bool:
    """Whether the solver is installed: `pip install 'agentenv-scheduler[bounds]'`."""
    return find_spec("scipy") is not None


def bounds_of(nodes: Iterable[NodeSpec], stays: Sequence[Stay], end_ms: int) -> Bounds:
    """The lower bounds for a run that is measured up to `end_ms`. Needs scipy."""
    machines = frozenset(Counter((node.cpu_count, node.memory_mb) for node in nodes).items())
    worst = _worst_moments(stays, machines)
    peak = max((least_peak(machines, sizes) for sizes in worst), default=0.0)
    needed = [fewest_nodes(machines, sizes) for sizes in worst]
    sampled = [fewest_nodes(machines, sizes) for sizes in _sampled_moments(stays, end_ms)]
    return Bounds(peak, _most(needed), _mean(sampled))


@lru_cache(10_000)
def least_peak(machines: Amounts, sizes: Amounts) -> float:
    """The lowest peak pressure at which the fleet bears these sandboxes together."""
    steps = sorted({_pressure(size, machine) for size, _ in sizes for machine, _ in machines})
    if not steps:
        return 0.0

    @lru_cache
    def solved(at: int) -> float:
        """The least peak when no sandbox is on a machine that it alone would press harder than this step."""
        return _Spread(machines, sizes, steps[at]).least_peak()

    first = bisect_left(range(len(steps)), True, key=lambda at: solved(at) <= steps[at] + TOLERANCE)
    candidates = [steps[first]] if first < len(steps) else [solved(len(steps) - 1)]
    if first > 0:
        candidates.append(solved(first - 1))
    return min(candidates)


@lru_cache(10_000)
def fewest_nodes(machines: Amounts, sizes: Amounts) -> int | None:
    """How many machines hold these sandboxes within their capacity; None: not all of them do."""
    fewest = _Spread(machines, sizes, 1.0).fewest_nodes()
    return None if math.isinf(fewest) else math.ceil(fewest - TOLERANCE)


class _Spread:
    """One linear program: how many sandboxes of each size go to each kind of machine, where `limit` lets them."""

    def __init__(self, machines: Amounts, sizes: Amounts, limit: float) -> None:
        self._machines = sorted(machines)
        self._sizes = sorted(sizes)
        self._pairs = [
            (row, column)
            for row, (size, _) in enumerate(self._sizes)
            for column, (machine, _) in enumerate(self._machines)
            if _pressure(size, machine) <= limit
        ]

    def least_peak(self) -> float:
        """One more variable: the pressure that all machines are at or under."""
        capacities = [[-float(amount * count)] for machine, count in self._machines for amount in machine]
        return self._solve([1.0], [(0.0, None)], capacities)

    def fewest_nodes(self) -> float:
        """As many more variables as kinds: how many machines of each are in use."""
        kinds = len(self._machines)
        capacities = [
            [-float(amount) if other == kind else 0.0 for other in range(kinds)]
            for kind, (machine, _) in enumerate(self._machines)
            for amount in machine
        ]
        return self._solve([1.0] * kinds, [(0.0, count) for _, count in self._machines], capacities)

    def _solve(
        self,
        costs: Sequence[float],
        ranges: Sequence[tuple[float, float | None]],
        capacities: Sequence[Sequence[float]],
    ) -> float:
        """The least cost at which everything has a place; infinite when not all of it has one. `capacities`: of each
        kind of machine and dimension (CPUs, memory) what the variables with a cost take off the load."""
        from scipy.optimize import linprog  # an extra, and large
        from scipy.sparse import lil_matrix

        if {row for row, _ in self._pairs} != set(range(len(self._sizes))):
            return math.inf
        pairs, others = len(self._pairs), len(costs)
        placed = lil_matrix((len(self._sizes), pairs + others))
        loads = lil_matrix((2 * len(self._machines), pairs + others))
        for at, (row, column) in enumerate(self._pairs):
            placed[row, at] = 1.0
            size, machine = self._sizes[row][0], self._machines[column][0]
            for dimension in (0, 1):
                if machine[dimension] > 0:
                    loads[2 * column + dimension, at] = float(size[dimension])
        for row, taken in enumerate(capacities):
            for at, amount in enumerate(taken):
                loads[row, pairs + at] = amount
        found = linprog(
            [0.0] * pairs + list(costs),
            A_ub=loads.tocsr(),
            b_ub=[0.0] * (2 * len(self._machines)),
            A_eq=placed.tocsr(),
            b_eq=[float(count) for _, count in self._sizes],
            bounds=[(0.0, None)] * pairs + list(ranges),
            method="highs",
        )
        return float(found.fun) if found.success else math.inf


def _pressure(size: Shape, machine: Shape) -> float:
    """The pressure of one sandbox alone on a machine; a dimension of unknown capacity (0) bears no pressure."""
    return max((asked / has for asked, has in zip(size, machine, strict=True) if has), default=0.0)


def _worst_moments(stays: Sequence[Stay], machines: Amounts) -> list[Amounts]:
    """What runs at the instants with most load in either dimension, and when the sandbox comes that is hardest to
    place."""
    totals = [sum(machine[dimension] * count for machine, count in machines) for dimension in (0, 1)]
    heaviest: list[tuple[float, int]] = []
    for at_ms, sizes_total in _totals(stays):
        share = max((load / total for load, total in zip(sizes_total, totals, strict=True) if total), default=0.0)
        heapq.heappush(heaviest, (share, at_ms))
        if len(heaviest) > WORST_INSTANTS:
            heapq.heappop(heaviest)
    hardest = max(stays, key=lambda stay: _least_alone((stay.cpu_count, stay.memory_mb), machines), default=None)
    instants = {at_ms for _, at_ms in heaviest} | ({hardest.start_ms} if hardest else set())
    return list(_running_at(stays, instants))


def _least_alone(size: Shape, machines: Amounts) -> float:
    return min((_pressure(size, machine) for machine, _ in machines), default=0.0)


def _sampled_moments(stays: Sequence[Stay], end_ms: int) -> list[Amounts]:
    if not stays:
        return []
    start_ms = min(stay.start_ms for stay in stays)
    width_ms = max(1, (end_ms - start_ms) // SAMPLED_INSTANTS)
    return list(_running_at(stays, range(start_ms, end_ms + 1, width_ms)))


def _totals(stays: Sequence[Stay]) -> Iterator[tuple[int, tuple[int, int]]]:
    """(CPUs, MiB) after each start; what ends in the same instant has gone before."""
    cpu_count = memory_mb = 0
    ends: list[tuple[int, int, int]] = []
    for stay in sorted(stays, key=lambda stay: stay.start_ms):
        while ends and ends[0][0] <= stay.start_ms:
            _, ended_cpu_count, ended_memory_mb = heapq.heappop(ends)
            cpu_count, memory_mb = cpu_count - ended_cpu_count, memory_mb - ended_memory_mb
        cpu_count, memory_mb = cpu_count + stay.cpu_count, memory_mb + stay.memory_mb
        if stay.end_ms is not None:
            heapq.heappush(ends, (stay.end_ms, stay.cpu_count, stay.memory_mb))
        yield stay.start_ms, (cpu_count, memory_mb)


def _running_at(stays: Sequence[Stay], instants: Iterable[int]) -> Iterator[Amounts]:
    """How many sandboxes of each size run at each instant."""
    for at_ms in sorted(instants):
        running = (stay for stay in stays if stay.start_ms <= at_ms and (stay.end_ms is None or at_ms < stay.end_ms))
        yield frozenset(Counter((stay.cpu_count, stay.memory_mb) for stay in running).items())


def _most(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known, default=0) if len(known) == len(counts) else None


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    return sum(known) / len(known) if known else 0.0
