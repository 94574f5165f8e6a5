"""The benchmark's arithmetic, and one small run on a real server; no figure is judged here."""

from __future__ import annotations

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.placement import Strategy
from scheduler.errors import ConfigurationError
from scheduler.lab.bench import BenchOptions, bench_schedule
from scheduler.lab.bench_fleet import snapshot_of
from scheduler.lab.calls import without_effect
from scheduler.lab.server_figures import (
    CallStatistics,
    ScriptCost,
    ServerFigures,
    call_statistics,
    middle,
    middle_cost,
)
from scheduler.ledger.ledger import open_ledger
from tests.support.servers import RedisServer

TINY = BenchOptions(rounds=2, calls=40, churn_shapes=(3,), churn_rounds=1)


def test_call_statistics_are_read_from_the_servers_own_line() -> None:
    stats = {"cmdstat_evalsha": "calls=5,usec=210,usec_per_call=42.00,rejected_calls=0,failed_calls=0"}
    assert call_statistics(stats) == CallStatistics(5, 210)
    assert call_statistics(stats).mean_us == 42.0
    assert call_statistics({}).mean_us == 0.0


def test_the_middle_of_several_rounds_is_their_median() -> None:
    assert middle([30.0, 10.0, 1000.0]) == 30.0
    assert middle([]) == 0.0
    rounds = [ScriptCost(1.0, 30.0), ScriptCost(2.0, 10.0), ScriptCost(9.0, 20.0)]
    assert middle_cost(rounds) == ScriptCost(2.0, 20.0)


def test_the_noop_gets_the_same_keys_and_arguments() -> None:
    assert without_effect("noop", [("EVALSHA", "script", 1, "key", "a", 2)]) == [("EVALSHA", "noop", 1, "key", "a", 2)]


def test_every_node_of_the_benchmark_has_a_load_of_its_own() -> None:
    for version in (0, 1):
        loads = {snapshot_of(number, version).allocated_memory_bytes for number in range(100_000)}
        assert len(loads) == 100_000
    assert snapshot_of(7, 0) != snapshot_of(7, 1)


async def test_memory_is_the_servers_own_figure(real_server: RedisServer) -> None:
    ledger = await open_ledger(real_server.address, domain="memory")
    figures = ServerFigures(ledger.client)
    before = await figures.used_memory_bytes()
    with real_server.client() as client:
        client.set("large", bytes(8 * MIB))
    # Buffers of connections grow and shrink meanwhile, by far less.
    assert await figures.used_memory_bytes() - before > 7 * MIB
    await ledger.close()


async def test_a_small_benchmark_fills_every_figure(real_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of so few nodes the memory is less than what buffers grow and shrink by, so it is told: before and after loading.
    memory = iter([9_000, 9_000 + 40 * 640, 7_000, 7_000 + 60 * 640])

    async def used_memory_bytes(_: ServerFigures) -> int:
        return next(memory)

    monkeypatch.setattr(ServerFigures, "used_memory_bytes", used_memory_bytes)
    stages: list[str] = []
    report = await bench_schedule(real_server.address, [40, 60], [1, 3], TINY, stages.append)
    assert [(cost.nodes, cost.shapes) for cost in report.placements] == [(40, 1), (40, 3), (60, 1), (60, 3)]
    for cost in report.placements:
        assert cost.script_us > cost.noop_us > 0
        assert cost.ratio == cost.script_us / cost.noop_us
        assert cost.cpu_us > cost.noop_cpu_us
        assert cost.round_trip_us > 0
        assert cost.cold_us > 0
        assert cost.bytes_per_node == 640
    for fleet in report.fleets:
        assert set(fleet.churn_us) == {3}
        assert list(fleet.batch_cpu_us) == [0, 1, 4, 16, 64, 256]
        assert min(fleet.batch_cpu_us.values()) > 0
        assert fleet.refusal_us is not None
        assert (
            min(
                fleet.churn_us[3],
                fleet.tied_us,
                fleet.refusal_us,
            )
            > 0
        )
        assert min(fleet.heartbeat_changed_us, fleet.heartbeat_unchanged_us) > fleet.heartbeat_noop_us > 0
    assert stages[0] == "40 nodes: loading"
    assert set(report.as_dict()["results"][0]) >= {
        "nodes", "shapes", "script_us", "noop_us", "ratio", "round_trip_us", "bytes_per_node",
    }  # fmt: skip


async def test_strategies_that_refuse_nothing_can_be_measured_too(real_server: RedisServer) -> None:
    options = BenchOptions(Strategy.ROUND_ROBIN, rounds=1, calls=20, churn_shapes=(2,), churn_rounds=1)
    report = await bench_schedule(real_server.address, [30], [1], options)
    assert report.fleets[0].refusal_us is None


async def test_the_embedded_ledger_keeps_no_figures_to_benchmark() -> None:
    with pytest.raises(ConfigurationError, match="real Redis server"):
        await bench_schedule("embedded", [10], [1], TINY)


async def test_a_benchmark_leaves_nothing_behind_on_a_server_that_was_named(real_server: RedisServer) -> None:
    await bench_schedule(real_server.address, [20], [1], TINY)
    with real_server.client() as client:
        assert client.dbsize() == 0
