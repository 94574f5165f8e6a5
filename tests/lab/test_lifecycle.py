"""The lifecycle experiment tells a perfect ledger from one that forgets, one that leaks, and one that counts twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.lab.clock import Agenda, Spread, VirtualClock, always
from scheduler.lab.fleet import FleetOptions
from scheduler.lab.gateway import Ending
from scheduler.lab.lifecycle import BURST, FATES, FLEET, LifecycleResult, LifecycleRun, Workload
from scheduler.lab.node import Size
from tests.lab.plain_scheduler import Fault, PlainScheduler

FULL = Workload(node_count=6, duration_ms=120_000, warmup_ms=30_000)
SMALL_BURST = replace(BURST, node_count=6, duration_ms=30_000)


async def judged(scheduler: PlainScheduler, workload: Workload, ending: Ending = Ending.EXPLICIT) -> LifecycleResult:
    result = await LifecycleRun(ending, workload, scheduler, Agenda(VirtualClock())).run()
    assert result.unexpected == {}
    return result


async def test_a_perfect_ledger_places_all_that_fits_and_holds_nothing_for_nothing() -> None:
    burst = await judged(PlainScheduler(), SMALL_BURST)
    assert (burst.placed, burst.placeable) == (18, 18)
    full = await judged(PlainScheduler(), FULL)
    for figures in (burst.figures, full.figures):
        assert (figures.given_twice, figures.over_by_forks, figures.not_held) == (0, 0, 0.0)
        assert figures.worst_pressure <= 1.0
        assert figures.held_though_free < 0.01, "only what ended before a report listed it, until two reports do not"
        assert figures.refused_by_holding < 0.5 * max(1, figures.refused)
    assert full.figures.allocated > 0.85
    assert full.figures.refused_with_room > full.figures.refused_by_holding, "what ended since its node's last report"
    assert full.figures.samples == 2 * 90 + 1


async def test_a_ledger_that_counts_booting_sandboxes_twice_refuses_what_there_is_room_for() -> None:
    burst = await judged(PlainScheduler(Fault.COUNTS_BOOTING_TWICE), SMALL_BURST)
    assert burst.placed < burst.placeable == 18
    assert burst.figures.refused_by_holding > 0
    full = await judged(PlainScheduler(Fault.COUNTS_BOOTING_TWICE), FULL)
    assert full.figures.held_though_free > 0.03
    assert full.figures.given_twice == 0


async def test_a_careless_ledger_is_found_to_give_capacity_twice() -> None:
    for workload in (SMALL_BURST, replace(FULL, duration_ms=20_000, warmup_ms=5_000)):
        figures = (await judged(PlainScheduler(Fault.HOLDS_NOTHING), workload)).figures
        assert figures.given_twice > 0
        assert figures.worst_pressure > 1.0
        assert figures.not_held > 0.0


async def test_a_leaky_ledger_is_found_to_hold_what_is_free() -> None:
    figures = (await judged(PlainScheduler(Fault.LEAKS), FULL, Ending.COUNTERS)).figures
    assert figures.held_though_free_end > 0.5
    assert figures.refused_by_holding > 0.5 * figures.refused


async def test_what_only_forks_overdraw_is_not_given_twice() -> None:
    forking = replace(FULL, fates=replace(FATES, forks=0.3))
    figures = (await judged(PlainScheduler(), forking)).figures
    assert figures.given_twice == 0
    assert figures.over_by_forks > 0
    assert figures.worst_pressure > 1.0


async def test_only_the_endings_by_id_confirm_and_only_those_by_events_send_them() -> None:
    did = {}
    for ending in Ending:
        scheduler = PlainScheduler()
        await judged(scheduler, SMALL_BURST, ending)
        did[ending] = (bool(scheduler.sandbox_of), bool(scheduler.events))
    assert did == {
        Ending.EXPLICIT: (True, False),
        Ending.NAMED: (True, False),
        Ending.BOTH: (True, True),
        Ending.EVENTS: (False, True),
        Ending.COUNTERS: (False, False),
    }


async def test_failed_pulls_and_boots_are_cancelled_and_restarts_lose_what_was_under_way() -> None:
    scheduler = PlainScheduler()
    failing = replace(FULL, fates=replace(FATES, pull_fails=0.1, boot_fails=0.1), restarts=2)
    figures = (await judged(scheduler, failing)).figures
    assert scheduler.cancelled > 20
    assert figures.given_twice == 0
    assert sum(report.service_instance_id.endswith("run-1") for report in scheduler.reports) > 2


async def test_late_reports_and_lost_events_happen_as_often_as_asked() -> None:
    scheduler = PlainScheduler()
    fleet = replace(FLEET, late_reports=0.5, lost_events=0.5)
    await judged(scheduler, replace(FULL, fleet=fleet), Ending.EVENTS)
    sequences = [report.sequence for report in scheduler.reports if report.node_id == "node-000"]
    assert sequences != sorted(sequences), "one that was given up arrived after its successor"
    complete = PlainScheduler()
    await judged(complete, FULL, Ending.EVENTS)
    assert (
        0.3 < (len(scheduler.events) / len(scheduler.requests)) / (len(complete.events) / len(complete.requests)) < 0.7
    )


async def test_the_same_seed_is_the_same_run_and_another_seed_another() -> None:
    first, again, other = [(await judged(PlainScheduler(), replace(FULL, seed=seed))).as_dict() for seed in (1, 1, 2)]
    assert first == again
    assert first != other


def test_a_shortened_story_is_the_same_story_faster() -> None:
    fast = replace(BURST, fleet=FLEET).shortened(4)
    assert (fast.large_after_ms, fast.duration_ms, fast.sample_ms) == (1_000, 16_000, 125)
    assert fast.fleet.boot == Spread(500, 5_000)
    assert fast.fleet.report_interval == Spread(1_250, 3_750)
    assert fast.fates.mean_life_ms == 0, "for ever, as before"
    assert Workload().shortened(4).fates.mean_life_ms == 15_000
    assert (fast.node_count, fast.node_size) == (50, Size(32, 131_072))


@pytest.mark.parametrize("boot", [always(100), always(4_000), Spread(2_000, 20_000)])
async def test_how_long_boots_take_makes_no_difference_to_a_perfect_ledger(boot: Spread) -> None:
    fleet = FleetOptions(report_interval=Spread(5_000, 15_000), boot=boot)
    result = await judged(PlainScheduler(), replace(SMALL_BURST, fleet=fleet))
    assert result.placed == result.placeable
