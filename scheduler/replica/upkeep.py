"""What a replica does in the background. Intervals are jittered, so that replicas do not march in step.

What fails is tried again, further and further apart; that it failed is said once, and once more when
it works again. A defect is logged with its trace and costs its chore, not the replica: every replica
would meet it.
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
    from scheduler.store.ledger import Ledger

log = get_logger(__name__)

JITTER = 0.2
_SLICES_AT_ONCE = 100
_HURRIED_SECONDS = 0.05  # what keeps failing must not be tried without a pause, whoever is waiting


@dataclass(frozen=True, slots=True)
class Chore:
    """`work` again and again, `interval_ms` apart; after failures up to `retry_ms_max` apart.
    `hurry`, once set, cuts the pause short; `work` clears it by doing what it was set for."""

    name: str
    interval_ms: int
    work: Callable[[], Awaitable[None]]
    retry_ms_max: int = 5_000
    hurry: asyncio.Event | None = None


async def keep_doing(chore: Chore) -> None:
    """Until cancelled."""
    failures = 0
    while True:
        try:
            await chore.work()
        except SchedulerError as error:
            failures += 1
            if failures == 1:
                log.warning("a chore failed; trying again", chore=chore.name, code=error.code, detail=error.full_detail)
        except Exception:
            failures += 1
            log.exception("a chore is broken; trying again", chore=chore.name, failures=failures)
        else:
            if failures:
                log.info("a chore works again", chore=chore.name, failures=failures)
            failures = 0
        await _pause(chore, pause_ms(chore, failures) / 1000)


async def _pause(chore: Chore, seconds: float) -> None:
    if chore.hurry is None:
        await asyncio.sleep(seconds)
        return
    shortest = min(seconds, _HURRIED_SECONDS)
    await asyncio.sleep(shortest)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds - shortest):
            await chore.hurry.wait()


def pause_ms(chore: Chore, failures: int) -> float:
    """The interval, doubled with every failure up to the cap, give or take a fifth."""
    backed_off: int = min(chore.interval_ms * 2 ** min(failures, 16), max(chore.retry_ms_max, chore.interval_ms))
    return backed_off * random.uniform(1 - JITTER, 1 + JITTER)


def sweeping(ledger: Ledger) -> Callable[[], Awaitable[None]]:
    """What falls due by itself (expiries, silence, removed nodes, old bindings), slice after slice."""

    async def sweep() -> None:
        for _ in range(_SLICES_AT_ONCE):
            if not await ledger.reservations.sweep():
                return
            await asyncio.sleep(0)

    return sweep


def refreshing(ledger: Ledger) -> Callable[[], Awaitable[None]]:
    """Rows of nodes brought to the settings in force, slice after slice."""

    async def refresh() -> None:
        for _ in range(_SLICES_AT_ONCE):
            if not await ledger.settings.refresh():
                return
            await asyncio.sleep(0)

    return refresh
