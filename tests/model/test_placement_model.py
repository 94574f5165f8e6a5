"""Random fleets, reports, placements and time: the ledger chooses what the model chooses."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from scheduler.domain.node import DiscoveryState, NodeSnapshot
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import LedgerSettings
from tests.model.machine import SideBySide, address, run_side_by_side
from tests.support import fleets
from tests.support.backends import Backend


class PlacementMachine(SideBySide):
    """Nobody confirms here: node counters and deadlines end every reservation."""

    @initialize(chosen=fleets.ledger_settings(), first=st.lists(fleets.node_ids, unique=True, min_size=1))
    def begin(self, chosen: LedgerSettings, first: list[str]) -> None:
        self.open(chosen)
        self.replace_list(first, [])

    @rule(active=st.lists(fleets.node_ids, unique=True), lingering=st.lists(fleets.node_ids, unique=True, max_size=2))
    def replace_list(self, active: list[str], lingering: list[str]) -> None:
        lists = [[address(node_id) for node_id in names] for names in (active, lingering)]
        self.run(self.both.nodes.replace(*lists))
        self.model.replace_nodes(*lists)

    @rule(node_id=fleets.node_ids, state=st.sampled_from(DiscoveryState))
    def set_one(self, node_id: str, state: DiscoveryState) -> None:
        self.run(self.both.nodes.set(node_id, address(node_id).endpoint, state))
        self.model.set_node(address(node_id), state is DiscoveryState.LINGERING)

    @precondition(lambda self: self.ledger and self.model.nodes)
    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        node_id = data.draw(st.sampled_from(sorted(self.model.nodes)))
        self.run(self.both.nodes.remove(node_id))
        self.model.remove_node(node_id)

    @rule(node_id=fleets.node_ids, snapshot=fleets.first_snapshots())
    def report(self, node_id: str, snapshot: NodeSnapshot) -> None:
        self.report_both(node_id, snapshot, roster=())

    @rule(change=fleets.changes(), instance=st.sampled_from(["one"] * 5 + ["two"]), data=st.data())
    def report_again(self, change: NodeSnapshot, instance: str, data: st.DataObject) -> None:
        reported = sorted(node_id for node_id, node in self.model.nodes.items() if node.snapshot)
        if reported:
            node_id = data.draw(st.sampled_from(reported))
            before = self.model.nodes[node_id].snapshot
            assert before is not None
            self.report_both(node_id, fleets.after(before, change), instance=instance, roster=())

    @precondition(lambda self: self.ledger and any(node.snapshot for node in self.model.nodes.values()))
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        reported = sorted(node_id for node_id, node in self.model.nodes.items() if node.snapshot)
        node_id = data.draw(st.sampled_from(reported))
        self.run(self.both.nodes.unregister(node_id, self.model.nodes[node_id].instance))
        self.model.unregister(node_id)

    @rule(request=fleets.requests((Lifecycle.HEARTBEAT,)))
    def schedule(self, request: ScheduleRequest) -> None:
        self.schedule_both(request)

    @rule(request=fleets.requests((Lifecycle.HEARTBEAT,)), count=st.integers(2, 5))
    def schedule_some(self, request: ScheduleRequest, count: int) -> None:
        for _ in range(count):
            self.schedule_both(request)

    @rule(ms=fleets.waits_ms)
    def wait(self, ms: int) -> None:
        self.advance_both(ms)

    @rule()
    def sweep(self) -> None:
        """Upkeep only does earlier what would be done anyway."""
        self.run(self.both.reservations.sweep())

    @rule()
    def compare(self) -> None:
        self.compare_nodes()
        self.compare_groups()


def test_every_choice_is_the_models_choice(backend: Backend) -> None:
    run_side_by_side(PlacementMachine, backend)
