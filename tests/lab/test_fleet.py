"""When a simulated fleet reports, what it tells, and what a restart takes with it."""

from __future__ import annotations

from itertools import pairwise

from scheduler.domain.sandbox import SandboxEventType
from scheduler.lab.clock import EPOCH_MS, Agenda, VirtualClock, always
from scheduler.lab.fleet import Fleet, FleetOptions, Outcome, SandboxOrder
from scheduler.lab.trace import NodeSpec
from tests.lab.plain_scheduler import PlainScheduler

NODES = (NodeSpec("a", 16, 32_768), NodeSpec("b", 16, 32_768))


class Stage:
    """A joined fleet, its scheduler, and every answer its creates were given."""

    def __init__(self, options: FleetOptions) -> None:
        self.scheduler = PlainScheduler()
        self.agenda = Agenda(VirtualClock())
        self.fleet = Fleet(NODES, self.scheduler, self.agenda, options)
        self.answers: list[tuple[str, bool, int]] = []

    def create(self, node_id: str, sandbox_id: str, outcome: Outcome = Outcome.RUNS, pull_ms: int = 0) -> None:
        async def answer(runs: bool) -> None:
            self.answers.append((sandbox_id, runs, self.agenda.now_ms - EPOCH_MS))

        self.fleet.create(node_id, SandboxOrder(sandbox_id, 2, 4096, pull_ms, outcome), answer)

    async def until(self, offset_ms: int) -> None:
        await self.agenda.run_until(EPOCH_MS + offset_ms)

    def reports_of(self, node_id: str) -> list[int]:
        return [
            report.snapshot.reported_at_unix_ms - EPOCH_MS
            for report in self.scheduler.reports
            if report.node_id == node_id and report.snapshot is not None
        ]


async def test_nodes_report_at_their_own_beat_not_all_at_once() -> None:
    stage = Stage(FleetOptions(report_interval=always(5_000)))
    await stage.fleet.join()
    await stage.until(11_000)
    assert stage.reports_of("a")[0] == stage.reports_of("b")[0] == 0
    gaps = {later - earlier for node in "ab" for earlier, later in _pairs(stage.reports_of(node)[1:])}
    assert gaps == {5_000}
    assert set(stage.reports_of("a")[1:]).isdisjoint(stage.reports_of("b")[1:])


async def test_without_idle_reports_only_a_change_is_reported_and_at_the_next_beat() -> None:
    stage = Stage(FleetOptions(report_interval=always(5_000), idle_reports=False))
    await stage.fleet.join()
    await stage.until(1_000_000)
    assert len(stage.scheduler.reports) == 2
    stage.create("a", "s1")
    await stage.until(1_100_000)
    reported = stage.reports_of("a")[1:]
    assert len(reported) in (1, 2), "once or twice: growth and success may meet in one beat"
    assert reported[0] - 1_000_000 <= 5_000
    assert len(stage.reports_of("b")) == 1


async def test_a_sandbox_that_came_and_went_unreported_keeps_its_node_reporting_for_a_while() -> None:
    options = FleetOptions(report_interval=always(5_000), boot=always(100), idle_reports=False, settle_ms=20_000)
    stage = Stage(options)
    await stage.fleet.join()
    await stage.until(1)
    stage.create("a", "s1")
    await stage.until(200)
    assert await stage.fleet.delete("a", "s1")
    await stage.until(500_000)
    assert len(stage.reports_of("a")) == 1 + 5, "at 5, 10, 15, 20 and the first beat after 20.2 seconds"


async def test_a_report_can_show_growth_before_success() -> None:
    stage = Stage(FleetOptions(report_interval=always(1_000), boot=always(2_000)))
    await stage.fleet.join()
    stage.create("a", "s1")
    await stage.until(3_000)
    seen = [
        (report.snapshot.allocated_cpu, report.snapshot.create_successes)
        for report in stage.scheduler.reports
        if report.node_id == "a" and report.snapshot is not None
    ]
    assert (2, 0) in seen
    assert seen[-1] == (2, 1)


async def test_a_failed_pull_is_answered_and_shows_in_no_report() -> None:
    stage = Stage(FleetOptions(report_interval=always(1_000)))
    await stage.fleet.join()
    stage.create("a", "s1", Outcome.PULL_FAILS, pull_ms=700)
    await stage.until(10_000)
    assert stage.answers == [("s1", False, 700)]
    assert all(
        report.snapshot is not None and (report.snapshot.create_fails, report.snapshot.allocated_cpu) == (0, 0)
        for report in stage.scheduler.reports
    )


async def test_a_failed_boot_is_answered_after_the_boot_and_counted() -> None:
    stage = Stage(FleetOptions(report_interval=always(1_000), boot=always(2_000)))
    await stage.fleet.join()
    stage.create("a", "s1", Outcome.BOOT_FAILS)
    await stage.until(10_000)
    assert stage.answers == [("s1", False, 2_000)]
    assert stage.fleet.nodes["a"].snapshot(0).create_fails == 1


async def test_a_restart_fails_the_creates_under_way_pulling_or_booting() -> None:
    stage = Stage(FleetOptions(boot=always(2_000)))
    await stage.fleet.join()
    stage.create("a", "booting")
    stage.create("a", "pulling", pull_ms=5_000)
    await stage.until(1_000)
    stage.fleet.restart("a")
    await stage.until(10_000)
    assert stage.answers == [("booting", False, 2_000), ("pulling", False, 5_000)]
    assert stage.fleet.nodes["a"].sandboxes == {}


async def test_events_tell_creates_deletes_forks_pauses_and_resumes_with_their_sizes() -> None:
    stage = Stage(FleetOptions(boot=always(100), sends_events=True))
    await stage.fleet.join()
    stage.create("a", "s1")
    await stage.until(200)
    await stage.fleet.fork("a", "s1", ("c1",))
    assert await stage.fleet.pause("a", "s1")
    assert not await stage.fleet.pause("a", "s1")
    assert await stage.fleet.resume("a", "s1")
    await stage.until(400)
    await stage.fleet.delete("a", "s1")
    assert [(event.sandbox_id, event.event_type) for event in stage.scheduler.events] == [
        ("s1", SandboxEventType.CREATE),
        ("c1", SandboxEventType.FORK),
        ("s1", SandboxEventType.PAUSE),
        ("s1", SandboxEventType.RESUME),
        ("s1", SandboxEventType.DELETE),
    ]
    assert {event.requested_cpu for event in stage.scheduler.events} == {2}


async def test_deleting_what_is_gone_is_told_by_false() -> None:
    stage = Stage(FleetOptions())
    await stage.fleet.join()
    assert not await stage.fleet.delete("a", "absent")


def _pairs(instants: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(instants))
