"""The lifecycle experiment, small, on the ledger: what RFC #90 promises against what counters can know."""

from __future__ import annotations

import pytest

from scheduler.lab.compare import compare_endings
from scheduler.lab.lifecycle import Ending, LifecycleResult, Workload
from tests.support.servers import RedisServer

SMALL = Workload(
    creates=300, node_count=6, node_cpu_count=32, node_memory_mb=65_536, mean_life_ms=120_000, patience_ms=900_000
)


@pytest.fixture(params=["embedded", "real"])
def redis_addr(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return "embedded"
    server: RedisServer = request.getfixturevalue("real_server")
    return server.address


async def test_told_by_id_nothing_promised_is_free_and_next_to_nothing_is_held_unused(redis_addr: str) -> None:
    (explicit,) = await compare_endings(SMALL, [Ending.EXPLICIT], redis_addr)
    assert explicit.creates == SMALL.creates
    assert explicit.allocated >= 0.9
    assert explicit.held_unused < 0.01
    assert explicit.promised_unheld == 0
    assert explicit.refused_by_holding < 0.3 * explicit.refused


async def test_counters_alone_hold_more_for_nothing_than_ids_do(real_server: RedisServer) -> None:
    explicit, counters = await compare_endings(SMALL, [Ending.EXPLICIT, Ending.COUNTERS], real_server.address)
    assert counters.held_unused > 5 * explicit.held_unused
    assert refused_needlessly(counters) > refused_needlessly(explicit)


def refused_needlessly(result: LifecycleResult) -> float:
    return result.refused_by_holding / result.creates
