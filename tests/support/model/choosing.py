"""One placement: the strategy among the candidates, level by level, groups, the refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.domain.placement import HintKind, ScheduleRequest, Strategy
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import GroupPlacement, LedgerSettings
from tests.support.model.candidates import Candidates, ranked_to
from tests.support.model.demands import Demands, demands_of
from tests.support.model.facts import ModelGroup, ModelNode
from tests.support.model.ranking import Request, could_hold

MIB = 1024 * 1024
KEY_BYTES_MAX = 1024


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


class Chooser(Candidates):
    """Decides for one request over a still picture of the fleet; changes nothing."""

    def choose(self, request: ScheduleRequest, wanted: Request) -> Choice:
        self.wanted = wanted
        self.demands = self._demands(request)
        snapshots = [node.snapshot for node in self.nodes.values()]
        if wanted.creation and snapshots and not any(could_hold(each, wanted, self.settings) for each in snapshots):
            return Choice(None, reasons=Counter({"too_large": len(snapshots)}))
        self.excluded = set(request.exclude_nodes)
        self.degraded = self._last_resort_is_open()
        self.pool = sorted(self._pool())
        choice = self._by_level(request)
        choice.degraded = self.degraded and choice.node is not None
        if choice.node is None:
            choice.reasons = self._reasons()
        return choice

    def _by_level(self, request: ScheduleRequest) -> Choice:
        """First without nodes that have something to spare, places with fewest first; then the strategy decides."""
        rounds = self._rounds([n for n in self.pool if n not in self.excluded and not self.demands.mismatch(n)])
        self.ceiling = self.demands.ceiling(rounds) if self.demands.spread else 0
        choice = Choice(None)
        for spares in (True, False):
            self.sparing = spares and self.demands.spares_any
            for among in rounds:
                for level in self.demands.levels(among, self.ceiling):
                    self.named = level.named
                    self.candidates = [n for n in level.node_ids if not (spares and self.demands.spared(n))]
                    choice = self._by_strategy(request)
                    if choice.node is not None:
                        return choice
        return choice

    def _rounds(self, asked: Sequence[str]) -> Sequence[Sequence[str]]:
        return [asked]

    def _demands(self, request: ScheduleRequest) -> Demands:
        pending = self.pending_resources if request.hint else {}
        demands = demands_of(request.hint, self.nodes, self.settings.scarce, pending)
        demands = replace(demands, labels_before=self.labels_before)
        return replace(demands, counts=self.spread_counts(demands.spread.key)) if demands.spread else demands

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

    # Groups

    def _grouped(self, request: ScheduleRequest) -> Choice:
        key = group_key(request)
        if key is None:
            return Choice(self._rotate("fallback"), moves="fallback")
        key += self.demands.own_group
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
                reasons[self._reason(node_id)] += 1
            else:
                reasons["not_ready" if name == "connecting" else name] += 1
        return reasons

    def _reason(self, node_id: str) -> str:
        if node_id in self.excluded:
            return "excluded"
        if self.demands.mismatch(node_id):
            return "label"
        return "spread" if self.demands.too_many(node_id, self.ceiling) else self._shortage(node_id) or "none"


def used_up(group: ModelGroup, settings: LedgerSettings) -> bool:
    budget = settings.groups
    return (
        group.count >= budget.max_sandbox_count
        or (budget.max_cpu_count > 0 and group.cpu >= budget.max_cpu_count)
        or (budget.max_memory_mb > 0 and group.memory_mb >= budget.max_memory_mb)
    )
