"""How often background tasks run, and what a failure costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
import structlog.testing

from scheduler.errors import StoreUnavailable
from scheduler.replica.background import JITTER, BackgroundTask, pause_ms, run_repeatedly


async def nothing() -> None:
    return


def outcomes(results: Sequence[Exception | None], done: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """Work that ends with each result in turn, and sets `done` once all were used."""
    remaining = list(results)

    async def work() -> None:
        if not remaining:
            done.set()
            return
        result = remaining.pop(0)
        if result is not None:
            raise result

    return work


async def run_task(results: Sequence[Exception | None]) -> list[tuple[str, str]]:
    """(level, event) of everything logged until every result was used."""
    done = asyncio.Event()
    task = BackgroundTask("sweeping", 1, outcomes(results, done), retry_ms_max=2)
    with structlog.testing.capture_logs() as logs:
        doing = asyncio.create_task(run_repeatedly(task))
        await asyncio.wait_for(done.wait(), 10)
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
    return [(entry["log_level"], entry["event"]) for entry in logs]


@pytest.mark.parametrize(("failures", "most_ms"), [(0, 100), (1, 200), (3, 800), (10, 1_000), (10_000, 1_000)])
def test_pauses_double_with_every_failure_up_to_a_cap_and_no_two_are_alike(failures: int, most_ms: int) -> None:
    task = BackgroundTask("x", 100, nothing, retry_ms_max=1_000)
    pauses = {pause_ms(task, failures) for _ in range(100)}
    assert min(pauses) >= most_ms * (1 - JITTER)
    assert max(pauses) <= most_ms * (1 + JITTER)
    assert len(pauses) > 90


async def test_an_outage_is_logged_once_and_its_end_once() -> None:
    outage = [StoreUnavailable("gone")] * 3
    assert await run_task([*outage, None, None]) == [
        ("warning", "a background task failed; trying again"),
        ("info", "a background task works again"),
    ]


async def test_a_defect_is_logged_and_the_task_goes_on() -> None:
    assert await run_task([KeyError("defect"), None]) == [
        ("error", "a background task is broken; trying again"),
        ("info", "a background task works again"),
    ]


async def test_a_task_that_works_logs_nothing() -> None:
    assert await run_task([None, None, None]) == []
