"""Who a ranked placement may choose, and why nobody: every node's row read and compared, in the plainest way.

The rows in `loads` are what the index is made of. What a row is made of is other models' business.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

POOLS = {"any": "rc", "ready": "r", "degraded": "u"}
TOLD_APART_MOST = 1_000


@dataclass(frozen=True)
class Demand:
    """Memory in bytes; 0: not stated. `admits`: capacity keeps nodes out."""

    cpu: int
    memory: int
    creation: bool = True
    admits: bool = True
    cpu_unlimited: bool = False
    memory_unlimited: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    node_id: str
    pool: str
    cpu_capacity: int
    memory_capacity: int
    cpu_load: int
    memory_load: int
    counts: tuple[int, int, int]
    pending: tuple[int, int, int]
    most: tuple[int, int, int] = (-1, -1, -1)
    labels: str = ""
    free: Mapping[str, int] = field(default_factory=dict)
    present: tuple[str, ...] = ()

    @classmethod
    def of(cls, node_id: str, text: str) -> Row:
        load, _, further = text.partition(";")
        labels, _, further = further.partition(";")
        loads = (part.partition("=") for part in further.split(";") if part)
        sums = {name: tuple(map(int, numbers.split(":"))) for name, _, numbers in loads}
        free = {name: total - used - held for name, (total, used, held) in sums.items()}
        pool, *numbers = load.split(",")
        cpu, memory, cpu_load, memory_load, starting, running, paused, *rest = map(int, numbers)
        pending, most = rest[:3], rest[3:6] or [-1, -1, -1]
        return cls(
            node_id, pool, cpu, memory, cpu_load + pending[0], memory_load + pending[1],
            (starting + pending[2], running, paused), (pending[0], pending[1], pending[2]), (most[0], most[1], most[2]),
            labels,
            free,
            tuple(sorted(name for name, (total, _, _) in sums.items() if total > 0)),
        )  # fmt: skip

    def pressure(self, demand: Demand) -> float:
        return max(
            _share(self.cpu_load + demand.cpu, self.cpu_capacity),
            _share(self.memory_load + demand.memory, self.memory_capacity),
        )

    @property
    def alike(self) -> tuple[int, int]:
        return alike(self.cpu_capacity, self.memory_capacity)

    @property
    def class_key(self) -> object:
        return self.pool, self.alike, self.most != (-1, -1, -1), self.labels, self.present

    @property
    def fullness(self) -> tuple[int, int]:
        """CPUs in use, and how little memory is free, where it is known."""
        cpu = self.cpu_load if self.cpu_capacity >= 0 else 0
        return cpu, self.memory_load - self.memory_capacity if self.memory_capacity >= 0 else 0

    def obstacle(self, demand: Demand) -> str | None:
        """Why a creation does not fit, whether or not that keeps it out."""
        sums = (self.cpu_load + demand.cpu, self.memory_load + demand.memory, self.counts[0] + self.counts[1] + 1)
        if not demand.creation:
            return None
        if any(0 <= most < total for most, total in zip(self.most, sums, strict=True)):
            return "over_limit"
        if not demand.cpu_unlimited and _full(self.cpu_load, demand.cpu, self.cpu_capacity):
            return "insufficient_cpu"
        if not demand.memory_unlimited and _full(self.memory_load, demand.memory, self.memory_capacity):
            return "insufficient_memory"
        return self.lacking(demand)

    def lacking(self, demand: Demand) -> str | None:
        """A further resource that keeps it out, whether or not capacity does."""
        short = (name for name, amount in sorted(demand.resources.items()) if self.free.get(name, 0) < amount)
        return next((f"insufficient_{name}" for name in short), None)

    def is_unknown(self, demand: Demand) -> bool:
        known = [capacity >= 0 for capacity in (self.cpu_capacity, self.memory_capacity)]
        asked = [self.pending[0] + demand.cpu > 0, self.pending[1] + demand.memory > 0]
        waits = any(wanted and not there for wanted, there in zip(asked, known, strict=True))
        return self.pool in "cC" or not any(known) or waits

    def rank(self, demand: Demand) -> tuple[int, float, tuple[int, int, int]]:
        """Kind, pressure, counts; the least is best. From 4 on they are chosen only where capacity keeps nobody out."""
        obstacle, pressure = self.obstacle(demand), self.pressure(demand)
        if obstacle is not None:
            worst = ["insufficient_cpu", "insufficient_memory", "over_limit"]
            kind = 6 if self.lacking(demand) or obstacle not in worst else 4 + worst.index(obstacle)
            return kind, pressure, self.counts
        unknown = self.is_unknown(demand)
        kind = 2 * self.pool.isupper() + unknown
        return kind, 0.0 if unknown else pressure, self.counts


def _share(load: int, capacity: int) -> float:
    if capacity < 0:
        return 0.0
    return load / capacity if capacity else (2.0**60 if load else 0.0)


def _full(load: int, requested: int, capacity: int) -> bool:
    if capacity < 0:
        return False
    return load + requested > capacity if requested else load >= capacity


def alike(cpu: int, memory: int) -> tuple[int, int]:
    """Nodes are alike that have the same CPUs, and memory within a 64th of an octave."""
    width = max(1, 2 ** (math.frexp(max(1, memory))[1] - 1) // 64)
    return cpu, memory // width * width if memory > 0 else memory


def rows_of(loads: Mapping[str, str]) -> list[Row]:
    return [Row.of(node_id, text) for node_id, text in loads.items()]


def candidates(
    rows: Iterable[Row], variant: str, excluded: Sequence[str] = (), matches: frozenset[str] | None = None
) -> list[Row]:
    """`matches`: the label sets with what the request requires."""
    return [
        row
        for row in rows
        if row.pool.lower() in POOLS[variant]
        and row.node_id not in excluded
        and (matches is None or row.labels in matches)
    ]


def best(among: Sequence[Row], demand: Demand) -> list[Row]:
    """All that are equally good, in id order; empty: nobody will do."""
    ranked = {row.node_id: row.rank(demand) for row in among}
    allowed = [row for row in among if ranked[row.node_id][0] < (4 if demand.admits else 6)]
    least = min((ranked[row.node_id] for row in allowed), default=None)
    return sorted((row for row in allowed if ranked[row.node_id] == least), key=lambda row: row.node_id.encode())


def fullest(among: Sequence[Row], demand: Demand, share: float) -> list[Row]:
    """The nodes that are filled before others are begun, equally good ones in id order; empty: none stays within the
    share.

    Of each class of nodes alike, label set included: those with the most CPUs in use, of these those with the least
    memory free. Then the highest pressure, then most running."""
    within = [row for row in among if row.rank(demand)[0] == 0 and row.pressure(demand) <= share]
    if not within:  # avoided ones come when nobody else will do
        others = any(row.rank(demand)[0] < 2 for row in among)
        within = [row for row in among if row.rank(demand)[0] == 2 and row.pressure(demand) <= share and not others]
    best: dict[object, list[Row]] = {}
    for row in within:
        best.setdefault(row.class_key, []).append(row)
    heads = [row for rows in best.values() for row in rows if row.fullness == max(each.fullness for each in rows)]
    order = {row.node_id: (row.pressure(demand), row.counts[1]) for row in heads}
    return sorted(
        (row for row in heads if order[row.node_id] == max(order.values())), key=lambda row: row.node_id.encode()
    )


def uneven_among(sizes: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Kinds of nodes that the index takes for alike and that are not quite: their pressures are compared nearly."""
    found: dict[tuple[int, int], set[int]] = {}
    for cpu, memory in sizes:
        found.setdefault(alike(cpu, memory), set()).add(memory)
    return {kind for kind, memories in found.items() if len(memories) > 1 or kind[0] > 16_384}


