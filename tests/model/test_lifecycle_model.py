"""Random interleavings of callers, nodes and time: every reservation ends as the model says, no
capacity is free while it is promised, and none is held after its reservation ended."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from scheduler import errors
from scheduler.domain.limits import MIB
from scheduler.domain.node import DiscoveryState, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle, ReservationResult
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import GroupSettings, LedgerSettings
from tests.model.machine import SideBySide, address, run_side_by_side
from tests.support import fleets
from tests.support.backends import Backend
from tests.support.clock import EPOCH_MS
from tests.support.model import Conflicting, Done, LifecycleModel, ModelReservation, Refusal, Verdict

NODES = ("a", "b", "c")
KEYS = ("key-1", "key-2")
SIZES_CPU = (0, 1, 2)
SIZES_MB = (0, 1024)
# Events are remembered for ten minutes; beyond that a told one may count again.
LONGEST_RUN_MS = 9 * 60_000

nodes = st.sampled_from(NODES)
sandboxes = st.sampled_from(fleets.SANDBOX_IDS[:5])
hints = st.builds(
    Hint,
    kind=st.just(HintKind.COLD_SANDBOX),
    cpu_count=st.sampled_from(SIZES_CPU),
    memory_mb=st.sampled_from(SIZES_MB),
    images=st.sampled_from([(), ("app",), ("app",)]),
)
requests = st.builds(ScheduleRequest, hint=hints, lifecycle=st.sampled_from(Lifecycle))
events = st.builds(
    SandboxEvent,
    sandbox_id=sandboxes,
    event_type=st.sampled_from([*SandboxEventType, SandboxEventType.CREATE, SandboxEventType.CREATE]),
    requested_cpu=st.sampled_from([1, 2]),
    requested_memory_bytes=st.sampled_from([1024, 2048]).map(lambda memory_mb: memory_mb * MIB),
)
rosters = st.one_of(st.none(), st.lists(sandboxes, unique=True, max_size=4).map(tuple))
FIRST_REPORT = NodeSnapshot(
    status=NodeStatus.READY, cpu_count=16, memory_total_bytes=32 * fleets.GIB, reported_at_unix_ms=1
)


class LifecycleMachine(SideBySide):
    """A few big nodes, so that nearly everything is placed and has a life to live."""

    model: LifecycleModel

    def model_of(self, chosen: LedgerSettings) -> LifecycleModel:
        return LifecycleModel(chosen, self.clock.now_ms)

    @initialize(
        strategy=st.sampled_from([Strategy.LEAST_LOADED, Strategy.ROUND_ROBIN, Strategy.GROUPED_ROUND_ROBIN]),
        grace_ms=st.sampled_from([0, 15_000]),
    )
    def begin(self, strategy: Strategy, grace_ms: int) -> None:
        groups = GroupSettings(max_sandbox_count=3)
        self.open(
            LedgerSettings(
                strategy=strategy, groups=groups, binding_grace_ms=grace_ms, placement_reservation_ttl_ms=60_000
            )
        )
        for node_id in NODES:
            self.list_node(node_id, DiscoveryState.ACTIVE)
            self.report_both(node_id, FIRST_REPORT, roster=())

    # Discovery and reports

    @rule(node_id=nodes, state=st.sampled_from([DiscoveryState.ACTIVE] * 3 + [DiscoveryState.LINGERING]))
    def list_node(self, node_id: str, state: DiscoveryState) -> None:
        self.run(self.both.nodes.set(node_id, address(node_id).endpoint, state))
        self.model.set_node(address(node_id), state is DiscoveryState.LINGERING)

    @rule(node_id=nodes)
    def remove(self, node_id: str) -> None:
        if node_id in self.model.nodes:
            self.run(self.both.nodes.remove(node_id))
            self.model.remove_node(node_id)

    @rule(node_id=nodes)
    def unregister(self, node_id: str) -> None:
        node = self.model.nodes.get(node_id)
        if node is not None and node.snapshot is not None:
            self.run(self.both.nodes.unregister(node_id, node.instance))
            self.model.unregister(node_id)

    @rule(node_id=nodes, change=fleets.changes(), roster=rosters, instance=st.sampled_from(["one"] * 6 + ["two"]))
    def report(self, node_id: str, change: NodeSnapshot, roster: tuple[str, ...] | None, instance: str) -> None:
        node = self.model.nodes.get(node_id)
        before = node.snapshot if node is not None and node.snapshot is not None else FIRST_REPORT
        silent_ms = self.model.now_ms - self.model.last_report_ms.get(node_id, self.model.now_ms)
        if roster is None and silent_ms >= self.model.settings.binding_ttl_ms:
            roster = ()  # whether its bindings are swept by now is left open
        ready = replace(change, status=NodeStatus.READY)
        self.report_both(node_id, fleets.after(before, ready), instance=instance, roster=roster)

    @rule(node_id=nodes, told=st.lists(events, min_size=1, max_size=3))
    def tell_events(self, node_id: str, told: list[SandboxEvent]) -> None:
        if node_id not in self.model.nodes:
            return
        counted = self.run(self.both.nodes.record_events(node_id, "one", told))
        assert counted == self.model.record_events(node_id, told)

    # Callers

    @rule(request=requests)
    def schedule(self, request: ScheduleRequest) -> None:
        self.schedule_both(request)

    @rule(request=requests, key=st.sampled_from(KEYS))
    def schedule_by_key(self, request: ScheduleRequest, key: str) -> None:
        keyed = replace(request, idempotency_key=key)
        try:
            decision: Decision | errors.SchedulerError = self.run(self.both.placements.schedule(keyed))
        except (errors.NoNodes, errors.Conflict) as refusal:
            decision = refusal
        expected = self.model.schedule_by_key(key, request)
        if isinstance(expected, Conflicting):
            assert isinstance(decision, errors.Conflict), decision
        elif isinstance(expected, Refusal):
            assert isinstance(decision, errors.NoNodes), decision
        else:
            assert isinstance(decision, Decision), decision
            assert decision.replayed == isinstance(expected, ModelReservation)
            assert decision.reservation is not None
            reservation = expected.reservation if isinstance(expected, Verdict) else expected
            assert reservation is not None
            assert decision.node.node_id == reservation.node_id
            reservation.ledger_id = reservation.ledger_id or decision.reservation.reservation_id
            assert decision.reservation.reservation_id == reservation.ledger_id

    @precondition(lambda self: self.ledger and self.model.reservations)
    @rule(data=st.data(), sandbox_id=sandboxes)
    def confirm(self, data: st.DataObject, sandbox_id: str) -> None:
        reservation = self.draw_reservation(data)
        answer = self.answer(self.both.reservations.confirm(reservation.ledger_id, sandbox_id))
        self.same(answer, self.model.confirm(reservation, sandbox_id))

    @precondition(lambda self: self.ledger and self.model.reservations)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        reservation = self.draw_reservation(data)
        answer = self.answer(self.both.reservations.cancel(reservation.ledger_id, "changed my mind"))
        self.same(answer, self.model.cancel(reservation, "changed my mind"))

    @precondition(lambda self: self.ledger and self.model.reservations)
    @rule(data=st.data(), ttl_ms=st.sampled_from([5_000, 90_000]))
    def renew(self, data: st.DataObject, ttl_ms: int) -> None:
        reservation = self.draw_reservation(data)
        answer = self.answer(self.both.reservations.renew(reservation.ledger_id, ttl_ms))
        self.same(answer, self.model.renew(reservation, ttl_ms))

    @rule(key=st.sampled_from(KEYS))
    def cancel_by_key(self, key: str) -> None:
        answer = self.answer(self.both.reservations.cancel_by_key("anonymous", key, "by key"))
        self.same(answer, self.model.cancel_by_key(key, "by key"))

    @rule(sandbox_id=sandboxes, node_id=nodes)
    def record_assignment(self, sandbox_id: str, node_id: str) -> None:
        if node_id in self.model.nodes:
            self.run(self.both.bindings.record(sandbox_id, address(node_id)))
            self.model.record_assignment(sandbox_id, node_id)

    # Time

    @precondition(lambda self: self.ledger and self.model.now_ms < EPOCH_MS + LONGEST_RUN_MS)
    @rule(ms=st.sampled_from([1, 4_999, 15_000, 30_000, 30_001, 60_000]))
    def wait(self, ms: int) -> None:
        self.advance_both(ms)

    @rule()
    def sweep(self) -> None:
        self.run(self.both.reservations.sweep())

    @rule()
    def compare(self) -> None:
        self.compare_reservations()
        self.compare_bindings()
        self.compare_groups()
        self.compare_nodes()

    def compare_bindings(self) -> None:
        for sandbox_id in fleets.SANDBOX_IDS[:5]:
            try:
                found = self.run(self.both.bindings.lookup(sandbox_id)).node.node_id
            except errors.NotFound:
                found = None
            assert found == self.model.lookup(sandbox_id), sandbox_id

    # Helpers

    def draw_reservation(self, data: st.DataObject) -> ModelReservation:
        number = data.draw(st.integers(0, len(self.model.reservations) - 1), label="reservation")
        return self.model.reservations[number]

    def answer(self, call: Awaitable[ReservationResult]) -> ReservationResult | errors.Conflict:
        async def answered() -> ReservationResult | errors.Conflict:
            try:
                return await call
            except errors.Conflict as conflict:
                return conflict

        return self.run(answered())

    def same(self, answer: ReservationResult | errors.Conflict, expected: Done | Conflicting) -> None:
        if isinstance(expected, Conflicting):
            assert isinstance(answer, errors.Conflict), answer
            return
        assert isinstance(answer, ReservationResult), answer
        assert (answer.replayed, answer.orphaned) == (expected.replayed, expected.orphaned), answer


def test_every_reservation_ends_as_the_model_says(backend: Backend) -> None:
    run_side_by_side(LifecycleMachine, backend, steps=50)
