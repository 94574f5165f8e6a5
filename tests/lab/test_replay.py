"""The replay's own bookkeeping, on a scheduler whose every choice is known."""

from __future__ import annotations

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.errors import NoNodes, Overloaded
from scheduler.lab.clock import Agenda, VirtualClock
from scheduler.lab.replay import Contender, Replay, ReplayOptions, ReplayResult, reason_of
from scheduler.lab.trace import NodeSpec, Trace, TraceRequest
from tests.lab.plain_scheduler import PlainScheduler

NODES = (NodeSpec("a", 4, 8192), NodeSpec("b", 4, 8192))


async def replayed(
    requests: list[TraceRequest], options: ReplayOptions | None = None
) -> tuple[ReplayResult, PlainScheduler]:
    scheduler = PlainScheduler()
    trace = Trace(NODES, tuple(requests))
    replay = Replay(trace, scheduler, Agenda(VirtualClock()), options or ReplayOptions())
    return await replay.run(Contender(Strategy.LEAST_LOADED)), scheduler


async def test_placements_refusals_and_pressure_are_counted_from_the_fleets_side() -> None:
    result, _ = await replayed([TraceRequest(at_ms, None, 2, 1024, "k") for at_ms in range(0, 5000, 1000)])
    assert (result.placed, result.refused) == (4, {"insufficient_cpu": 1})
    assert result.peak_pressure == 1.0
    assert result.curve[-1].highest == 1.0


async def test_a_sandbox_that_ended_makes_room_after_its_nodes_next_report() -> None:
    full = [TraceRequest(0, 10_000, 4, 1024, "k"), TraceRequest(0, 10_000, 4, 1024, "k")]
    early, _ = await replayed([*full, TraceRequest(10_001, None, 4, 1024, "k")])
    late, _ = await replayed([*full, TraceRequest(16_000, None, 4, 1024, "k")])
    assert (early.placed, late.placed) == (2, 3)


async def test_explicit_reservations_are_confirmed_once_the_sandbox_runs() -> None:
    requests = [TraceRequest(0, 60_000, 1, 512, "k"), TraceRequest(30_000, None, 1, 512, "k")]
    _, scheduler = await replayed(requests)
    assert scheduler.sandbox_of == {"r1": "sandbox-1"}
    _, heartbeat_only = await replayed(requests, ReplayOptions(lifecycle=Lifecycle.HEARTBEAT))
    assert heartbeat_only.sandbox_of == {}
    assert {request.lifecycle for request in heartbeat_only.requests} == {Lifecycle.HEARTBEAT}


async def test_the_hint_carries_size_and_key() -> None:
    _, scheduler = await replayed([TraceRequest(0, 1, 3, 700, "app:1"), TraceRequest(0, 1, 1, 0, "")])
    hints = [request.hint for request in scheduler.requests]
    assert [(hint.cpu_count, hint.memory_mb, hint.images) for hint in hints if hint] == [
        (3, 700, ("app:1",)),
        (1, 0, ()),
    ]


async def test_hit_rate_counts_placements_on_a_node_that_has_the_key_warm() -> None:
    one_at_a_time = [TraceRequest(60_000 * number, 10_000, 1, 512, "k") for number in range(4)]
    result, _ = await replayed(one_at_a_time)
    assert result.hit_rate == 0.75, "an idle fleet: always node a, cold only at first"


async def test_two_replays_of_one_trace_are_the_same_run() -> None:
    requests = [TraceRequest(137 * number, 1_000 * (number % 7), number % 3 + 1, 512, "k") for number in range(60)]
    first, _ = await replayed(requests)
    second, _ = await replayed(requests)
    assert first == second


async def test_the_run_is_measured_up_to_the_last_arrival() -> None:
    result, _ = await replayed([TraceRequest(0, 1_000, 4, 512, "k"), TraceRequest(100_000, None, 1, 512, "k")])
    assert result.as_dict()["over_time"][-1]["at_s"] < 100
    assert result.imbalance == pytest.approx(0.5 * 2 / 100, abs=0.001), "boot and life: 2 s of 100 at deviation 0.5"


def test_a_refusal_counts_under_the_reason_most_nodes_gave() -> None:
    assert reason_of(NoNodes(5, {"insufficient_memory": 2, "unhealthy": 3})) == "unhealthy"
    assert reason_of(NoNodes(4, {"unhealthy": 2, "insufficient_cpu": 2})) == "insufficient_cpu"
    assert reason_of(NoNodes(0, {})) == "no_nodes"
    assert reason_of(Overloaded("later")) == "overloaded"
