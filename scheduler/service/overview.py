"""Keeps the metrics page current in the background, so that a scrape needs no ledger call.

`look` finds out within seconds whether the ledger answers and whether this replica is ready. `refresh` reads the
domain's figures every fifteen seconds. While the ledger does not answer, its figures are not on the page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scheduler.errors import Overloaded, SchedulerError, StoreUnusable, WritesRefused
from scheduler.observability.ledger_figures import RESOURCE_PARTS, LedgerFigures
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics
from scheduler.service.readiness import ReadinessService

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger

log = get_logger("scheduler.overview")

# The interval at which AgentENV counts its observed nodes.
REFRESH_SECONDS = 15.0
_BEGINNING_SECONDS = 1.0
_INTERVAL_PER_READING = 100  # the interval is at least 100 times as long as one reading takes
_REPAIRS = ("rows_rebuilt", "rows_recounted")


class OverviewService:
    """The metrics page and its two background tasks; each has one caller at a time."""

    def __init__(self, ledger: Ledger, metrics: Metrics, readiness: ReadinessService) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._readiness = readiness
        self._up = False
        self._due_at = 0.0
        self._repairs: dict[str, int] | None = None

    def page(self) -> bytes:
        """The page for Prometheus, from memory."""
        return self._metrics.page()

    async def begin(self) -> None:
        """Read what can be read within a second, before the listeners start, so that the first scrape finds it."""
        await self.look()
        with contextlib.suppress(SchedulerError, TimeoutError):
            async with asyncio.timeout(_BEGINNING_SECONDS):
                await self.refresh_when_due()

    async def look(self) -> None:
        """Find out whether this replica is ready and whether the ledger answers. Raises nothing: the page shows it."""
        ready, up = False, False
        try:
            await self._readiness.check()
            ready = up = True
        except (StoreUnusable, WritesRefused):
            up = True  # it answers, but cannot be used
        except Overloaded:
            up = self._up  # draining: the ledger was not asked
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
        """Read the figures when they are old and the ledger answers; figures that cannot be read are removed from
        the page."""
        started = asyncio.get_running_loop().time()
        if not self._up or started < self._due_at:
            return
        try:
            await self.refresh()
        except SchedulerError:
            self._metrics.show(None)
            raise
        took = asyncio.get_running_loop().time() - started
        self._due_at = started + max(REFRESH_SECONDS, _INTERVAL_PER_READING * took)

    async def refresh(self) -> None:
        """Read the ledger once and show the result."""
        with self._metrics.ledger_call("overview"):
            fleet = await self._ledger.nodes.tally()
            summary = await self._ledger.summary.read()
            open_reservations = await self._ledger.reservations.tally()
            stats = await self._ledger.settings.stats()
            open_groups, _, _ = await self._ledger.groups.list(limit=1, cursor=None)
            settings = await self._ledger.settings.get()
            skew_ms = await self._ledger.time.skew_ms()
        self._log_repairs(stats)
        self._metrics.show(
            LedgerFigures(
                fleet=fleet,
                resources={part: getattr(summary, part).resources for part in RESOURCE_PARTS},
                stats=stats,
                open_reservations=open_reservations,
                open_groups=open_groups,
                clock_skew_ms=skew_ms,
                settings_revision=None if settings is None else settings[0].revision,
            )
        )

    def _log_repairs(self, stats: Mapping[str, int]) -> None:
        """Warn when scripts have repaired unreadable or miscounted node rows since the last reading."""
        repairs = {name: stats.get(name, 0) for name in _REPAIRS}
        if self._repairs is not None and repairs != self._repairs:
            log.warning(
                "rows of nodes were rebuilt: a script was stopped half-way, or a key was written by hand", **repairs
            )
        self._repairs = repairs
