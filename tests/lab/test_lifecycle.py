"""The lifecycle experiment tells a perfect ledger from a leaky one."""

from __future__ import annotations

from scheduler.lab.clock import Agenda, VirtualClock
from scheduler.lab.fleet import Fleet, FleetOptions, SandboxOrder
from scheduler.lab.lifecycle import Ending, LifecycleResult, LifecycleRun, Workload
from scheduler.lab.trace import NodeSpec
from scheduler.lab.truth import Size, Truth
from tests.lab.plain_scheduler import PlainScheduler

SMALL = Workload(creates=400, node_count=4, node_cpu_count=32, node_memory_mb=65_536, mean_life_ms=60_000)


async def judged(scheduler: PlainScheduler, ending: Ending = Ending.EXPLICIT) -> LifecycleResult:
    return await LifecycleRun(ending, SMALL, scheduler, Agenda(VirtualClock())).run()


async def test_a_perfect_ledger_holds_nothing_unused_and_forgets_nothing_promised() -> None:
    result = await judged(PlainScheduler())
    assert result.creates == 400
    assert result.allocated > 0.8
    assert result.held_unused < 0.005, "only what came and went between two reports, or was lost in the restart"
    assert result.promised_unheld == 0
    assert result.refused_by_holding < 0.1 * result.refused
    assert result.refused_with_room > result.refused_by_holding, "what ended since its node's last report"


async def test_a_leaky_ledger_is_found_out_and_the_run_ends_when_nothing_is_placed_any_more() -> None:
    result = await judged(PlainScheduler(leaky=True), Ending.COUNTERS)
    assert result.creates < SMALL.creates
    assert result.held_unused > 0.5
    assert result.refused_by_holding > 0.5 * result.refused


async def test_only_the_run_that_goes_by_events_sends_them_and_only_explicit_confirms() -> None:
    explicit, events = PlainScheduler(), PlainScheduler()
    await judged(explicit, Ending.EXPLICIT)
    await judged(events, Ending.EVENTS)
    assert (bool(explicit.sandbox_of), bool(explicit.events)) == (True, False)
    assert (bool(events.sandbox_of), bool(events.events)) == (False, True)


async def test_on_its_way_is_what_is_alive_and_not_yet_reported() -> None:
    agenda, scheduler = Agenda(VirtualClock()), PlainScheduler()
    fleet = Fleet([NodeSpec("a", 8, 8192)], scheduler, agenda, FleetOptions(report_interval_ms=5_000))
    await fleet.join()
    truth = Truth(fleet)
    truth.begin("a", "s1", Size(6, 1024))

    async def answer(runs: bool) -> None: ...

    fleet.create("a", SandboxOrder("s1", 6, 1024), answer)
    assert truth.on_its_way("a") == Size(6, 1024)
    assert (truth.has_room("a", Size(3, 1)), truth.has_known_room("a", Size(3, 1))) == (False, False)
    await agenda.run_until(agenda.now_ms + 6_000)
    assert truth.on_its_way("a") == Size(0, 0)

    await fleet.delete("a", "s1")
    truth.end("a", "s1")
    assert truth.has_room("a", Size(3, 1))
    assert not truth.has_known_room("a", Size(3, 1)), "nobody can know before the next report"
    assert truth.allocated == 0
