"""The models of other schedulers: each chooses by its one rule, and none above capacity."""

from __future__ import annotations

import pytest

from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.errors import NoNodes
from scheduler.lab.clock import Agenda, VirtualClock
from scheduler.lab.compare import Setup, compare_strategies, contenders
from scheduler.lab.fleet import FleetOptions
from scheduler.lab.peers import Peer, PeerScheduler
from scheduler.lab.replay import Contender, Replay, ReplayOptions
from scheduler.lab.trace import NodeSpec, Trace, TraceRequest

NODES = (NodeSpec("large", 16, 16384), NodeSpec("small", 4, 4096))


def asked(cpu_count: int, memory_mb: int = 256) -> ScheduleRequest:
    return ScheduleRequest(Hint(HintKind.COLD_SANDBOX, cpu_count, memory_mb))


async def opened(peer: Peer) -> PeerScheduler:
    scheduler = PeerScheduler(peer, NODES, seed=1)
    await scheduler.discover([NodeAddress(node.node_id, f"http://{node.node_id}") for node in NODES])
    return scheduler


@pytest.mark.parametrize(
    ("peer", "first"),
    [
        (Peer.LEAST_ALLOCATED, "large"),
        (Peer.MOST_ALLOCATED, "small"),
        (Peer.BEST_FIT, "small"),
        (Peer.POWER_OF_TWO, "large"),
        (Peer.BEST_OF_THREE, "large"),
    ],
)
async def test_each_rule_chooses_its_own(peer: Peer, first: str) -> None:
    scheduler = await opened(peer)
    assert (await scheduler.schedule(asked(2))).node.node_id == first


@pytest.mark.parametrize("peer", Peer)
async def test_none_places_above_capacity(peer: Peer) -> None:
    scheduler = await opened(peer)
    placed = [(await scheduler.schedule(asked(4))).node.node_id for _ in range(5)]
    assert (placed.count("large"), placed.count("small")) == (4, 1)
    with pytest.raises(NoNodes):
        await scheduler.schedule(asked(1))


async def test_an_ended_sandbox_is_counted_no_more() -> None:
    requests = (TraceRequest(0, 10_000, 4, 512), TraceRequest(12_001, None, 4, 512), TraceRequest(12_002, None, 4, 512))
    trace = Trace((NODES[1],), requests)
    fleet = FleetOptions(idle_reports=False, sends_events=True)
    replay = Replay(
        trace, PeerScheduler(Peer.BEST_FIT, trace.nodes, 1), Agenda(VirtualClock()), ReplayOptions(fleet=fleet)
    )
    result = await replay.run(Contender(Peer.BEST_FIT))
    assert (result.placed, result.refused) == (2, {"insufficient_capacity": 1})
    assert result.contender.label == "as best_fit"


async def test_a_comparison_runs_them_without_a_ledger() -> None:
    trace = Trace(NODES, tuple(TraceRequest(0, None, 2, 256) for _ in range(4)))
    rivals = contenders([], [], list(Peer))
    results = await compare_strategies(trace, rivals, Setup("nowhere:1"))
    assert [result.as_dict()["strategy"] for result in results] == list(Peer)
    assert {result.placed for result in results} == {4}
    used = {result.contender.strategy: result.nodes_used_mean for result in results}
    assert used[Peer.MOST_ALLOCATED] == 2, "two on the small one, then the large one: all at one instant"
