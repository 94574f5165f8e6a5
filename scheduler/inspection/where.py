"""The ledger an operator named, opened as a replica would open it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from scheduler.config import load_settings
from scheduler.errors import ConfigurationError, StoreUnavailable
from scheduler.replica.process import store_options
from scheduler.store.ledger import Ledger, open_ledger
from scheduler.store.runner import NEVER_OPENED, not_understood

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """As on the command line; None leaves it to the environment and the configuration file."""

    redis_addr: str | None = None
    domain: str | None = None
    config_file: Path | None = None


def with_ledger(where: Where, work: Callable[[Ledger], Awaitable[T]], *, settled: bool = True) -> T:
    """What `work` makes of that ledger. Raises ConfigurationError for one that lives inside another process,
    StoreUnavailable for one that cannot be reached or that no replica has opened yet, StoreUnusable for one of
    another version. `settled=False`: also one of another version, or none at all."""
    options: dict[str, object] = {"redis_addr": where.redis_addr, "domain": where.domain}
    store = load_settings(config_file=where.config_file, options=options).store
    if store.is_embedded:
        raise ConfigurationError(
            "the embedded ledger lives inside its own process; name the server to look into with --redis-addr"
        )

    async def run() -> T:
        ledger = await open_ledger(store.redis_addr, domain=store.domain, options=store_options(store))
        try:
            await ledger.client.check_server()
            if settled and await ledger.settings.get() is None:
                old = await ledger.conversion.look()
                raise not_understood("format", "1") if old else StoreUnavailable(NEVER_OPENED)
            return await work(ledger)
        finally:
            await ledger.close()

    return asyncio.run(run())


async def server_now_ms(ledger: Ledger) -> int:
    """The clock that deadlines are on: ledger time, unless the ledger was handed another."""
    given = ledger.clock()
    if given is not None:
        return given
    seconds, microseconds = await ledger.client.command("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000 + await ledger.time.skew_ms()
