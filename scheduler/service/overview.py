"""Reads the domain's figures from the ledger for the metrics, seldom enough to cost nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.errors import SchedulerError
from scheduler.observability.ledger_figures import LedgerFigures
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics

if TYPE_CHECKING:
    from scheduler.store.ledger import Ledger

log = get_logger("scheduler.overview")

# AgentENV counts its observed nodes as often.
REFRESH_SECONDS = 15.0


class OverviewService:
    """Keeps the ledger's part of the metrics page at most `refresh_seconds` old."""

    def __init__(self, ledger: Ledger, metrics: Metrics, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._refresh_seconds = refresh_seconds
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def page(self) -> bytes:
        """The metrics page. An unreachable ledger leaves its last figures standing: a scrape never fails for it."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._read_at is None or now - self._read_at >= self._refresh_seconds:
                self._read_at = now
                try:
                    await self.refresh()
                except SchedulerError as error:
                    log.warning("ledger figures not read", code=error.code, detail=error.detail)
        return self._metrics.page()

    async def refresh(self) -> None:
        """One reading of the ledger, shown from now on."""
        with self._metrics.ledger_call("overview"):
            nodes = await self._ledger.nodes.list()
            open_reservations = await self._ledger.reservations.tally()
            stats = await self._ledger.settings.stats()
            open_groups, _, _ = await self._ledger.groups.list(limit=1, cursor=None)
            settings = await self._ledger.settings.get()
            skew_ms = await self._ledger.time.skew_ms()
        self._metrics.show(
            LedgerFigures(
                nodes=nodes,
                stats=stats,
                open_reservations=open_reservations,
                open_groups=open_groups,
                clock_skew_ms=skew_ms,
                settings_revision=None if settings is None else settings[0].revision,
            )
        )
