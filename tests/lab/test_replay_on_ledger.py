"""Replays on the real thing: the ledger decides, embedded and on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import Admission, GroupPlacement, GroupSettings, LedgerSettings
from scheduler.errors import ConfigurationError
from scheduler.lab.clock import always
from scheduler.lab.compare import Setup, compare_strategies, contenders
from scheduler.lab.fleet import FleetOptions
from scheduler.lab.replay import ReplayOptions, ReplayResult
from scheduler.lab.trace import (
    BUNDLED,
    BUNDLED_NODES,
    BUNDLED_REQUESTS,
    NodeSpec,
    Trace,
    TraceRequest,
    read_requests,
    read_trace,
)
from tests.support.servers import RedisServer

SHARED = Path(__file__).parents[3] / "shared" / "data"
EVERY = tuple(Strategy)
REQUESTS = 240
GROUPS_OF_TEN = LedgerSettings(groups=GroupSettings(max_sandbox_count=10))


@pytest.fixture(params=["embedded", "real"])
def redis_addr(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return "embedded"
    server: RedisServer = request.getfixturevalue("real_server")
    return server.address


async def judged(trace: Trace, strategies: tuple[Strategy, ...], setup: Setup) -> dict[str, ReplayResult]:
    rivals = contenders(strategies, (GroupPlacement.ROUND_ROBIN,))
    return {result.contender.label: result for result in await compare_strategies(trace, rivals, setup)}


async def test_the_replay_of_pull_request_27_gives_its_figures(redis_addr: str) -> None:
    trace = read_trace(BUNDLED / "pr27_nodes.csv", BUNDLED / "pr27_requests.csv")
    assert trace.nodes == tuple(NodeSpec(f"node-{cpus}", cpus, cpus * 2048) for cpus in (16, 64, 192))
    assert trace.requests == tuple(TraceRequest(second * 1000, None, 2, 4096) for second in range(300))
    unlimited = LedgerSettings(overcommit_cpu=None, overcommit_memory=None)
    results = await judged(trace, (Strategy.ROUND_ROBIN, Strategy.LEAST_LOADED), Setup(redis_addr, unlimited))
    assert {name: f"{result.peak_pressure:.4f}" for name, result in results.items()} == {
        "round_robin": "12.5000",
        "least_loaded": "2.2188",
    }
    assert {result.placed for result in results.values()} == {300}


async def test_on_the_bundled_trace_least_loaded_stays_within_capacity_and_grouped_finds_warm_nodes(
    real_server: RedisServer,
) -> None:
    whole = read_trace(BUNDLED_NODES, BUNDLED_REQUESTS)
    trace = Trace(whole.nodes, whole.requests[:REQUESTS])
    results = await judged(trace, EVERY, Setup(real_server.address, GROUPS_OF_TEN))
    least, grouped, rotating = (results[name] for name in ("least_loaded", "grouped_round_robin", "round_robin"))
    assert least.peak_pressure <= 1.0
    assert least.placed + sum(least.refused.values()) == REQUESTS
    assert rotating.placed == grouped.placed == REQUESTS
    assert rotating.peak_pressure > 1.5
    assert least.imbalance < rotating.imbalance / 3
    assert grouped.hit_rate is not None
    assert rotating.hit_rate is not None
    assert grouped.hit_rate > rotating.hit_rate + 0.1


async def test_a_replay_is_the_same_run_again_random_strategy_included() -> None:
    trace = read_trace(BUNDLED_NODES, BUNDLED_REQUESTS)
    short = Trace(trace.nodes, trace.requests[:30])
    setup = Setup("embedded", GROUPS_OF_TEN, seed=11)
    assert await judged(short, EVERY, setup) == await judged(short, EVERY, setup)
    other = await judged(short, (Strategy.RANDOM,), Setup("embedded", seed=12))
    assert other["random"] != (await judged(short, (Strategy.RANDOM,), setup))["random"]


async def test_admission_always_makes_every_strategy_refuse_instead_of_overloading() -> None:
    nodes = (NodeSpec("a", 8, 16_384), NodeSpec("b", 8, 16_384))
    trace = Trace(nodes, tuple(TraceRequest(second * 1000, None, 2, 1024, "k") for second in range(12)))
    settings = LedgerSettings(admission=Admission.ALWAYS, groups=GroupSettings(max_sandbox_count=3))
    for result in (await judged(trace, EVERY, Setup("embedded", settings))).values():
        assert (result.placed, result.refused) == (8, {"insufficient_cpu": 4}), result.contender.label
        assert result.peak_pressure == 1.0


async def test_what_heartbeats_settle_is_free_again_without_a_confirm() -> None:
    """Waves that fit only if the wave before has settled and ended."""
    nodes = (NodeSpec("a", 4, 8192),)
    waves = [TraceRequest(wave * 60_000, 20_000, 2, 1024, "k") for wave in range(6) for _ in range(2)]
    options = ReplayOptions(lifecycle=Lifecycle.HEARTBEAT, fleet=FleetOptions(idle_reports=False, boot=always(100)))
    results = await judged(Trace(nodes, tuple(waves)), (Strategy.LEAST_LOADED,), Setup("embedded", options=options))
    assert results["least_loaded"].placed == 12


async def test_an_idle_fleet_of_months_costs_nothing_and_never_falls_silent() -> None:
    month_ms = 30 * 86_400_000
    trace = Trace((NodeSpec("a", 4, 8192),), tuple(TraceRequest(month_ms * n, 1000, 4, 512) for n in range(12)))
    result = (await judged(trace, (Strategy.LEAST_LOADED,), Setup("embedded")))["least_loaded"]
    assert (result.placed, result.degraded) == (12, 0)


async def test_a_trace_may_say_what_nodes_have_and_requests_require_take_and_spread(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "node_id,cpu_count,memory_mb,labels,resources\n"
        "a,64,65536,zone=east,gpu=2 disk=100\nb,64,65536,zone=west,\nc,64,65536,,gpu=1\n"
    )
    (tmp_path / "requests.csv").write_text(
        "arrival_s,duration_s,cpu,memory_mb,image_or_template,require,resources,spread\n"
        "0,60,1,64,k,zone=east+north,gpu=2,\n0,60,1,64,k,,gpu=1,\n"
        "0,60,1,64,k,,gpu=1,\n0,60,1,64,k,zone=east,disk=101,\n0,60,1,64,k,zone=south,,\n"
        "0,60,1,64,k,,,solo max=1\n" + "0,60,1,64,k,,,web zone max=1\n" * 3 + "90,60,1,64,k,zone=east,gpu=2,\n"
    )
    trace = read_trace(tmp_path / "nodes.csv", tmp_path / "requests.csv")
    settings = LedgerSettings(resources=trace.resource_names)
    for name, result in (await judged(trace, EVERY, Setup("embedded", settings))).items():
        assert (result.placed, result.refused) == (6, {"insufficient_gpu": 1, "label": 2, "spread": 1}), name


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("require", "zone"), ("require", "zone=a,b"), ("require", "zone=a zone=b"), ("resources", "gpu=-1"),
        ("resources", "cpu=1"),
        ("resources", "gpu"), ("spread", "web"), ("spread", "web max=0"), ("spread", "web zone rack max=1"),
    ],
)  # fmt: skip
def test_a_term_of_a_trace_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, column: str, cell: str) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(f'arrival_s,duration_s,cpu,memory_mb,image_or_template,{column}\n0,1,1,1,k,"{cell}"\n')
    with pytest.raises(ConfigurationError, match=f"line 2: {column} must be"):
        read_requests(file)


async def test_what_came_and_went_between_two_reports_is_free_again_after_a_long_quiet_time() -> None:
    """Hours without a report are no report interval: the second sandbox fits once the first is told to be gone."""
    hour_ms = 3_600_000
    pairs = (at_ms for hour in range(1, 4) for at_ms in (hour * hour_ms, hour * hour_ms + 30_000))
    trace = Trace((NodeSpec("a", 4, 8192),), tuple(TraceRequest(at_ms, 100, 4, 512) for at_ms in pairs))
    assert (await judged(trace, (Strategy.LEAST_LOADED,), Setup("embedded")))["least_loaded"].placed == 6


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside this repository")
async def test_groups_that_open_on_the_least_loaded_node_hit_as_often_at_a_clearly_lower_peak(
    real_server: RedisServer,
) -> None:
    trace = read_trace(SHARED / "nodes_small.csv", SHARED / "requests_keyed.csv").compressed(100)
    short = Trace(trace.nodes, trace.requests[:3000])
    rivals = contenders((Strategy.GROUPED_ROUND_ROBIN,), tuple(GroupPlacement))
    by_turn, by_load = await compare_strategies(short, rivals, Setup(real_server.address, GROUPS_OF_TEN))
    assert by_turn.hit_rate is not None
    assert by_load.hit_rate is not None
    assert by_load.hit_rate > by_turn.hit_rate - 0.01
    assert by_load.peak_pressure < 0.75 * by_turn.peak_pressure
