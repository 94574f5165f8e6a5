"""One placement: the pool of candidates, the strategy among them, groups, the refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from scheduler.domain.placement import HintKind, ScheduleRequest, Strategy
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import Admission, GroupPlacement, LedgerSettings
from tests.support.model.facts import ModelGroup, ModelNode, Totals
from tests.support.model.ranking import (
    Rank,
    RankKey,
    Request,
    could_hold,
    dimensions,
    exceeds_when_created,
    fullness,
    insufficient,
    node_class,
    over_limit,
    rank_key,
)

MIB = 1024 * 1024
KEY_BYTES_MAX = 1024


@dataclass
class Cursors:
    """Ids last chosen by rotation, and the two counters that break ties."""

    chosen: dict[str, str] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)


@dataclass
class Choice:
    """`node` None: refused. `moves` is the cursor that a committed choice moves."""

    node: ModelNode | None
    degraded: bool = False
    moves: str | None = None
    group: ModelGroup | None = None
    group_charge: tuple[int, int] = (0, 0)
    opens_group: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    acceptable: frozenset[str] = frozenset()


def resolve(request: ScheduleRequest, settings: LedgerSettings, templates: Mapping[str, Template]) -> Request:
    """Sizes after templates and cold defaults; memory in bytes."""
    hint = request.hint
    if hint is None:
        return Request(False, 0, 0)
    cpu, memory_mb = hint.cpu_count, hint.memory_mb
    if hint.kind is HintKind.SANDBOX:
        template = templates.get(hint.template_id)
        cpu, memory_mb = (template.cpu_count, template.memory_mb) if template else (0, 0)
    else:
        cpu, memory_mb = cpu or settings.cold_default_cpu_count, memory_mb or settings.cold_default_memory_mb
    return Request(True, cpu, memory_mb * MIB)


def group_key(request: ScheduleRequest) -> str | None:
    hint = request.hint
    if hint is None:
        return None
    if hint.kind is HintKind.COLD_SANDBOX:
        prefix, text = "image:", hint.images[0].strip() if hint.images else ""
    else:
        prefix, text = "template:", hint.template_id.strip()
    key = prefix + text
    return key if text and len(key.encode()) <= KEY_BYTES_MAX else None


class Chooser:
    """Decides for one request over a still picture of the fleet; changes nothing."""

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

    def choose(self, request: ScheduleRequest, wanted: Request) -> Choice:
        self.wanted = wanted
        snapshots = [node.snapshot for node in self.nodes.values()]
        if wanted.creation and snapshots and not any(could_hold(each, wanted, self.settings) for each in snapshots):
            return Choice(None, reasons=Counter({"too_large": len(snapshots)}))
        self.excluded = set(request.exclude_nodes)
        self.degraded = self._last_resort_is_open()
        self.pool = sorted(self._pool())
        self.candidates = [node_id for node_id in self.pool if node_id not in self.excluded]
        choice = self._by_strategy(request)
        choice.degraded = self.degraded and choice.node is not None
        if choice.node is None:
            choice.reasons = self._reasons()
        return choice

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
            return None
        return insufficient(*dimensions(node, self.pending(node_id), self.wanted, self.settings))

    def _fits(self, node_id: str) -> bool:
        return self._shortage(node_id) is None

    # Strategies

    def _by_strategy(self, request: ScheduleRequest) -> Choice:
        strategy = self.settings.strategy
        if (share := ranked_to(self.settings)) is not None:
            cursor = "ties" if self.wanted.creation else "ordinary_ties"
            node = self._warm(group_key(request), share, cursor)
            if node is None and share:
                node = self._fullest(share, cursor)
            return Choice(node or self._least_loaded(cursor), moves=cursor)
        if strategy is Strategy.RANDOM:
            fitting = [node_id for node_id in self.candidates if self._fits(node_id)]
            any_of_them = self.nodes[fitting[0]] if fitting else None
            return Choice(any_of_them, acceptable=frozenset(fitting))
        if strategy is Strategy.ROUND_ROBIN:
            cursor = "round_robin" if self.wanted.creation else "ordinary"
            return Choice(self._rotate(cursor), moves=cursor)
        return self._grouped(request)

    def _rotate(self, cursor: str) -> ModelNode | None:
        """The smallest fitting id greater than the last one, else the smallest."""
        fitting = [node_id for node_id in self.candidates if self._fits(node_id)]
        last = self.cursors.chosen.get(cursor)
        greater = [node_id for node_id in fitting if last is None or node_id.encode() > last.encode()]
        chosen = min(greater or fitting, key=str.encode, default=None)
        return self.nodes[chosen] if chosen is not None else None

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
        heads: dict[tuple[int, int], list[tuple[tuple[int, int], str]]] = {}
        for node_id, key in keys.items():
            if key[0] in ranks and key[1] <= share:
                kind, full = fullness(self.nodes[node_id], self.pending(node_id), self.wanted, self.settings)
                heads.setdefault(kind, []).append((full, node_id))
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
        return rank_key(node, self.classes[node_id] == "connecting", self.pending(node_id), self.wanted, self.settings)

    # Groups

    def _grouped(self, request: ScheduleRequest) -> Choice:
        key = group_key(request)
        if key is None:
            return Choice(self._rotate("fallback"), moves="fallback")
        charge = self._charge(request)
        group = self.groups.get(key)
        if group is not None and self._may_join(group, charge):
            return Choice(self.nodes[group.node_id], group=group, group_charge=charge)
        if self.settings.groups.group_placement is GroupPlacement.LEAST_LOADED:
            node, cursor = self._least_loaded("ties"), "ties"
        else:
            node, cursor = self._rotate("groups"), "groups"
        opened = ModelGroup(key, node.node_id) if node else None
        return Choice(node, moves=cursor, group=opened, group_charge=charge, opens_group=True)

    def _charge(self, request: ScheduleRequest) -> tuple[int, int]:
        """CPUs and MiB. What a cold request leaves open is charged at the whole enabled budget."""
        assert request.hint is not None
        cpu, memory_mb = self.wanted.cpu, self.wanted.memory // MIB
        if request.hint.kind is HintKind.COLD_SANDBOX:
            cpu, memory_mb = cpu or self.settings.groups.max_cpu_count, memory_mb or self.settings.groups.max_memory_mb
        return cpu, memory_mb

    def _may_join(self, group: ModelGroup, charge: tuple[int, int]) -> bool:
        budget = self.settings.groups
        return (
            group.node_id in self.candidates
            and self._fits(group.node_id)
            and group.count < budget.max_sandbox_count
            and (budget.max_cpu_count == 0 or group.cpu + charge[0] <= budget.max_cpu_count)
            and (budget.max_memory_mb == 0 or group.memory_mb + charge[1] <= budget.max_memory_mb)
        )

    # The refusal

    def _reasons(self) -> Counter[str]:
        """Every discovered node once, under its first reason."""
        reasons: Counter[str] = Counter()
        for node_id, name in self.classes.items():
            if node_id in self.pool:
                reasons["excluded" if node_id in self.excluded else self._shortage(node_id) or "none"] += 1
            else:
                reasons["not_ready" if name == "connecting" else name] += 1
        return reasons


def ranked_to(settings: LedgerSettings) -> float | None:
    """To which share of its capacity a node is filled before another is begun, where nodes are ranked by load."""
    shares = {Strategy.LEAST_LOADED: settings.fill_to / 1000, Strategy.MOST_LOADED: 1.0}
    return shares.get(settings.strategy)


def used_up(group: ModelGroup, settings: LedgerSettings) -> bool:
    budget = settings.groups
    return (
        group.count >= budget.max_sandbox_count
        or (budget.max_cpu_count > 0 and group.cpu >= budget.max_cpu_count)
        or (budget.max_memory_mb > 0 and group.memory_mb >= budget.max_memory_mb)
    )
