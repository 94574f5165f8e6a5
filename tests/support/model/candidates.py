"""The candidates of one placement: who may be chosen, why one will not do, and the best of them by load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.domain.placement import Strategy
from scheduler.domain.settings import Admission, LedgerSettings
from tests.support.model.demands import Demands
from tests.support.model.facts import ModelGroup, ModelNode, Totals
from tests.support.model.ranking import (
    Rank,
    RankKey,
    Request,
    dimensions,
    exceeds_when_created,
    fullness,
    insufficient,
    node_class,
    over_limit,
    rank_key,
)


@dataclass
class Cursors:
    """Ids last chosen by rotation, and the two counters that break ties."""

    chosen: dict[str, str] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)


def ranked_to(settings: LedgerSettings) -> float | None:
    """To which share of its capacity a node is filled before another is begun, where nodes are ranked by load."""
    shares = {Strategy.LEAST_LOADED: settings.fill_to / 1000, Strategy.MOST_LOADED: 1.0}
    return shares.get(settings.strategy)


class Candidates:
    """A still picture of the fleet. `pending_resources`: what reservations hold of further resources, by node.
    `spread_counts`: how many each node has of a spread key. `labels_before`: of nodes whose report was forgotten, until
    they report again. What is being placed is set by `Chooser`."""

    wanted: Request
    demands: Demands
    degraded: bool
    sparing: bool
    ceiling: int
    candidates: Sequence[str]
    pending_resources: Mapping[str, Mapping[str, int]] = {}
    labels_before: Mapping[str, Mapping[str, str]] = {}
    named = False

    def spread_counts(self, key: str) -> Mapping[str, int]:
        raise NotImplementedError

    def __init__(
        self,
        settings: LedgerSettings,
        nodes: Mapping[str, ModelNode],
        pending: Callable[[str], Totals],
        now_ms: int,
        cursors: Cursors,
        groups: Mapping[str, ModelGroup],
        warm: Mapping[str, Container[str]],
    ) -> None:
        self.settings = settings
        self.nodes = nodes
        self.pending = pending
        self.cursors = cursors
        self.groups = groups
        self.warm = warm
        self.classes = {node_id: node_class(node, now_ms, settings) for node_id, node in nodes.items()}

    # Who may be chosen

    def _last_resort_is_open(self) -> bool:
        """Only when nobody at all is fresh, full or not; never for groups."""
        fresh = {"ready", "connecting", "over_limit"} & set(self.classes.values())
        return not fresh and self.settings.strategy is not Strategy.GROUPED_ROUND_ROBIN

    def _pool(self) -> list[str]:
        if self.settings.strategy is Strategy.GROUPED_ROUND_ROBIN:
            return self._of_class("ready")
        if self.degraded:
            # Limits hold in the last resort too: the class of a silent node hides them.
            return [node_id for node_id in self._of_class("unhealthy") if not self._exceeds_limit(node_id)]
        return self._of_class("ready") + self._of_class("connecting")

    def _of_class(self, name: str) -> list[str]:
        return [node_id for node_id, found in self.classes.items() if found == name]

    def _exceeds_limit(self, node_id: str) -> bool:
        return over_limit(self.settings.node_resource_limit, self.nodes[node_id].snapshot)

    @property
    def admits(self) -> bool:
        """Whether capacity excludes: always where load ranks, elsewhere when admission says so."""
        always = self.settings.admission is Admission.ALWAYS or ranked_to(self.settings) is not None
        return self.wanted.creation and always

    def _shortage(self, node_id: str) -> str | None:
        """Why a candidate will not do: its limits always count, its capacity where admission applies."""
        node = self.nodes[node_id]
        if exceeds_when_created(node, self.pending(node_id), self.wanted, self.settings):
            return "over_limit"
        if not self.admits:
            return self.demands.lacking(node_id)
        full = insufficient(*dimensions(node, self.pending(node_id), self.wanted, self.settings))
        return full or self.demands.lacking(node_id)

    def _fits(self, node_id: str) -> bool:
        return self._shortage(node_id) is None

    # By load

    def _least_loaded(self, counter: str) -> ModelNode | None:
        """The head of the ranking; whoever ties with it takes turns in id order."""
        keys = {node_id: self.rank_of(node_id) for node_id in self.candidates}
        if not keys:
            return None
        best = min(keys.values())
        if best[0] >= (Rank.NO_CPU if self.admits else Rank.OVER_LIMIT):
            return None
        tied = sorted((node_id for node_id, key in keys.items() if key == best), key=str.encode)
        return self.nodes[tied[self.cursors.counters[counter] % len(tied)]]

    def _fullest(self, share: float, counter: str) -> ModelNode | None:
        """Of those that have no more than the share in use afterwards: the fullest of each kind of node, of these the
        one with the highest pressure, then most running; equals take turns in id order."""
        keys = {node_id: self.rank_of(node_id) for node_id in self.candidates}
        best = min((key[0] for key in keys.values()), default=Rank.OVER_LIMIT)
        ranks = {Rank.KNOWN} if best < Rank.AVOIDED else {Rank.AVOIDED}
        heads: dict[object, list[tuple[tuple[int, int], str]]] = {}
        for node_id, key in keys.items():
            if key[0] in ranks and key[1] <= share:
                kind, full = fullness(self.nodes[node_id], self.pending(node_id), self.wanted, self.settings)
                if self.named:  # in places that are named, nodes are compared one by one
                    full = (0, 0)
                heads.setdefault((kind, *self.kind_of(node_id)), []).append((full, node_id))
        fullest = [node_id for each in heads.values() for full, node_id in each if full == max(each)[0]]
        order = {node_id: (keys[node_id][1], keys[node_id][3]) for node_id in fullest}
        tied = sorted((each for each in fullest if order[each] == max(order.values())), key=str.encode)
        return self.nodes[tied[self.cursors.counters[counter] % len(tied)]] if tied else None

    def _warm(self, key: str | None, share: float, counter: str) -> ModelNode | None:
        """Of the nodes that were given the key last: the fullest within the share, else the least loaded within the
        slack; equals take turns in id order."""
        slack = self.settings.affinity.slack
        if slack is None or key is None:
            return None
        keys = {node_id: self.rank_of(node_id) for node_id in self.candidates}
        known = {node_id: rank for node_id, rank in keys.items() if rank[0] is Rank.KNOWN}
        warm = {node_id: rank for node_id, rank in known.items() if key in self.warm.get(node_id, ())}
        if not warm:
            return None
        filled = {node_id: (-rank[1], -rank[3]) for node_id, rank in warm.items() if rank[1] <= share and share}
        most = min(rank[1] for rank in known.values()) + slack / 1000 + 2**-40
        order: dict[str, tuple[float, ...]] = {**filled} or {
            node_id: rank for node_id, rank in warm.items() if rank[1] <= most
        }
        tied = sorted((each for each in order if order[each] == min(order.values())), key=str.encode)
        return self.nodes[tied[self.cursors.counters[counter] % len(tied)]] if tied else None

    def rank_of(self, node_id: str) -> RankKey:
        node = self.nodes[node_id]
        key = rank_key(node, self.classes[node_id] == "connecting", self.pending(node_id), self.wanted, self.settings)
        return (Rank.LACKING, *key[1:]) if key[0] is not Rank.OVER_LIMIT and self.demands.lacking(node_id) else key

    def kind_of(self, node_id: str) -> tuple[object, ...]:
        """Nodes with other labels, or other resources, are not compared before the fullest of each kind are."""
        node = self.nodes[node_id]
        return tuple(sorted(node.labels.items())), tuple(sorted(n for n, told in node.resources.items() if told[0] > 0))
