"""Keeps the metrics page true in the background, so that a scrape asks the ledger nothing.

`look` notices within seconds whether the ledger answers and whether this replica is ready. `refresh` reads the
domain's figures every fifteen seconds, seldom enough to cost next to nothing. While the ledger is away its figures
are off the page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scheduler.errors import Overloaded, SchedulerError, StoreUnusable, WritesRefused
from scheduler.observability.ledger_figures import LedgerFigures
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics
from scheduler.service.readiness import ReadinessService

if TYPE_CHECKING:
    from scheduler.store.ledger import Ledger

log = get_logger("scheduler.overview")

# AgentENV counts its observed nodes as often.
REFRESH_SECONDS = 15.0
_BEGINNING_SECONDS = 1.0
_SHARE_OF_TIME_READING = 20  # reading a large fleet takes at most one twentieth of the time
_REPAIRS = ("rows_rebuilt", "rows_recounted")


class OverviewService:
    """The metrics page, and the two background tasks behind it; each has one caller at a time."""

    def __init__(self, ledger: Ledger, metrics: Metrics, readiness: ReadinessService) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._readiness = readiness
        self._up = False
        self._due_at = 0.0
        self._repairs: dict[str, int] | None = None

    def page(self) -> bytes:
        """What Prometheus scrapes, from memory."""
        return self._metrics.page()

    async def begin(self) -> None:
        """Read what can be read within a second, before the listeners start, so that the first scrape finds it."""
        await self.look()
        with contextlib.suppress(SchedulerError, TimeoutError):
            async with asyncio.timeout(_BEGINNING_SECONDS):
                await self.refresh_when_due()

    async def look(self) -> None:
        """See whether this replica is ready and whether the ledger answers. Raises nothing: the page says it."""
        ready, up = False, False
        try:
            await self._readiness.check()
            ready = up = True
        except (StoreUnusable, WritesRefused):
            up = True  # it answers, but not as it must
        except Overloaded:
            up = self._up  # leaving; nobody asked the ledger
        except SchedulerError:
            pass
        self._metrics.set_ready(ready)
        self._metrics.set_ledger_up(up)
        if up and not self._up:
            self._due_at = 0.0
        elif not up:
            self._metrics.show(None)
        self._up = up

    async def refresh_when_due(self) -> None:
        """Read the figures if they are old and the ledger answers. Figures that cannot be read are shown no longer."""
        started = asyncio.get_running_loop().time()
        if not self._up or started < self._due_at:
            return
        try:
            await self.refresh()
        except SchedulerError:
            self._metrics.show(None)
            raise
        took = asyncio.get_running_loop().time() - started
        self._due_at = started + max(REFRESH_SECONDS, _SHARE_OF_TIME_READING * took)

    async def refresh(self) -> None:
        """One reading of the ledger, shown from now on."""
        with self._metrics.ledger_call("overview"):
            fleet = await self._ledger.nodes.tally()
            open_reservations = await self._ledger.reservations.tally()
            stats = await self._ledger.settings.stats()
            open_groups, _, _ = await self._ledger.groups.list(limit=1, cursor=None)
            settings = await self._ledger.settings.get()
            skew_ms = await self._ledger.time.skew_ms()
        self._tell_of_repairs(stats)
        self._metrics.show(
            LedgerFigures(
                fleet=fleet,
                stats=stats,
                open_reservations=open_reservations,
                open_groups=open_groups,
                clock_skew_ms=skew_ms,
                settings_revision=None if settings is None else settings[0].revision,
            )
        )

    def _tell_of_repairs(self, stats: Mapping[str, int]) -> None:
        """Rows that some script found unreadable or miscounted since the last reading, and made right."""
        repairs = {name: stats.get(name, 0) for name in _REPAIRS}
        if self._repairs is not None and repairs != self._repairs:
            log.warning(
                "rows of nodes were made anew: a script was stopped half-way, or a key was written by hand", **repairs
            )
        self._repairs = repairs
