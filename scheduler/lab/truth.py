"""What really runs where, and what a perfect ledger would make of the nodes' reports.

A node is *used* by what it runs, by what it boots, and by the creates that will still come to it. A create that
was placed is *on its way* until the newest report that has arrived lists its sandbox: exactly that is what a
ledger has to hold beside the reports, no more and no less. A fork's child uses its node too, but nobody
reserved capacity for it.
"""

from __future__ import annotations

from scheduler.lab.fleet import Fleet
from scheduler.lab.node import SimulatedNode, Size, total


class Truth:
    def __init__(self, fleet: Fleet) -> None:
        self._nodes = fleet.nodes
        self.total_cpu_count = sum(node.spec.cpu_count for node in fleet.nodes.values())

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    @property
    def allocated(self) -> float:
        """Share of the fleet's CPUs that is used."""
        return sum(self.used(node_id).cpu_count for node_id in self._nodes) / self.total_cpu_count

    def capacity(self, node_id: str) -> Size:
        return _capacity(self._nodes[node_id])

    def used(self, node_id: str) -> Size:
        node = self._nodes[node_id]
        return node.allocated + total(node.coming.values())

    def used_by_placed(self, node_id: str) -> Size:
        """What placed sandboxes use, without the children of forks."""
        node = self._nodes[node_id]
        placed = (each.size for each in node.sandboxes.values() if not each.forked)
        return total(placed) + total(node.coming.values())

    def on_its_way(self, node_id: str) -> Size:
        node = self._nodes[node_id]
        unlisted = (
            each.size
            for sandbox_id, each in node.sandboxes.items()
            if not each.forked and sandbox_id not in node.reported_ids
        )
        return total(unlisted) + total(node.coming.values())

    def anywhere_room(self, size: Size) -> bool:
        return any((self.used(node_id) + size).within(self.capacity(node_id)) for node_id in self._nodes)

    def anywhere_known_room(self, size: Size) -> bool:
        """Whether there was room, as far as anybody could know who has every node's newest report and forgets
        nothing."""
        return any(
            (node.reported_allocation + self.on_its_way(node_id) + size).within(_capacity(node))
            for node_id, node in self._nodes.items()
        )

    def how_many_fit(self, size: Size) -> int:
        """So many of this size the fleet could take now."""
        return sum(self._fit_on(node_id, size) for node_id in self._nodes)

    def _fit_on(self, node_id: str, size: Size) -> int:
        capacity, used = self.capacity(node_id), self.used(node_id)
        by_cpu = (capacity.cpu_count - used.cpu_count) // size.cpu_count
        by_memory = (capacity.memory_mb - used.memory_mb) // size.memory_mb
        return max(0, min(by_cpu, by_memory))


def _capacity(node: SimulatedNode) -> Size:
    return Size(node.spec.cpu_count, node.spec.memory_mb)
