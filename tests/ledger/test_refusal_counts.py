"""A refusal counts every node once, however often the same size was refused before, and names what keeps most out."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Hint, HintKind, OverLimit, ScheduleRequest, Spread, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes
from scheduler.ledger.ledger import Ledger
from tests.ledger.test_several import together
from tests.support.backends import put_settings


async def report(ledger: Ledger, node_id: str, allocated_cpu: int, cpu: int = 8, used_mb: int = 0) -> None:
    snapshot = NodeSnapshot(
        NodeStatus.READY, cpu, 8192 * MIB, allocated_cpu, used_mb * MIB, sandbox_count=allocated_cpu
    )
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


def cold(cpu: int, memory_mb: int = 64, spread: Spread | None = None) -> ScheduleRequest:
    return ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, cpu, memory_mb, spread=spread))


def named(request: ScheduleRequest) -> ScheduleRequest:
    """The same, not in the ordinary way: its caller names the sandbox."""
    return ScheduleRequest(hint=request.hint, sandbox_id="mine")


@pytest.mark.parametrize("strategy", [Strategy.LEAST_LOADED, Strategy.MOST_LOADED])
async def test_a_refusal_tells_the_same_figures_whoever_decides_and_however_it_is_asked(
    ledger: Ledger, strategy: Strategy
) -> None:
    await put_settings(ledger, LedgerSettings(strategy=strategy, revision=1))
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in "abcd"], ())
    for node_id, allocated, cpu, used_mb in (("a", 3, 8, 5000), ("b", 7, 16, 7000), ("c", 4, 4, 0), ("d", 16, 16, 0)):
        await report(ledger, node_id, allocated, cpu, used_mb)
    await ledger.placements.schedule(ScheduleRequest(hint=cold(1, 1024).hint, exclude_nodes=("b",)))

    lacks_cpu = OverLimit("cpu_count", 7, 0, 10, 16)
    lacks_memory = OverLimit("memory_bytes", 5000 * MIB, 1024 * MIB, 2560 * MIB, 8192 * MIB)
    calls = together(ledger)
    for request, reasons, figures in (
        (cold(10), {"insufficient_cpu": 4}, lacks_cpu),
        (cold(4, 2560), {"insufficient_cpu": 2, "insufficient_memory": 2}, OverLimit("cpu_count", 16, 0, 4, 16)),
        (cold(2, 2560), {"insufficient_cpu": 2, "insufficient_memory": 2}, OverLimit("cpu_count", 16, 0, 2, 16)),
        (cold(17), {"too_large": 4}, OverLimit("cpu_count", 16, 0, 17, 16)),
        (cold(16, 8193), {"too_large": 4}, OverLimit("memory_bytes", 0, 0, 8193 * MIB, 8192 * MIB)),
        (cold(1, spread=Spread("k", "zone", max=1)), {"spread": 4}, OverLimit("spread", 0, 0, 1, 0)),
    ):
        explained = await ledger.placements.explain(request)
        assert (explained.reasons, explained.over_limit) == (reasons, figures)
        for each in (request, named(request)):
            with pytest.raises(NoNodes) as refused:
                await ledger.placements.schedule(each)
            assert (refused.value.reasons, refused.value.facts["over_limit"]) == (reasons, asdict(figures))
        asked = await asyncio.gather(*(ledger.placements.schedule(request) for _ in range(3)), return_exceptions=True)
        assert [each.facts["over_limit"] for each in asked if isinstance(each, NoNodes)] == [asdict(figures)] * 3
        for form in (request, named(request)):
            for key in ("twice", None):
                batch = BatchRequest((form, named(cold(20))), idempotency_key=key and f"{form}")
                for _ in range(2):
                    decided = await ledger.placements.schedule_batch(batch)
                    assert [(each.index, each.reasons) for each in decided.refused] == [
                        (0, reasons),
                        (1, {"too_large": 4}),
                    ]
                    assert [each.over_limit for each in decided.refused] == [
                        figures,
                        OverLimit("cpu_count", 16, 0, 20, 16),
                    ]
    assert "schedule_sandboxes" in {script for script, _, _ in calls}
    await ledger.nodes.remove("c")
    await ledger.nodes.remove("d")
    explained = await ledger.placements.explain(cold(2, 2560))
    assert (explained.reasons, explained.over_limit) == ({"insufficient_memory": 2}, lacks_memory)
    assert [node.over_limit for node in explained.nodes] == [
        lacks_memory,
        OverLimit("memory_bytes", 7000 * MIB, 0, 2560 * MIB, 8192 * MIB),
    ]
    filled = await ledger.placements.schedule_batch(BatchRequest((cold(1, 1024),) * 2 + (cold(1, 2048),)))
    assert [each.over_limit for each in filled.refused] == [
        OverLimit("memory_bytes", 5000 * MIB, 2048 * MIB, 2048 * MIB, 8192 * MIB)
    ], "what was placed before it in the same batch is pending"
