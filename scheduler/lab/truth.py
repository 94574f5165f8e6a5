"""What really runs where, and what a perfect ledger would make of the nodes' reports.

A sandbox is *alive* from its placement to its end. One that was placed is *on its way* as long as it
is alive and its node's last report does not list it: exactly that is what a ledger has to hold beside
the reports, no more and no less. A fork's child is alive too, but nobody promised it a place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.lab.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Size:
    cpu_count: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class _Alive:
    size: Size
    placed: bool


def total(sizes: Iterable[Size]) -> Size:
    cpu_count = memory_mb = 0
    for size in sizes:
        cpu_count += size.cpu_count
        memory_mb += size.memory_mb
    return Size(cpu_count, memory_mb)


class Truth:
    def __init__(self, fleet: Fleet) -> None:
        self._nodes = fleet.nodes
        self._alive: dict[str, dict[str, _Alive]] = {node_id: {} for node_id in fleet.nodes}
        self.alive_cpu_count = 0
        self.total_cpu_count = sum(node.spec.cpu_count for node in fleet.nodes.values())

    @property
    def allocated(self) -> float:
        """Share of the fleet's CPUs that is alive."""
        return self.alive_cpu_count / self.total_cpu_count

    def begin(self, node_id: str, sandbox_id: str, size: Size, *, placed: bool = True) -> None:
        self._alive[node_id][sandbox_id] = _Alive(size, placed)
        self.alive_cpu_count += size.cpu_count

    def end(self, node_id: str, sandbox_id: str) -> None:
        """Ending what has ended already changes nothing."""
        if ended := self._alive[node_id].pop(sandbox_id, None):
            self.alive_cpu_count -= ended.size.cpu_count

    def on_its_way(self, node_id: str) -> Size:
        reported = self._nodes[node_id].reported_ids
        alive = self._alive[node_id].items()
        return total(each.size for sandbox_id, each in alive if each.placed and sandbox_id not in reported)

    def has_room(self, node_id: str, size: Size) -> bool:
        return self._fits(node_id, total(each.size for each in self._alive[node_id].values()), size)

    def has_known_room(self, node_id: str, size: Size) -> bool:
        """As far as anybody could know who has this node's last report and forgets nothing."""
        cpu_count, memory_mb = self._nodes[node_id].reported_allocation
        return self._fits(node_id, total([Size(cpu_count, memory_mb), self.on_its_way(node_id)]), size)

    def anywhere_room(self, size: Size) -> bool:
        return any(self.has_room(node_id, size) for node_id in self._nodes)

    def anywhere_known_room(self, size: Size) -> bool:
        return any(self.has_known_room(node_id, size) for node_id in self._nodes)

    def _fits(self, node_id: str, load: Size, size: Size) -> bool:
        spec = self._nodes[node_id].spec
        return load.cpu_count + size.cpu_count <= spec.cpu_count and load.memory_mb + size.memory_mb <= spec.memory_mb
