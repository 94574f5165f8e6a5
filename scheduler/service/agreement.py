"""The settings in force, and the live replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.replica import LiveReplica, SettingsInForce
from scheduler.observability.metrics import Metrics
from scheduler.store.agreement import settings_in_force

if TYPE_CHECKING:
    from scheduler.store.ledger import Ledger


class AgreementService:
    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics

    async def settings(self) -> SettingsInForce:
        """Raises StoreUnavailable when the ledger holds no settings yet."""
        with self._metrics.ledger_call("read_settings"):
            return await settings_in_force(self._ledger)

    async def replicas(self) -> tuple[tuple[LiveReplica, ...], int]:
        """The live replicas in id order, and the ledger's time."""
        with self._metrics.ledger_call("list_replicas"):
            now_ms = await self._ledger.time.now_ms()
            return await self._ledger.settings.replicas(now_ms), now_ms
