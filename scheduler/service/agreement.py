"""The settings in force, and the live replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.replica import LiveReplica, SettingsInForce
from scheduler.errors import StoreUnavailable
from scheduler.observability.metrics import Metrics

if TYPE_CHECKING:
    from scheduler.store.ledger import Ledger


class AgreementService:
    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics

    async def settings(self) -> SettingsInForce:
        """Raises StoreUnavailable when the ledger holds no settings yet."""
        with self._metrics.ledger_call("read_settings"):
            ledger = self._ledger
            found = await ledger.settings.get()
            if found is None:
                raise StoreUnavailable("the ledger holds no settings yet; a replica writes them when it starts")
            settings, epoch = found
            rebuilding = await ledger.time.now_ms() < await ledger.settings.rebuilding_until_ms()
            return SettingsInForce(ledger.domain, epoch, rebuilding, await ledger.time.skew_ms(), settings)

    async def replicas(self) -> tuple[tuple[LiveReplica, ...], int]:
        """The live replicas in id order, and the ledger's time."""
        with self._metrics.ledger_call("list_replicas"):
            now_ms = await self._ledger.time.now_ms()
            return await self._ledger.settings.replicas(now_ms), now_ms
