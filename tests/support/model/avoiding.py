"""The model's memory of nodes that refuse: which are avoided, until when, and how they come back."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import ceil

from scheduler.domain.node import NodeSnapshot
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.settings import AvoidSettings, LedgerSettings, Limits, NodeResourceLimit
from tests.support.model.choosing import Chooser, group_key
from tests.support.model.events import TellingModel
from tests.support.model.facts import ModelGroup, ModelNode, ModelReservation
from tests.support.model.model import Refusal, Verdict
from tests.support.model.ranking import Rank, RankKey, node_class

SECOND_MS = 1000
SEVERAL = "*"


@dataclass
class Avoided:
    """`level`: how often in a row. `mark`: how many reservations there were when it was avoided; what one of them comes
    to says nothing new. `tried`: a creation was placed there since."""

    level: int
    until_ms: int
    mark: int
    tried: bool = False


@dataclass
class Trouble:
    """What was told of a node that is not avoided, since its last report or in a second."""

    since_ms: int
    refusals: int = 0
    successes: int = 0


class AvoidingChooser(Chooser):
    """Avoided nodes come last of all that fit; an open group leaves one."""

    avoided: Set[str] = frozenset()

    def _rounds(self, asked: Sequence[str]) -> Sequence[Sequence[str]]:
        """With a spread key they come last on whatever level."""
        if self.demands.spread is None or not self.avoided:
            return [asked]
        return [[node_id for node_id in asked if node_id not in self.avoided], asked]

    def _rotate(self, cursor: str) -> ModelNode | None:
        everybody = self.candidates
        fitting = [node_id for node_id in everybody if self._fits(node_id)]
        self.candidates = [node_id for node_id in fitting if node_id not in self.avoided]
        try:
            if not self.candidates and self._is_ranked and not self.named:
                self.candidates = everybody
                return self._least_loaded("ties")
            self.candidates = self.candidates or fitting
            return super()._rotate(cursor)
        finally:
            self.candidates = everybody

    @property
    def _is_ranked(self) -> bool:
        """Whether the ledger has an index to rank them by; else they take turns."""
        limited = (
            self.settings.limits is not Limits.REPORTED and self.settings.node_resource_limit != NodeResourceLimit()
        )
        return self.admits or self.demands.any or self.sparing or (self.wanted.creation and limited)

    def rank_of(self, node_id: str) -> RankKey:
        rank, pressure, *counts = super().rank_of(node_id)
        starting, running, paused = counts
        if node_id in self.avoided and rank is Rank.KNOWN:
            return (Rank.AVOIDED, max(pressure, 2.0**-25), starting, running, paused)
        if node_id in self.avoided and rank is Rank.UNKNOWN:
            return (Rank.AVOIDED_UNKNOWN, 0.0, starting, running, paused)
        return (rank, pressure, starting, running, paused)

    def _may_join(self, group: ModelGroup, charge: tuple[int, int]) -> bool:
        return group.node_id not in self.avoided and super()._may_join(group, charge)


class AvoidingModel(TellingModel):
    chooser_type = AvoidingChooser

    def __init__(self, settings: LedgerSettings, now_ms: int) -> None:
        super().__init__(settings, now_ms)
        self.watched: dict[str, Avoided] = {}
        self.troubles: dict[str, Trouble] = {}
        self.origins: dict[str, str] = {}  # reservation → its image or template
        # Image or template → the node that refused it, or SEVERAL. The server's own clock forgets it: never in a test.
        self.refusers: dict[str, str] = {}

    @property
    def avoid_settings(self) -> AvoidSettings:
        return self.settings.avoid

    def is_avoided(self, node_id: str) -> bool:
        return node_id in self.watched and self.now_ms < self.watched[node_id].until_ms

    def chooser(self) -> Chooser:
        chooser = super().chooser()
        assert isinstance(chooser, AvoidingChooser)
        chooser.avoided = frozenset(filter(self.is_avoided, self.nodes))
        return chooser

    def schedule(self, request: ScheduleRequest, chosen: str | None = None) -> Verdict | Refusal:
        """The first creation on a node whose time is up tries it: no other comes before that one's end is told, or as
        much time again has passed."""
        verdict = super().schedule(request, chosen)
        if isinstance(verdict, Verdict) and verdict.reservation is not None:
            if (origin := group_key(request)) is not None:
                self.origins[verdict.reservation.name] = origin
            if (state := self.watched.get(verdict.node_id)) is not None:
                state.tried = True
                if not self.is_avoided(verdict.node_id):
                    state.until_ms = self.now_ms + self._time_of(state.level)
        return verdict

    def _time_of(self, level: int) -> int:
        first, longest = self.avoid_settings.first_ms, self.avoid_settings.longest_ms
        return int(min(first * 2 ** (level - 1), longest))

    def _avoid(self, node_id: str, level: int) -> None:
        """Unless too many are avoided already; one whose time is up is only watched."""
        classes = [node_class(node, self.now_ms, self.settings) for node in self.nodes.values()]
        eligible = sum(name in {"ready", "connecting"} for name in classes)
        most = max(1, ceil(eligible * self.avoid_settings.share_percent / 100))
        if self.is_avoided(node_id) or sum(map(self.is_avoided, self.watched)) < most:
            self.watched[node_id] = Avoided(level, self.now_ms + self._time_of(level), len(self.reservations))
            self.troubles.pop(node_id, None)

    def forgive(self, node_id: str) -> None:
        self.watched.pop(node_id, None)
        self.troubles.pop(node_id, None)

    def _trouble(self, node_id: str) -> Trouble:
        longest_ms = max(SECOND_MS, self.settings.report_ttl_ms)
        known = self.troubles.get(node_id)
        return known if known and self.now_ms - known.since_ms <= longest_ms else Trouble(self.now_ms)

    def _says_more(self, reservation: ModelReservation, state: Avoided) -> bool:
        return self.reservations.index(reservation) >= state.mark

    def refused(self, reservation: ModelReservation) -> None:
        """A caller has the node's no. What a second node refuses is itself at fault."""
        node_id = reservation.node_id
        if self.avoid_settings.refusals == 0 or node_id not in self.nodes or self._is_request_at_fault(reservation):
            return
        state = self.watched.get(node_id)
        if state is not None:
            if self._says_more(reservation, state):
                self._avoid(node_id, state.level + 1)
            return
        trouble = self.troubles[node_id] = self._trouble(node_id)
        trouble.refusals += 1
        if trouble.refusals >= self.avoid_settings.refusals and trouble.refusals > trouble.successes:
            self._avoid(node_id, 1)

    def _is_request_at_fault(self, reservation: ModelReservation) -> bool:
        origin = self.origins.get(reservation.name)
        if origin is None or self.avoid_settings.longest_ms == 0:
            return False
        earlier = self.refusers.get(origin, reservation.node_id)
        self.refusers[origin] = earlier if earlier == reservation.node_id else SEVERAL
        return self.refusers[origin] == SEVERAL

    def created(self, reservation: ModelReservation) -> None:
        """A caller says that the node created it."""
        self.refusers.pop(self.origins.get(reservation.name, ""), None)
        node_id, state = reservation.node_id, self.watched.get(reservation.node_id)
        if state is not None:
            if self._says_more(reservation, state):
                self.forgive(node_id)
        elif node_id in self.troubles:
            trouble = self.troubles[node_id] = self._trouble(node_id)
            trouble.successes += 1

    def tells_outcomes(self, node_id: str, before: NodeSnapshot | None, after: NodeSnapshot) -> None:
        """`before` None: a restart, which is forgiven all."""
        state, trouble = self.watched.get(node_id), self._trouble(node_id)
        if before is None or self.avoid_settings.refusals == 0:
            self.forgive(node_id)
            return
        fails = max(0, after.create_fails - before.create_fails)
        successes = after.create_successes - before.create_successes
        if state is None and node_id not in self.troubles and fails == 0:
            return
        refusals = trouble.refusals + fails
        if state is not None and successes > fails:
            self.forgive(node_id)
        elif state is not None:
            if fails > 0 and state.tried:
                self._avoid(node_id, state.level + 1)
        elif refusals >= self.avoid_settings.refusals and refusals > max(successes, trouble.successes):
            self._avoid(node_id, 1)
        elif self.now_ms - trouble.since_ms >= SECOND_MS:
            self.troubles.pop(node_id, None)

    # A process that leaves leaves nothing behind

    def unregister(self, node_id: str) -> None:
        super().unregister(node_id)
        self.forgive(node_id)

    def remove_node(self, node_id: str) -> None:
        super().remove_node(node_id)
        self.forgive(node_id)
