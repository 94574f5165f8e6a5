"""How the store is opened as the configuration says, by a replica and by whoever looks into a ledger without one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from scheduler.config import StoreSettings
from scheduler.connection.options import StoreOptions


def store_options(store: StoreSettings) -> StoreOptions:
    """The store's own options, from its group of the configuration: those that both name alike, and the address for
    reads."""
    taken: dict[str, Any] = {"read_addr": store.redis_read_addr}
    for name in {each.name for each in fields(StoreSettings)} & {each.name for each in fields(StoreOptions)}:
        value = getattr(store, name)
        taken[name] = str(value) if isinstance(value, Path) else value
    return StoreOptions(**taken)
