"""A ledger and the model side by side: what every model-based test here shares."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from scheduler import errors
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot
from scheduler.domain.placement import Decision, ScheduleRequest, Strategy
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import LedgerSettings
from scheduler.store.ledger import Ledger
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.model import Model, ModelReservation, Refusal, Totals
from tests.support.recount import assert_ledger_is_sound

T = TypeVar("T")
KNOWN_TEMPLATE = Template("known", cpu_count=2, memory_mb=1024)
# On a crowded machine a server may be slow to answer; that is not what is judged here.
PATIENCE: dict[str, Any] = {"operation_timeout_ms": 60_000, "attempt_timeout_ms": 30_000}
_domains = itertools.count()


def address(node_id: str) -> NodeAddress:
    return NodeAddress(node_id, f"http://{node_id}:8000")


class SideBySide(RuleBasedStateMachine):
    """Tells both the same and compares every answer. `backend` is set by the test."""

    backend: Backend

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.ledger: Ledger | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def open(self, chosen: LedgerSettings) -> None:
        """A ledger of its own for this example, and the model of it."""
        domain = f"example-{next(_domains)}"
        self.ledger = self.run(self.backend.open(domain=domain, clock=self.clock, **PATIENCE))
        self.run(put_settings(self.ledger, chosen))
        self.run(self.ledger.templates.put(KNOWN_TEMPLATE))
        self.model = self.model_of(chosen)
        self.model.templates[KNOWN_TEMPLATE.template_id] = KNOWN_TEMPLATE

    def model_of(self, chosen: LedgerSettings) -> Model:
        return Model(chosen, self.clock.now_ms)

    @property
    def both(self) -> Ledger:
        assert self.ledger is not None
        return self.ledger

    def compare(self) -> None:
        """What must be equal whenever somebody looks. Looking may itself sweep, so it is a step
        like any other, and the last one; between two looks the ledger may be as lazy as it likes."""
        raise NotImplementedError

    def teardown(self) -> None:
        try:
            # After a failed step a last look would only add a second failure to the first.
            if self.ledger is not None and sys.exc_info()[0] is None:
                self.compare()
                self.run(assert_ledger_is_sound(self.ledger))
        finally:
            if self.ledger is not None:
                self.run(self.ledger.close())
            self.runner.close()

    # Things both are told

    def advance_both(self, ms: int) -> None:
        self.clock.advance(ms)
        self.model.advance(ms)

    def report_both(
        self,
        node_id: str,
        snapshot: NodeSnapshot,
        *,
        instance: str = "one",
        roster: tuple[str, ...] | None = None,
    ) -> None:
        heartbeat = Heartbeat(node_id, instance, cluster_id="c1", snapshot=snapshot, sandbox_ids=roster)
        if node_id not in self.model.nodes:
            try:
                self.run(self.both.nodes.heartbeat(heartbeat, None))
            except errors.NodeNotListed:
                return
            raise AssertionError(f"a report of {node_id} was taken although discovery does not list it")
        self.run(self.both.nodes.heartbeat(heartbeat, None))
        self.model.heartbeat(node_id, instance, snapshot, roster)

    def schedule_both(self, request: ScheduleRequest) -> ModelReservation | None:
        """The ledger's choice is the model's choice, and so is its refusal with every reason."""
        explanation = self.run(self.both.placements.explain(request))
        decision = self._schedule_ledger(request)
        chosen = decision.node.node_id if isinstance(decision, Decision) else None
        expected = self.model.schedule(request, chosen)
        if isinstance(expected, Refusal):
            assert isinstance(decision, errors.NoNodes), f"placed on {decision}, the model refuses: {expected}"
            assert decision.reasons == expected.reasons
            assert decision.candidates == len(self.model.nodes)
            assert explanation.node is None
            return None
        assert isinstance(decision, Decision), f"refused with {decision}, the model places on {expected.node_id}"
        assert decision.node == NodeAddress(expected.node_id, expected.endpoint)
        assert decision.degraded == expected.degraded
        if self.model.settings.strategy is not Strategy.RANDOM:
            assert explanation.node == decision.node, "explain must name what schedule then chooses"
        assert (decision.reservation is None) == (expected.reservation is None)
        if expected.reservation is not None and decision.reservation is not None:
            expected.reservation.ledger_id = decision.reservation.reservation_id
            assert decision.reservation.cpu_count == expected.reservation.cpu
            assert decision.reservation.memory_bytes == expected.reservation.memory
            assert decision.reservation.expires_at_ms == expected.reservation.deadline_ms
        return expected.reservation

    def _schedule_ledger(self, request: ScheduleRequest) -> Decision | errors.NoNodes:
        try:
            return self.run(self.both.placements.schedule(request))
        except errors.NoNodes as refusal:
            return refusal

    # What must be equal

    def compare_nodes(self) -> None:
        nodes = self.run(self.both.nodes.list())
        report_ttl_ms = self.model.settings.report_ttl_ms
        expected_order = sorted(self.model.nodes, key=str.encode)
        assert [node.node_id for node in nodes] == expected_order
        for node in nodes:
            pending = Totals(node.pending.cpu_count, node.pending.memory_bytes, node.pending.sandbox_count)
            assert pending == self.model.pending(node.node_id), f"pending of {node.node_id}"
            assert node.status == self.model.nodes[node.node_id].status(self.model.now_ms, report_ttl_ms), node.node_id

    def compare_groups(self) -> None:
        total, groups, _ = self.run(self.both.groups.list(1000, None))
        found = [(g.key, g.node_id, g.sandbox_count, g.cpu_count, g.memory_mb) for g in groups]
        expected = [(g.key, g.node_id, g.count, g.cpu, g.memory_mb) for g in reversed(self.model.groups.values())]
        assert found == expected
        assert total == len(expected)

    def compare_reservations(self) -> None:
        for expected in self.model.reservations:
            if not expected.open and self.model.now_ms - expected.created_at_ms > 3_600_000:
                continue  # it may have stopped being readable
            found = self.run(self.both.reservations.get(expected.ledger_id))
            assert (found.state, found.reason) == (expected.state, expected.reason), expected
            held = Totals(found.held_cpu_count, found.held_memory_bytes, found.held_sandbox_count)
            assert held == expected.held, expected


def run_side_by_side(machine: type[SideBySide], backend: Backend, steps: int = 40) -> None:
    """Run random examples; the embedded server runs fewer, since Lua is slow there."""
    examples = settings().max_examples
    chosen = settings(stateful_step_count=steps, max_examples=examples if backend.name == "real" else examples // 3)
    bound = type(machine.__name__, (machine,), {"backend": backend})
    run_state_machine_as_test(bound, settings=chosen)
