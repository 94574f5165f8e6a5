"""What is done in the background: how often, and what a failure costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
import structlog.testing

from scheduler.errors import StoreUnavailable
from scheduler.replica.upkeep import JITTER, Chore, keep_doing, pause_ms


async def nothing() -> None:
    return


def outcomes(results: Sequence[Exception | None], done: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """Work that ends so, one result after the other, then tells that all were used."""
    remaining = list(results)

    async def work() -> None:
        if not remaining:
            done.set()
            return
        result = remaining.pop(0)
        if result is not None:
            raise result

    return work


async def run_chore(results: Sequence[Exception | None]) -> list[tuple[str, str]]:
    """(level, event) of everything logged until every result was used."""
    done = asyncio.Event()
    chore = Chore("sweeping", 1, outcomes(results, done), retry_ms_max=2)
    with structlog.testing.capture_logs() as logs:
        doing = asyncio.create_task(keep_doing(chore))
        await asyncio.wait_for(done.wait(), 10)
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
    return [(entry["log_level"], entry["event"]) for entry in logs]


@pytest.mark.parametrize(("failures", "most_ms"), [(0, 100), (1, 200), (3, 800), (10, 1_000), (10_000, 1_000)])
def test_pauses_double_with_every_failure_up_to_a_cap_and_no_two_are_alike(failures: int, most_ms: int) -> None:
    chore = Chore("x", 100, nothing, retry_ms_max=1_000)
    pauses = {pause_ms(chore, failures) for _ in range(100)}
    assert min(pauses) >= most_ms * (1 - JITTER)
    assert max(pauses) <= most_ms * (1 + JITTER)
    assert len(pauses) > 90


async def test_an_outage_is_told_once_and_its_end_once() -> None:
    outage = [StoreUnavailable("gone")] * 3
    assert await run_chore([*outage, None, None]) == [
        ("warning", "a chore failed; trying again"),
        ("info", "a chore works again"),
    ]


async def test_a_defect_is_logged_and_the_chore_goes_on() -> None:
    assert await run_chore([KeyError("defect"), None]) == [
        ("error", "a chore is broken; trying again"),
        ("info", "a chore works again"),
    ]


async def test_a_chore_that_works_says_nothing() -> None:
    assert await run_chore([None, None, None]) == []
