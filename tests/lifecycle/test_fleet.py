"""A fleet kept nearly full through ten thousand creates: what is held for nothing, and what that costs.

Nodes boot for two seconds, report every five, count growth before success, fork, fail image pulls that no
counter shows, and one of them restarts. `-s` prints the figures.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from scheduler.lab.compare import compare_endings
from scheduler.lab.lifecycle import Ending, LifecycleResult, Workload
from tests.support.servers import RedisServer

WORKLOAD = Workload(creates=10_000)


def told(result: LifecycleResult) -> str:
    return (
        f"{result.ending}: {result.creates} creates, {result.allocated:.1%} allocated ({result.least_allocated:.1%} at"
        f" least), {result.held_unused:.2%} held but unused, {result.promised_unheld:.2%} promised but not held,"
        f" {result.refused} refused, {result.refused_by_holding} of them a perfect ledger would have placed"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_ten_thousand_explicit_creates_hold_next_to_nothing_for_nothing(real_server: RedisServer) -> None:
    with capture_logs():  # so that the figures can be seen
        (explicit,) = await compare_endings(WORKLOAD, [Ending.EXPLICIT], real_server.address)
        (heartbeat,) = await compare_endings(replace(WORKLOAD, creates=2_000), [Ending.COUNTERS], real_server.address)
    print(told(explicit), told(heartbeat), sep="\n")
    assert explicit.creates == WORKLOAD.creates
    assert explicit.least_allocated >= 0.9
    assert explicit.held_unused < 0.01
    assert explicit.promised_unheld == 0
    assert explicit.refused_by_holding < 0.05 * explicit.creates
    assert heartbeat.held_unused > 10 * explicit.held_unused, "what it is for would be gone"
