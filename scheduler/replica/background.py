"""The background tasks of a replica, each run at a jittered interval, so that replicas do not act in step.

A failing task is retried with growing pauses; its failure is logged once, and its recovery once. An unexpected
exception is logged with its trace and never stops the replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.errors import SchedulerError
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger

log = get_logger(__name__)

# Of its own, so that whoever seeds the shared generator is not disturbed.
_RANDOM = random.Random()
JITTER = 0.2
_SLICES_AT_ONCE = 100
_WAKE_SECONDS_MIN = 0.05  # the shortest pause after a wake-up, so that a failing task does not spin


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """Calls `work` every `interval_ms`; after failures with pauses of up to `retry_ms_max`.
    `wake`, once set, ends the pause early; `work` must clear it."""

    name: str
    interval_ms: int
    work: Callable[[], Awaitable[None]]
    retry_ms_max: int = 5_000
    wake: asyncio.Event | None = None


async def run_repeatedly(task: BackgroundTask) -> None:
    """Run the task until cancelled."""
    failures = 0
    while True:
        try:
            await task.work()
        except SchedulerError as error:
            failures += 1
            if failures == 1:
                log.warning(
                    "a background task failed; trying again",
                    task=task.name,
                    code=error.code,
                    detail=error.full_detail,
                )
        except Exception:
            failures += 1
            log.exception("a background task is broken; trying again", task=task.name, failures=failures)
        else:
            if failures:
                log.info("a background task works again", task=task.name, failures=failures)
            failures = 0
        await _pause(task, pause_ms(task, failures) / 1000)


async def _pause(task: BackgroundTask, seconds: float) -> None:
    if task.wake is None:
        await asyncio.sleep(seconds)
        return
    shortest = min(seconds, _WAKE_SECONDS_MIN)
    await asyncio.sleep(shortest)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds - shortest):
            await task.wake.wait()


def pause_ms(task: BackgroundTask, failures: int) -> float:
    """The interval, doubled with every failure up to the cap, varied at random by a fifth."""
    backed_off: int = min(task.interval_ms * 2 ** min(failures, 16), max(task.retry_ms_max, task.interval_ms))
    return backed_off * _RANDOM.uniform(1 - JITTER, 1 + JITTER)


def sweeping(ledger: Ledger) -> Callable[[], Awaitable[None]]:
    """Process what is due (expired reservations, silent and removed nodes, old bindings), slice after slice."""

    async def sweep() -> None:
        for _ in range(_SLICES_AT_ONCE):
            if not await ledger.reservations.sweep():
                return
            await asyncio.sleep(0)

    return sweep


def refreshing(ledger: Ledger) -> Callable[[], Awaitable[None]]:
    """Recompute node rows after settings changed, slice after slice."""

    async def refresh() -> None:
        for _ in range(_SLICES_AT_ONCE):
            if not await ledger.settings.refresh():
                return
            await asyncio.sleep(0)

    return refresh
