"""The agenda: total order, no sleeping."""

from __future__ import annotations

import asyncio
import random

import pytest

from scheduler.lab.clock import EPOCH_MS, Action, Agenda, ConcurrentAgenda, Spread, VirtualClock, always, wall_ms


def noting(seen: list[tuple[str, int]], name: str, agenda: Agenda) -> Action:
    async def note() -> None:
        seen.append((name, agenda.now_ms - EPOCH_MS))

    return note


async def test_actions_run_in_time_order_and_equal_instants_in_the_order_they_were_added() -> None:
    agenda, seen = Agenda(VirtualClock()), []  # type: ignore[var-annotated]
    agenda.after(20, noting(seen, "late", agenda))
    agenda.after(10, noting(seen, "first", agenda))
    agenda.after(10, noting(seen, "second", agenda))
    await agenda.run_until(EPOCH_MS + 20)
    assert seen == [("first", 10), ("second", 10), ("late", 20)]


async def test_what_lies_beyond_the_instant_stays_and_the_clock_arrives_at_it() -> None:
    agenda, seen = Agenda(VirtualClock()), []  # type: ignore[var-annotated]
    agenda.after(11, noting(seen, "later", agenda))
    await agenda.run_until(EPOCH_MS + 10)
    assert seen == []
    assert (agenda.now_ms, len(agenda)) == (EPOCH_MS + 10, 1)


async def test_an_action_added_while_running_runs_when_it_is_due_in_time() -> None:
    agenda, seen = Agenda(VirtualClock()), []  # type: ignore[var-annotated]

    async def again() -> None:
        agenda.after(5, noting(seen, "child", agenda))

    agenda.after(10, again)
    await agenda.run_until(EPOCH_MS + 14)
    assert seen == []
    await agenda.run_until(EPOCH_MS + 15)
    assert seen == [("child", 15)]


def test_the_clock_never_runs_backwards() -> None:
    clock = VirtualClock(100)
    clock.advance_to(90)
    assert clock() == 100


def test_a_spread_draws_every_duration_between_its_ends_and_no_other() -> None:
    source = random.Random(1)
    assert {Spread(3, 5).draw(source) for _ in range(200)} == {3, 4, 5}
    assert {always(7).draw(source) for _ in range(5)} == {7}
    assert Spread(1_000, 4_000).shortened(4) == Spread(250, 1_000)


async def test_concurrent_actions_do_not_wait_for_each_other() -> None:
    met = asyncio.Event()

    async def waits() -> None:
        await met.wait()

    async def comes() -> None:
        met.set()

    async with ConcurrentAgenda() as agenda:
        agenda.after(0, waits)
        agenda.after(0, comes)
        await agenda.run_until(wall_ms() + 1)
        async with asyncio.timeout(30):
            await met.wait()


async def test_a_concurrent_action_added_by_another_starts_at_its_instant() -> None:
    started: list[int] = []

    async def child() -> None:
        started.append(agenda.now_ms)

    async def parent() -> None:
        agenda.at(due_ms, child)

    async with ConcurrentAgenda() as agenda:
        due_ms = agenda.now_ms + 20
        agenda.after(0, parent)
        while not started:
            await agenda.run_until(agenda.now_ms + 10)
    assert started[0] >= due_ms


async def test_a_concurrent_action_that_fails_ends_the_run_and_the_block_ends_the_others() -> None:
    ended = asyncio.Event()

    async def fails() -> None:
        raise RuntimeError("broken")

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def run() -> None:
        async with ConcurrentAgenda() as agenda:
            agenda.after(0, goes_on)
            agenda.after(0, fails)
            await agenda.run_until(wall_ms() + 60_000)

    with pytest.raises(RuntimeError, match="broken"):
        await run()
    assert ended.is_set()
