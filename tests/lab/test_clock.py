"""The agenda: total order, no sleeping."""

from __future__ import annotations

from scheduler.lab.clock import EPOCH_MS, Action, Agenda, VirtualClock


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
