"""The bench of the longest step: every kind of call comes up, and none does more than the size of a slice."""

from __future__ import annotations

import pytest

from scheduler.lab.bench_bounds import BoundsOptions, bench_bounds
from scheduler.lab.burst import BurstOptions, run_burst
from tests.support.servers import RedisServer

# More of everything than a slice, so that whatever grows with the ledger instead of the slice shows.
SMALL = BoundsOptions(nodes=150, reservations=900, on_one_node=650, roster=700, events=200, changes=100)
# What no script may run, however much there is: commands are what time on a busy machine cannot tell. A batch of 128
# creations takes 15 commands each.
COMMANDS_MOST = 2_500
# Reads of everything in one moment, for an operator alone.
FOR_OPERATORS = {"recount_node"}


@pytest.mark.slow
async def test_no_script_grows_with_what_has_piled_up(real_server: RedisServer) -> None:
    costs = await bench_bounds(real_server.address, SMALL)
    assert {
        "set_nodes", "refresh_rows", "read_nodes", "list_reservations", "read_summary", "sweep_ledger", "apply_roster",
        "record_heartbeat", "record_events", "schedule_sandbox", "schedule_batch", "explain_schedule",
        "confirm_reservation", "tally_reservations",
    } <= {cost.script for cost in costs}  # fmt: skip
    assert not [cost for cost in costs if cost.commands > COMMANDS_MOST and cost.script not in FOR_OPERATORS]
    assert all(cost.worst_ms >= cost.mean_ms > 0 for cost in costs)


@pytest.mark.slow
async def test_a_burst_fills_a_fleet_exactly(real_server: RedisServer) -> None:
    result = await run_burst(real_server.address, BurstOptions(nodes=20, creations=200, batch=50, callers=4))
    assert result.sound
    assert (result.confirmed, result.refused, result.over) == (200, 0, 0)
    assert 0 < result.confirm_p50_ms <= result.confirm_p99_ms
