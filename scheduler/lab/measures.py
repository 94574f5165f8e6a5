"""How a run is judged: true pressure over time, imbalance, warm hits.

True pressure of a node is what it has to bear by its capacity, in its tighter dimension: everything
placed on it, from the instant of the placement to the sandbox's end, whatever the ledger believes.
A dimension of unknown capacity (0) bears no pressure.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.lab.trace import NodeSpec


@dataclass(slots=True)
class _NodeLoad:
    cpu_capacity: int
    memory_capacity_mb: int
    cpu_count: int = 0
    memory_mb: int = 0
    sandboxes: int = 0
    since_ms: int = 0

    @property
    def pressure(self) -> float:
        cpu = self.cpu_count / self.cpu_capacity if self.cpu_capacity else 0.0
        memory = self.memory_mb / self.memory_capacity_mb if self.memory_capacity_mb else 0.0
        return max(cpu, memory)


@dataclass(frozen=True, slots=True)
class Moment:
    """The fleet from this instant to the next moment: its highest pressure and its imbalance."""

    at_ms: int
    highest: float
    imbalance: float


class _TimeMean:
    """The mean over time of a count that changes in steps."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = self._since_ms = start_ms
        self._count = 0
        self._area = 0

    def change(self, by: int, at_ms: int) -> None:
        self._area += self._count * (at_ms - self._since_ms)
        self._since_ms = at_ms
        self._count += by

    @property
    def mean(self) -> float:
        """Up to the last change; of a run that took no time, the count."""
        passed_ms = self._since_ms - self._start_ms
        return self._area / passed_ms if passed_ms else float(self._count)


class PressureRecord:
    """Fed with every placement and every end, in time order; asked once the run is over.

    Imbalance is the standard deviation of pressure between nodes. It is kept by running sums, so
    that one change costs the same in a fleet of ten and in one of ten thousand.
    """

    def __init__(self, nodes: Iterable[NodeSpec], start_ms: int) -> None:
        self._loads = {node.node_id: _NodeLoad(node.cpu_count, node.memory_mb, since_ms=start_ms) for node in nodes}
        self._sum = 0.0
        self._sum_of_squares = 0.0
        self._highest = 0.0
        self._spans: list[tuple[float, int]] = []
        self._used = _TimeMean(start_ms)
        self.peak_pressure = 0.0
        self.moments: list[Moment] = [Moment(start_ms, 0.0, 0.0)]

    def add(self, node_id: str, cpu_count: int, memory_mb: int, at_ms: int) -> None:
        load = self._loads[node_id]
        load.sandboxes += 1
        if load.sandboxes == 1:
            self._used.change(1, at_ms)
        self._change(load, cpu_count, memory_mb, at_ms)

    def remove(self, node_id: str, cpu_count: int, memory_mb: int, at_ms: int) -> None:
        load = self._loads[node_id]
        load.sandboxes -= 1
        if load.sandboxes == 0:
            self._used.change(-1, at_ms)
        self._change(load, -cpu_count, -memory_mb, at_ms)

    def close(self, at_ms: int) -> None:
        """The run ends here; what is still running has borne its pressure up to this instant."""
        for load in self._loads.values():
            self._spans.append((load.pressure, at_ms - load.since_ms))
            load.since_ms = at_ms
        self._used.change(0, at_ms)
        self.moments.append(Moment(at_ms, self._highest, self.imbalance))

    @property
    def mean_nodes_used(self) -> float:
        """How many nodes had a sandbox, averaged over time."""
        return self._used.mean

    @property
    def imbalance(self) -> float:
        """The imbalance at this instant."""
        count = len(self._loads)
        mean = self._sum / count
        return math.sqrt(max(0.0, self._sum_of_squares / count - mean * mean))

    @property
    def p99_pressure(self) -> float:
        """The pressure that 99 % of all node-time is at or under."""
        return weighted_quantile(self._spans, 0.99)

    @property
    def mean_imbalance(self) -> float:
        """Averaged over time."""
        total_ms = self.moments[-1].at_ms - self.moments[0].at_ms
        if total_ms == 0:
            return self.moments[-1].imbalance
        pairs = zip(self.moments, self.moments[1:], strict=False)
        return sum(earlier.imbalance * (later.at_ms - earlier.at_ms) for earlier, later in pairs) / total_ms

    def _change(self, load: _NodeLoad, cpu_count: int, memory_mb: int, at_ms: int) -> None:
        before = load.pressure
        self._spans.append((before, at_ms - load.since_ms))
        load.since_ms = at_ms
        load.cpu_count += cpu_count
        load.memory_mb += memory_mb
        after = load.pressure
        self._sum += after - before
        self._sum_of_squares += after * after - before * before
        if after >= self._highest:
            self._highest = after
        elif before == self._highest:
            self._highest = max(each.pressure for each in self._loads.values())
        self.peak_pressure = max(self.peak_pressure, after)
        self.moments.append(Moment(at_ms, self._highest, self.imbalance))


class WarmKeys:
    """Which keys each node ran last, `capacity` of them: what is still in its cache."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: dict[str, OrderedDict[str, None]] = {}
        self.asked = 0
        self.hits = 0

    def run(self, node_id: str, key: str) -> bool:
        """Run `key` there; True when it was warm. A request without a key asks nothing."""
        if not key:
            return False
        keys = self._keys.setdefault(node_id, OrderedDict())
        warm = key in keys
        keys[key] = None
        keys.move_to_end(key)
        if len(keys) > self._capacity:
            keys.popitem(last=False)
        self.asked += 1
        self.hits += warm
        return warm

    @property
    def hit_rate(self) -> float | None:
        """None when no request had a key."""
        return self.hits / self.asked if self.asked else None


def weighted_quantile(pairs: Sequence[tuple[float, int]], share: float) -> float:
    """The least value at or under which `share` of all weight lies; equal weights when all are 0."""
    if not pairs:
        return 0.0
    ordered = sorted(pairs)
    if not any(weight for _, weight in ordered):
        ordered = [(value, 1) for value, _ in ordered]
    wanted = share * sum(weight for _, weight in ordered)
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached >= wanted:
            return value
    return ordered[-1][0]


def thinned(moments: Sequence[Moment], points: int) -> list[Moment]:
    """At most about `points` moments that still draw the same picture: of each stretch of time, the
    highest pressure and the time-weighted imbalance."""
    if len(moments) < 2 or moments[0].at_ms == moments[-1].at_ms:
        return list(moments[-1:])
    start_ms, end_ms = moments[0].at_ms, moments[-1].at_ms
    width_ms = max(1, math.ceil((end_ms - start_ms) / points))
    drawn: list[Moment] = []
    index = 0
    for bucket_ms in range(start_ms, end_ms, width_ms):
        bucket_end_ms = min(bucket_ms + width_ms, end_ms)
        highest, weighted = 0.0, 0.0
        cursor_ms = bucket_ms
        while True:
            until_ms = min(moments[index + 1].at_ms, bucket_end_ms) if index + 1 < len(moments) else bucket_end_ms
            highest = max(highest, moments[index].highest)
            weighted += moments[index].imbalance * (until_ms - cursor_ms)
            cursor_ms = until_ms
            if index + 1 >= len(moments) or moments[index + 1].at_ms > bucket_end_ms:
                break
            index += 1
        drawn.append(Moment(bucket_ms, highest, weighted / (bucket_end_ms - bucket_ms)))
    return drawn