# Of so many nodes with the least pressure, in rows of the index together, the ledger finds those with the least counts.
COUNTED_MOST = 32


def is_as_good(
    chosen: Row, least: Row, among: Sequence[Row], demand: Demand, uneven: Collection[tuple[int, int]] = ()
) -> bool:
    """Memory capacities that differ by 1/4096 count as equal, so a pressure may be above the least by as much, and ties
    with no other. Counts break ties among some nodes of some rows only."""
    found, wanted = chosen.rank(demand), least.rank(demand)
    if found[1] == wanted[1]:
        tied = [row for row in among if row.rank(demand)[:2] == wanted[:2]]
        # Those that lack a further resource stand in the same rows, and are looked at as well.
        met = [row for row in among if row.pressure(demand) == wanted[1]]
        rows = {(row.class_key, row.memory_capacity, row.cpu_load) for row in met}
        if any(row.alike in uneven for row in tied):
            return found[:2] == wanted[:2]
        many = wanted[0] % 2 == 0 and (len(rows) > 16 or len(met) > COUNTED_MOST // len(rows))
        return found == wanted or (many and found[:2] == wanted[:2])
    return found[0] == wanted[0] and found[1] <= wanted[1] * (1 + 2**-12)


def refused_for_limits_before(among: Sequence[Row], demand: Demand, pressure: float) -> int:
    """How many nodes a search by pressure meets and may not choose, before it comes to this one."""
    return sum(_asked_in_vain(row, demand) and row.pressure(demand) <= pressure for row in among)


def refused_for_limits(among: Sequence[Row], demand: Demand) -> int:
    """How many a search for the fullest may meet and may not choose."""
    return sum(_asked_in_vain(row, demand) for row in among)


def _asked_in_vain(row: Row, demand: Demand) -> bool:
    """A search meets it by its load, and something else keeps it out."""
    return row.obstacle(demand) == "over_limit" or row.lacking(demand) is not None


def nearest(among: Sequence[Row], demand: Demand, limit: str) -> tuple[int, int] | None:
    """Of the candidates that lack a capacity what is taken, and the whole, on the one that has most of it free: of
    those that have the CPUs when they are empty, if there are such."""
    lacking = [
        row
        for row in among
        if row.obstacle(demand) == {"cpu_count": "insufficient_cpu"}.get(limit, "insufficient_memory")
    ]
    able = [row for row in lacking if row.cpu_capacity >= demand.cpu]
    sums = [
        (row.cpu_load, row.cpu_capacity) if limit == "cpu_count" else (row.memory_load, row.memory_capacity)
        for row in able or lacking
    ]
    return max(sums, key=lambda each: each[1] - each[0], default=None)


def reasons(among: Sequence[Row], demand: Demand) -> Counter[str]:
    """What a refusal says of candidates, without the reasons that others have."""
    counted = Counter(row.obstacle(demand) or "none" for row in among)
    if counted["insufficient_cpu"] + counted["insufficient_memory"] > TOLD_APART_MOST:
        counted["insufficient_capacity"] = counted.pop("insufficient_cpu", 0) + counted.pop("insufficient_memory", 0)
    return +counted
