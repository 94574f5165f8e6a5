"""A refusal counts every node once, however often the same size was refused before."""

from __future__ import annotations

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.errors import NoNodes
from scheduler.ledger.ledger import Ledger


async def report(ledger: Ledger, node_id: str, allocated_cpu: int) -> None:
    snapshot = NodeSnapshot(NodeStatus.READY, 8, 8192 * MIB, allocated_cpu, sandbox_count=allocated_cpu)
    await ledger.nodes.heartbeat(Heartbeat(node_id, "instance", snapshot=snapshot))


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_reasons_add_up_to_the_nodes_after_many_refusals_of_one_size(ledger: Ledger) -> None:
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in "abc"], ())
    for allocated_cpu in (5, 6, 7, 8, 5):
        for node_id in "abc":
            await report(ledger, node_id, allocated_cpu)
        with pytest.raises(NoNodes) as refused:
            await ledger.placements.schedule(ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 4, 64)))
        assert refused.value.reasons == {"insufficient_cpu": 3}
        assert refused.value.candidates == 3
