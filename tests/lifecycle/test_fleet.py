"""A fleet kept as full as the ledger believes it may be: what is held though it is free, by the nodes' own truth.

Boots take 2 to 20 seconds, reports come every 5 to 15, 5 % of the boots fail. `-s` prints the figures.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from scheduler.lab.compare import compare_endings
from scheduler.lab.gateway import Ending
from scheduler.lab.lifecycle import LifecycleResult, Workload
from tests.support.servers import RedisServer

WORKLOAD = Workload(node_count=20, duration_ms=180_000)


def told(result: LifecycleResult) -> str:
    figures = result.figures
    return (
        f"{result.ending}: {result.placed} placed, {figures.allocated:.1%} used;"
        f" {figures.held_though_free:.2%} held though free, {figures.not_held:.2%} needed but not held;"
        f" {figures.refused} refused, {figures.refused_by_holding} of them a perfect ledger would have placed"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_whoever_confirms_holds_less_for_nothing_and_nobody_is_given_what_is_in_use(
    real_server: RedisServer,
) -> None:
    with capture_logs():  # so that the figures can be seen
        explicit, both, counters = await compare_endings(
            WORKLOAD, [Ending.EXPLICIT, Ending.BOTH, Ending.COUNTERS], real_server.address
        )
    print(*map(told, (explicit, both, counters)), sep="\n")
    for result in (explicit, both, counters):
        assert (result.figures.given_twice, result.figures.over_by_forks) == (0, 0)
        assert result.unexpected == {}
    assert explicit.figures.not_held == both.figures.not_held == 0.0
    assert explicit.figures.allocated > 0.8
    assert both.figures.allocated > explicit.figures.allocated, "ends are known at once"
