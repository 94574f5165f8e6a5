"""The lifecycle experiment, small, on the ledger: what the nodes say of what it believes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.errors import ConfigurationError
from scheduler.lab.compare import Replicas, compare_endings, endings_on_replicas
from scheduler.lab.gateway import Ending
from scheduler.lab.lifecycle import BURST, LifecycleResult, Workload
from scheduler.lab.replica_processes import replica_processes
from tests.support.servers import RedisServer

FULL = Workload(node_count=6, duration_ms=60_000, warmup_ms=20_000)
SMALL_BURST = replace(BURST, node_count=8, duration_ms=24_000)


@pytest.fixture(params=["embedded", "real"])
def redis_addr(request: pytest.FixtureRequest) -> str:
    if request.param == "embedded":
        return "embedded"
    server: RedisServer = request.getfixturevalue("real_server")
    return server.address


def assert_sound(result: LifecycleResult) -> None:
    """Nothing was given twice, and no call failed otherwise than by a refusal."""
    assert result.unexpected == {}
    assert (result.figures.given_twice, result.figures.over_by_forks) == (0, 0)
    assert result.figures.worst_pressure <= 1.0


async def test_told_by_id_no_capacity_is_given_twice_and_none_that_is_needed_is_free(redis_addr: str) -> None:
    (explicit,) = await compare_endings(FULL, [Ending.EXPLICIT], redis_addr)
    assert_sound(explicit)
    assert explicit.figures.not_held == 0.0
    assert explicit.figures.allocated > 0.75


async def test_in_a_burst_every_sandbox_is_placed_that_fits_however_its_reservation_ends(redis_addr: str) -> None:
    for result in await compare_endings(SMALL_BURST, list(Ending), redis_addr):
        assert_sound(result)
        assert (result.ending, result.placed, result.placeable) == (result.ending, 24, 24)


@pytest.mark.slow
async def test_a_burst_on_replica_processes_is_judged_in_real_time(real_server: RedisServer) -> None:
    (result,) = await endings_on_replicas(SMALL_BURST, [Ending.BOTH], Replicas(2, real_server.address, time_scale=4))
    assert_sound(result)
    assert result.placed == result.placeable == 24
    with real_server.client() as client:
        assert client.keys() == [], "what they kept ends with them"


async def test_a_replica_that_does_not_start_is_told_with_its_last_words(real_server: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match="no configuration key named nonsense"):
        async with replica_processes(2, real_server.address, {"nonsense": "1"}):
            pass
