"""The ledger an operator named, opened as a replica would open it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from scheduler.cancellation import run_command
from scheduler.config import load_settings
from scheduler.configured_store import store_options
from scheduler.connection.scripts import ScriptLibrary, find_folder
from scheduler.errors import ConfigurationError
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.ledger.runner import not_understood

T = TypeVar("T")

# A person waits longer than a gateway, and looks when the server has much to do; the first answer takes longest.
CONNECT_TIMEOUT_MS = 5_000
ATTEMPT_TIMEOUT_MS = 10_000
OPERATION_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True)
class Where:
    """Where the ledger is, as the command line says it; None leaves it to the environment and the configuration
    file."""

    redis_addr: str | None = None
    domain: str | None = None
    config_file: Path | None = None


@asynccontextmanager
async def ledger_at(where: Where, *, settled: bool = True) -> AsyncIterator[Ledger]:
    """That ledger. Raises ConfigurationError for one that lives inside another process, StoreUnavailable for one that
    cannot be reached or that no replica has opened yet, StoreUnusable for one of another version.
    `settled=False`: also one of another version, or none at all."""
    options: dict[str, object] = {"redis_addr": where.redis_addr, "domain": where.domain}
    store = load_settings(config_file=where.config_file, options=options).store
    if store.is_embedded:
        raise ConfigurationError(
            "the embedded ledger lives inside its own process; name the server to look into with --redis-addr"
        )
    configured = store_options(store)
    found = replace(
        configured,
        connect_timeout_ms=max(configured.connect_timeout_ms, CONNECT_TIMEOUT_MS),
        attempt_timeout_ms=max(configured.attempt_timeout_ms, ATTEMPT_TIMEOUT_MS),
        operation_timeout_ms=max(configured.operation_timeout_ms, OPERATION_TIMEOUT_MS),
    )
    # Only the scripts that are called are assembled; a replica assembles all of them when it starts.
    library = ScriptLibrary(find_folder(), shebang=found.shebang)
    ledger = await open_ledger(store.redis_addr, domain=store.domain, options=found, library=library)
    try:
        await ledger.client.check_server()
        if settled and await ledger.settings.get() is None:
            old = await ledger.conversion.look()
            raise not_understood("format", "1") if old else ledger.runner.never_opened()
        yield ledger
    finally:
        await ledger.close()


def with_ledger(where: Where, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """What `work` makes of that ledger. Raises what `ledger_at` raises."""

    async def whole() -> T:
        async with ledger_at(where) as ledger:
            return await work(ledger)

    return run_command(whole())
