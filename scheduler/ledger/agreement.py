"""What the replicas of a ledger have agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.replica import SettingsInForce

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger


async def settings_in_force(ledger: Ledger) -> SettingsInForce:
    """Raises StoreUnavailable when the ledger holds none yet."""
    found = await ledger.settings.get()
    if found is None:
        raise ledger.runner.never_opened()
    settings, epoch = found
    rebuilding = await ledger.time.now_ms() < await ledger.settings.rebuilding_until_ms()
    return SettingsInForce(ledger.domain, epoch, rebuilding, await ledger.time.skew_ms(), settings)
