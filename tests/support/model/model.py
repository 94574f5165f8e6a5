"""The model itself: discovery, placements, groups, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import LedgerSettings
from tests.support.model.candidates import Cursors
from tests.support.model.choosing import Choice, Chooser, group_key, resolve, used_up
from tests.support.model.facts import ModelGroup, ModelNode, ModelReservation, Totals
from tests.support.model.ranking import Request


@dataclass
class Verdict:
    """What a placement must come to. `acceptable`: under `random` any of these would do."""

    node_id: str
    endpoint: str
    degraded: bool
    reservation: ModelReservation | None
    acceptable: frozenset[str]


@dataclass
class Refusal:
    """No node may be chosen; `reasons` counts every discovered node once."""

    reasons: dict[str, int]


class Model:
    """One domain. Every method takes effect at once and for everything, at `now_ms`. What reservations come to is
    told by `AccountingModel`."""

    chooser_type: type[Chooser] = Chooser

    def __init__(self, settings: LedgerSettings, now_ms: int) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.nodes: dict[str, ModelNode] = {}
        self.removed_at: dict[str, int] = {}
        self.api_labels: dict[str, Mapping[str, str]] = {}
        self.labels_before: dict[str, Mapping[str, str]] = {}  # of nodes that left or unregistered, until they report
        self.reservations: list[ModelReservation] = []
        self.cursors = Cursors()
        self.groups: dict[str, ModelGroup] = {}
        self.templates: dict[str, Template] = dict(settings.templates)
        self.warm: dict[str, dict[str, ModelReservation]] = {}  # of each node what it was given, the latest last

    # Time

    def advance(self, ms: int) -> None:
        """Let time pass: deadlines come, removed nodes are evicted."""
        self.now_ms += ms
        for reservation in self.reservations:
            if reservation.open:
                self._end_by_time(reservation)

    def given_up(self, node_id: str) -> bool:
        """Whether a node left discovery and was not back within one report_ttl."""
        removed_at = self.removed_at.get(node_id)
        return removed_at is not None and removed_at + self.settings.report_ttl_ms <= self.now_ms

    def _end_by_time(self, reservation: ModelReservation) -> None:
        """By whichever came first: its own deadline, or its node being evicted."""
        removed_at = self.removed_at.get(reservation.node_id)
        given_up_at = removed_at + self.settings.report_ttl_ms if removed_at is not None else None
        if given_up_at is not None and given_up_at <= min(self.now_ms, reservation.deadline_ms - 1):
            reason = "node_removed"
        elif reservation.deadline_ms <= self.now_ms:
            reason = "deadline" if reservation.state is ReservationState.PENDING else "unobserved"
        else:
            return
        self.end_by_time(reservation, reason)

    def end_by_time(self, reservation: ModelReservation, reason: str) -> None:
        raise NotImplementedError

    def pending(self, node_id: str) -> Totals:
        """What open reservations hold of the node, beyond what its report already counts."""
        raise NotImplementedError

    def reserved(self, reservation: ModelReservation, sandbox_id: str | None) -> None:
        """It was made just now; `sandbox_id`: as its caller named it."""
        raise NotImplementedError

    # Discovery

    def set_node(self, address: NodeAddress, lingering: bool) -> None:
        """Labels that the API told stay, also while it is gone, until it tells others."""
        node = self.nodes.setdefault(address.node_id, ModelNode(address.node_id, address.endpoint, lingering))
        node.endpoint, node.lingering = address.endpoint, lingering
        if address.labels is not None:
            self.api_labels[address.node_id] = address.labels
        node.api_labels = self.api_labels.get(address.node_id, {})
        self.removed_at.pop(address.node_id, None)

    def replace_nodes(self, active: Iterable[NodeAddress], lingering: Iterable[NodeAddress]) -> None:
        """The whole list in one step; an id in both lists is lingering."""
        listed = {address.node_id: (address, False) for address in active}
        listed |= {address.node_id: (address, True) for address in lingering}
        for node_id in set(self.nodes) - set(listed):
            self.remove_node(node_id)
        for address, drains in listed.values():
            self.set_node(address, drains)

    def remove_node(self, node_id: str) -> None:
        """The observation goes at once, reservations one report_ttl later unless it is back."""
        self._forget_report(node_id)
        del self.nodes[node_id]
        self.removed_at[node_id] = self.now_ms
        self.warm.pop(node_id, None)

    def unregister(self, node_id: str) -> None:
        """Forget the report; the node stays listed, and so do its reservations."""
        self._forget_report(node_id)
        node = self.nodes[node_id]
        node.snapshot, node.instance, node.sequence, node.lowered = None, "", None, Totals()
        node.reported_labels, node.resources = {}, {}

    def _forget_report(self, node_id: str) -> None:
        """What it has of a spread key still counts in its place."""
        self.labels_before[node_id] = {**self.labels_before.get(node_id, {}), **self.nodes[node_id].labels}

    # Placement

    def chooser(self) -> Chooser:
        chooser = self.chooser_type(
            self.settings, self.nodes, self.pending, self.now_ms, self.cursors, self.groups, self.warm
        )
        chooser.pending_resources = {node_id: self.pending_resources(node_id) for node_id in self.nodes}
        chooser.labels_before = self.labels_before
        chooser.spread_counts = self.spread_counts  # type: ignore[method-assign]
        return chooser

    def pending_resources(self, node_id: str) -> Counter[str]:
        """Further resources are held whole until the end."""
        return sum((Counter(reservation.resources) for reservation in self.open_on(node_id)), Counter())

    def spread_counts(self, key: str) -> Counter[str]:
        """How many sandboxes of a spread key each node has."""
        raise NotImplementedError

    def schedule(self, request: ScheduleRequest, chosen: str | None = None) -> Verdict | Refusal:
        """Choose, reserve, move cursors. `chosen`: what a random strategy took, if acceptable."""
        wanted = resolve(request, self.settings, self.templates)
        choice = self.chooser().choose(request, wanted)
        if choice.node is None:
            return Refusal(dict(choice.reasons))
        node = self.nodes[chosen] if chosen in choice.acceptable and chosen is not None else choice.node
        self._move_cursor(choice, node)
        reservation = self._reserve(request, wanted, node, choice) if wanted.creation else None
        return Verdict(node.node_id, node.endpoint, choice.degraded, reservation, choice.acceptable)

    def _move_cursor(self, choice: Choice, node: ModelNode) -> None:
        if choice.moves in {"ties", "ordinary_ties"}:
            self.cursors.counters[choice.moves] += 1
        elif choice.moves is not None:
            self.cursors.chosen[choice.moves] = node.node_id

    def _reserve(self, request: ScheduleRequest, wanted: Request, node: ModelNode, choice: Choice) -> ModelReservation:
        ttl_ms = request.reservation_ttl_ms or self.settings.placement_reservation_ttl_ms
        reservation = ModelReservation(
            name=f"r{len(self.reservations)}",
            node_id=node.node_id,
            lifecycle=request.lifecycle,
            cpu=wanted.cpu,
            memory=wanted.memory,
            created_at_ms=self.now_ms,
            deadline_ms=self.now_ms + ttl_ms,
            ttl_ms=ttl_ms,
            held=Totals(wanted.cpu, wanted.memory, 1),
            sandbox_id=request.sandbox_id,
            resources=request.hint.resources if request.hint else {},
            spread=request.hint.spread if request.hint else None,
        )
        self.reservations.append(reservation)
        self.reserved(reservation, request.sandbox_id)
        self._warm_up(reservation, group_key(request))
        if choice.group is not None:
            self._commit_group(choice, reservation)
        return reservation

    def _warm_up(self, reservation: ModelReservation, key: str | None) -> None:
        if key is not None:
            given = self.warm.setdefault(reservation.node_id, {})
            given.pop(key, None)
            given[key] = reservation
            while len(given) > self.settings.affinity.keys_per_node:
                del given[next(iter(given))]

    def cool_down(self, reservation: ModelReservation) -> None:
        """Its node would not create it, so what it was made of is not there; unless it was given to the node since."""
        given = self.warm.get(reservation.node_id, {})
        self.warm[reservation.node_id] = {key: latest for key, latest in given.items() if latest is not reservation}

    def _commit_group(self, choice: Choice, reservation: ModelReservation) -> None:
        group = choice.group
        assert group is not None
        self.groups.pop(group.key, None)
        reservation.group, reservation.group_charge = group, choice.group_charge
        self._charge(reservation, 1)
        if not used_up(group, self.settings):
            self.groups[group.key] = group  # last in the dict: most recently used
            while len(self.groups) > self.settings.groups.max_open_groups:
                self.groups.pop(next(iter(self.groups)))

    def _charge(self, reservation: ModelReservation, direction: int) -> None:
        group = reservation.group
        assert group is not None
        group.count += direction
        group.cpu += direction * reservation.group_charge[0]
        group.memory_mb += direction * reservation.group_charge[1]
        reservation.group_charged = direction > 0

    # Reservations

    def ended(self, reservation: ModelReservation) -> None:
        """What an end means for the group that was charged."""
        reservation.finished_at_ms = self.now_ms
        explicit = reservation.lifecycle is Lifecycle.EXPLICIT
        cancelled = reservation.state is ReservationState.CANCELLED
        if cancelled or (reservation.state is ReservationState.EXPIRED and explicit):
            if reservation.group_charged and self.group_is_open(reservation):
                self._charge(reservation, -1)
            reservation.group_charged = False

    def group_is_open(self, reservation: ModelReservation) -> bool:
        group = reservation.group
        return group is not None and self.groups.get(group.key) is group

    def open_on(self, node_id: str) -> list[ModelReservation]:
        """Oldest first."""
        return [r for r in self.reservations if r.open and r.node_id == node_id]
