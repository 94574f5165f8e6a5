"""What a request asks beside CPUs and memory: labels, further resources, its places, and what it leaves to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.domain.placement import OVER_NODES, Hint, Spread
from scheduler.domain.resources import DISK
from tests.support.model.facts import ModelNode


@dataclass(frozen=True)
class Places:
    """The places of one level: the nodes in those that have equally many, and whether these are named one by one."""

    node_ids: tuple[str, ...]
    named: bool = False


@dataclass(frozen=True)
class Demands:
    """`scarce`: labels and resources that are left to those who ask for them. `counts`: of the request's spread key, by
    node. `pending`: what reservations hold of further resources, by node. `labels_before`: of nodes whose report was
    forgotten and that have not reported since."""

    nodes: Mapping[str, ModelNode]
    require: Mapping[str, Sequence[str]] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    spread: Spread | None = None
    scarce: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    labels_before: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return bool(self.require or self.resources or self.spread)

    def mismatch(self, node_id: str) -> bool:
        labels = self.nodes[node_id].labels
        return any(labels.get(name) not in values for name, values in self.require.items())

    def lacking(self, node_id: str) -> str | None:
        """The first resource of which too little is free, as refusals name it. A disk that is not told has enough."""
        for name, amount in sorted(self.resources.items()):
            told = self.nodes[node_id].resources.get(name)
            if told is None and name == DISK:
                continue
            total, allocated = told or (0, 0)
            if amount > total - allocated - self.pending.get(node_id, {}).get(name, 0):
                return f"insufficient_{name}"
        return None

    def spared(self, node_id: str) -> bool:
        """Whether it has something scarce that the request does not ask for."""
        node = self.nodes[node_id]
        return any(name in node.labels or node.resources.get(name, (0, 0))[0] > 0 for name in self._left)

    @property
    def _left(self) -> list[str]:
        return [name for name in self.scarce if name not in self.require and name not in self.resources]

    @property
    def spares_any(self) -> bool:
        return bool(self._left)

    def place(self, node_id: str) -> str | None:
        assert self.spread is not None
        if self.spread.over == OVER_NODES:
            return node_id
        return self.nodes[node_id].labels.get(self.spread.over)

    def count_at(self, place: str) -> int:
        return sum(count for node_id, count in self.counts.items() if self._counts_in(node_id) == place)

    def _counts_in(self, node_id: str) -> str | None:
        """A node that may be gone counts in the place that it had last."""
        assert self.spread is not None
        if self.spread.over == OVER_NODES:
            return node_id
        labels = self.nodes[node_id].labels if node_id in self.nodes else {}
        return {**self.labels_before.get(node_id, {}), **labels}.get(self.spread.over)

    def ceiling(self, rounds: Sequence[Sequence[str]]) -> int:
        """The most that a place may have already. Places with a candidate count, whether or not it has capacity: of the
        first round that has any."""
        assert self.spread is not None
        if self.spread.max is not None:
            return self.spread.max - 1
        for node_ids in rounds:
            places = {place for node_id in node_ids if (place := self.place(node_id)) is not None}
            if places:
                return min(map(self.count_at, places)) + (self.spread.skew or 0) - 1
        return 0

    @property
    def own_group(self) -> str:
        """What tells groups of one image apart: those of a group require the same, and are spread in the same way."""
        require = ";".join(f"{name}={','.join(values)}" for name, values in sorted(self.require.items()))
        parts = [require] if require else []
        if self.spread is not None:
            bound, most = ("max", self.spread.max) if self.spread.max is not None else ("skew", self.spread.skew)
            parts.append(f"{bound},{most},{self.spread.over},{self.spread.key}")
        return "".join(f" {part}" for part in parts)

    def levels(self, node_ids: Sequence[str], ceiling: int) -> Iterator[Places]:
        """Those in places with fewest first, as far as the bound allows; without a spread key all of them at once."""
        if self.spread is None:
            yield Places(tuple(node_ids))
            return
        counts = {node_id: self.count_at(place) for node_id in node_ids if (place := self.place(node_id)) is not None}
        for level in sorted({count for count in counts.values() if count <= ceiling}):
            named = self.spread.over == OVER_NODES and level > 0
            yield Places(tuple(node_id for node_id in node_ids if counts.get(node_id) == level), named)

    def too_many(self, node_id: str, ceiling: int) -> bool:
        """Whether the spread keeps a node out: its place has too many already, or it is none."""
        if self.spread is None:
            return False
        place = self.place(node_id)
        return place is None or self.count_at(place) > ceiling


def demands_of(
    hint: Hint | None, nodes: Mapping[str, ModelNode], scarce: Sequence[str], pending: Mapping[str, Mapping[str, int]]
) -> Demands:
    """Ordinary routing asks for nothing and spares nothing."""
    if hint is None:
        return Demands(nodes)
    return Demands(nodes, hint.require, hint.resources, hint.spread, scarce, pending=pending)
