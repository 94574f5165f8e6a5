"""What is used, what is on its way, and what anybody could know of it."""

from __future__ import annotations

from scheduler.lab.clock import Agenda, VirtualClock, always
from scheduler.lab.fleet import Fleet, FleetOptions, Outcome, SandboxOrder
from scheduler.lab.node import Size
from scheduler.lab.trace import NodeSpec
from scheduler.lab.truth import Truth
from tests.lab.plain_scheduler import PlainScheduler


class Scene:
    """One joined node of 8 CPUs and 8 GiB; its boots take 2 s, its reports come every 5 s and take `delay_ms`."""

    def __init__(self, delay_ms: int = 0) -> None:
        self.agenda = Agenda(VirtualClock())
        options = FleetOptions(report_interval=always(5_000), report_delay=always(delay_ms))
        self.fleet = Fleet([NodeSpec("a", 8, 8192)], PlainScheduler(), self.agenda, options)
        self.truth = Truth(self.fleet)

    async def create(self, sandbox_id: str, size: Size, outcome: Outcome = Outcome.RUNS) -> None:
        async def answer(runs: bool) -> None: ...

        order = SandboxOrder(sandbox_id, size.cpu_count, size.memory_mb, 1_000, outcome)
        self.fleet.create("a", order, answer)

    async def after(self, delay_ms: int) -> None:
        await self.agenda.run_until(self.agenda.now_ms + delay_ms)


async def test_a_create_uses_its_node_from_the_placement_on_and_is_on_its_way_until_a_report_lists_it() -> None:
    scene = Scene()
    await scene.fleet.join()
    await scene.create("s1", Size(6, 1024))
    assert scene.truth.used("a") == scene.truth.on_its_way("a") == Size(6, 1024)
    assert not scene.truth.anywhere_room(Size(3, 1))
    assert not scene.truth.anywhere_known_room(Size(3, 1))
    await scene.after(1_500)
    assert scene.truth.used("a") == Size(6, 1024), "booting"
    assert scene.truth.on_its_way("a") == Size(6, 1024)
    await scene.after(4_500)
    assert scene.truth.on_its_way("a") == Size()
    assert scene.truth.allocated == 6 / 8


async def test_an_end_is_room_at_once_and_known_with_the_next_report() -> None:
    scene = Scene()
    await scene.fleet.join()
    await scene.create("s1", Size(6, 1024))
    await scene.after(6_000)
    await scene.fleet.delete("a", "s1")
    assert scene.truth.used("a") == Size()
    assert scene.truth.anywhere_room(Size(3, 1))
    assert not scene.truth.anywhere_known_room(Size(3, 1))
    await scene.after(5_000)
    assert scene.truth.anywhere_known_room(Size(3, 1))


async def test_a_failed_pull_uses_its_node_until_it_has_failed_and_a_failed_boot_until_then() -> None:
    scene = Scene()
    await scene.fleet.join()
    await scene.create("unpullable", Size(1, 100), Outcome.PULL_FAILS)
    await scene.create("unbootable", Size(2, 200), Outcome.BOOT_FAILS)
    assert scene.truth.used("a") == Size(3, 300)
    await scene.after(1_000)
    assert scene.truth.used("a") == Size(2, 200)
    await scene.after(2_000)
    assert scene.truth.used("a") == Size()


async def test_a_report_under_way_has_told_nothing_yet() -> None:
    scene = Scene(delay_ms=2_000)
    await scene.fleet.join()
    await scene.create("s1", Size(1, 100))
    await scene.after(6_000)
    assert scene.truth.on_its_way("a") == Size(1, 100), "sampled after 5 s, there after 7"
    await scene.after(1_500)
    assert scene.truth.on_its_way("a") == Size()


async def test_children_of_forks_use_their_node_but_nothing_was_reserved_for_them() -> None:
    scene = Scene()
    await scene.fleet.join()
    await scene.create("s1", Size(2, 100))
    await scene.after(6_000)
    await scene.fleet.fork("a", "s1", ("c1", "c2"))
    assert scene.truth.used("a") == Size(6, 300)
    assert scene.truth.used_by_placed("a") == Size(2, 100)
    assert scene.truth.on_its_way("a") == Size()


async def test_a_restart_frees_what_ran_and_what_was_coming() -> None:
    scene = Scene()
    await scene.fleet.join()
    await scene.create("running", Size(2, 100))
    await scene.after(6_000)
    await scene.create("coming", Size(2, 100))
    scene.fleet.restart("a")
    assert scene.truth.used("a") == Size()


async def test_how_many_fit_is_decided_by_the_scarcer_resource() -> None:
    scene = Scene()
    await scene.fleet.join()
    assert scene.truth.how_many_fit(Size(2, 1024)) == 4
    assert scene.truth.how_many_fit(Size(1, 4096)) == 2
    await scene.create("s1", Size(6, 1024))
    assert scene.truth.how_many_fit(Size(2, 1024)) == 1
    assert scene.truth.how_many_fit(Size(4, 1024)) == 0
