"""The index by CPU rows: which classes of node there are, and how their nodes spread over rows."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.inspection.walks import members_of
from scheduler.ledger.ledger import Ledger

FREE = "free"


@dataclass(frozen=True, slots=True)
class ClassLook:
    """`kind`: "class", or "free" for nodes that are found by what is free on them. Capacities are effective ones, None
    when not known; those of memory are the least and the most there have been. `rows`: how many hold a node, from
    `lowest` to `highest`."""

    name: str
    kind: str
    pool: str
    nodes: int
    rows: int
    lowest: int
    highest: int
    cpu_capacity: int | None = None
    least_memory_bytes: int | None = None
    most_memory_bytes: int | None = None


async def look_at_index(ledger: Ledger) -> tuple[ClassLook, ...]:
    """Every class in use, the largest first."""
    names = sorted({name async for name in members_of(ledger, "HSCAN", ledger.keys.classes)})
    found = [await _look(ledger, name) for name in names]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (-each.nodes, each.name)))


async def _look(ledger: Ledger, name: str) -> ClassLook | None:
    status, reply = await ledger.runner.run("read_class", name)
    if status == "missing":
        return None
    nodes, rows, lowest, highest, least, most = map(int, reply)
    parts = name.split(",")
    if parts[-1] == FREE:
        return ClassLook(name, FREE, parts[0], nodes, rows, lowest, highest)
    cpu = int(parts[2])
    return ClassLook(
        name, "class", parts[0], nodes, rows, lowest, highest, _known(cpu), _known(least), _known(most)
    )  # fmt: skip


def _known(capacity: int) -> int | None:
    return None if capacity < 0 else capacity
