"""Deadline scopes on a clock that is handed in."""

import asyncio

import pytest

from scheduler import deadline
from scheduler.errors import DeadlineExceeded


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_outside_of_any_scope_the_default_is_what_remains() -> None:
    assert deadline.remaining_ms(default=700) == 700
    assert deadline.left_ms() is None


def test_a_scope_leaves_what_has_not_passed_yet() -> None:
    clock = Clock()
    with deadline.within(2, clock):
        clock.seconds += 0.5
        assert deadline.remaining_ms(default=10_000) == pytest.approx(1500)
    assert deadline.left_ms() is None


def test_the_default_is_the_upper_bound_inside_a_scope() -> None:
    with deadline.within(2, Clock()):
        assert deadline.remaining_ms(default=300) == 300


def test_an_inner_scope_tightens_the_outer() -> None:
    clock = Clock()
    with deadline.within(2, clock):
        with deadline.within(1, clock):
            assert deadline.remaining_ms(default=10_000) == pytest.approx(1000)
        assert deadline.remaining_ms(default=10_000) == pytest.approx(2000)


def test_an_inner_scope_cannot_outlive_the_outer() -> None:
    clock = Clock()
    with deadline.within(1, clock), deadline.within(60, clock):
        clock.seconds += 1
        with pytest.raises(DeadlineExceeded):
            deadline.remaining_ms(default=10_000)


def test_a_scope_that_is_over_raises() -> None:
    clock = Clock()
    with deadline.within(1, clock):
        clock.seconds += 1
        with pytest.raises(DeadlineExceeded, match="deadline"):
            deadline.remaining_ms(default=10_000)
        assert deadline.left_ms() == 0


def test_a_scope_ends_when_its_block_raises() -> None:
    with pytest.raises(RuntimeError), deadline.within(1):
        raise RuntimeError
    assert deadline.left_ms() is None


async def test_each_task_has_its_own_scope() -> None:
    clock = Clock()
    entered = asyncio.Event()

    async def with_scope() -> float:
        with deadline.within(1, clock):
            entered.set()
            await asyncio.sleep(0)
            return deadline.remaining_ms(default=10_000)

    async def without_scope() -> float:
        await entered.wait()
        return deadline.remaining_ms(default=10_000)

    assert list(await asyncio.gather(with_scope(), without_scope())) == [pytest.approx(1000), 10_000]


async def test_a_task_inherits_the_scope_it_was_started_in() -> None:
    async def ask() -> float:
        return deadline.remaining_ms(default=10_000)

    with deadline.within(1, Clock()):
        task = asyncio.create_task(ask())
    assert await task == pytest.approx(1000)
