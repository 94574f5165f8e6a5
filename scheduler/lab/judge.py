"""What the ledger believes, held against what the nodes really run.

Every figure is the nodes': the judge reads the ledger only for what it says it holds. It looks at each placement,
at each refusal, and whenever a run asks for a sample.

*Held though free*: pending totals beyond what is really on its way. *Not held*: what is on its way and no pending
total covers. *Given twice*: a placement, or a node at a sample, beyond the node's capacity by what was
placed there, children of forks aside; those are counted as *over by forks*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.domain.node import Node
from scheduler.lab.node import Size
from scheduler.lab.truth import Truth


@dataclass(frozen=True, slots=True)
class Figures:
    """Shares are of the fleet's CPUs, averaged over the samples. `held_though_free_end` is the last sample's;
    `worst_pressure` the highest load by capacity that any node ever bore, children of forks included."""

    allocated: float
    least_allocated: float
    held_though_free: float
    held_though_free_end: float
    not_held: float
    given_twice: int
    over_by_forks: int
    worst_pressure: float
    refused: int
    refused_with_room: int
    refused_by_holding: int
    samples: int


@dataclass(frozen=True, slots=True)
class _Sample:
    allocated: float
    held_though_free: float
    not_held: float


class Judge:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._samples: list[_Sample] = []
        self._counts: Counter[str] = Counter()
        self._worst_pressure = 0.0

    def placed(self, node_id: str) -> None:
        """Call it as soon as the node of a placement is known and the create is coming there."""
        self._look_at(node_id)

    def refused(self, size: Size) -> None:
        self._counts["refused"] += 1
        self._counts["refused_with_room"] += self._truth.anywhere_room(size)
        self._counts["refused_by_holding"] += self._truth.anywhere_known_room(size)

    def sample(self, nodes: Sequence[Node]) -> None:
        """`nodes`: what the ledger says of every one of them now."""
        unused = unheld = 0
        for node in nodes:
            self._look_at(node.node_id)
            beyond = node.pending.cpu_count - self._truth.on_its_way(node.node_id).cpu_count
            unused += max(0, beyond)
            unheld += max(0, -beyond)
        total = self._truth.total_cpu_count
        self._samples.append(_Sample(self._truth.allocated, unused / total, unheld / total))

    def forget_counts(self) -> None:
        """From here on the figures count; until now the fleet was filling up. Overdrawn nodes are not forgotten."""
        self._samples.clear()
        for name in ("refused", "refused_with_room", "refused_by_holding"):
            self._counts[name] = 0

    def figures(self) -> Figures:
        samples = self._samples or [_Sample(self._truth.allocated, 0.0, 0.0)]
        return Figures(
            allocated=_mean([sample.allocated for sample in samples]),
            least_allocated=min(sample.allocated for sample in samples),
            held_though_free=_mean([sample.held_though_free for sample in samples]),
            held_though_free_end=samples[-1].held_though_free,
            not_held=_mean([sample.not_held for sample in samples]),
            given_twice=self._counts["given_twice"],
            over_by_forks=self._counts["over_by_forks"],
            worst_pressure=self._worst_pressure,
            refused=self._counts["refused"],
            refused_with_room=self._counts["refused_with_room"],
            refused_by_holding=self._counts["refused_by_holding"],
            samples=len(self._samples),
        )

    def _look_at(self, node_id: str) -> None:
        capacity, used = self._truth.capacity(node_id), self._truth.used(node_id)
        pressure = max(used.cpu_count / capacity.cpu_count, used.memory_mb / capacity.memory_mb)
        self._worst_pressure = max(self._worst_pressure, pressure)
        if not self._truth.used_by_placed(node_id).within(capacity):
            self._counts["given_twice"] += 1
        elif not used.within(capacity):
            self._counts["over_by_forks"] += 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
