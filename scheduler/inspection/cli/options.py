"""Where the ledger is, as options, and that ledger opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from scheduler.inspection.ledger_source import LedgerSource
from scheduler.inspection.where import Where, ledger_at

RedisAddress = Annotated[
    str | None,
    typer.Option(
        "--redis-addr",
        metavar="ADDRESS",
        help="host:port, redis[s]://, unix://, sentinel://, cluster:// [env: SCHEDULER_REDIS_ADDR]",
    ),
]
Domain = Annotated[
    str | None,
    typer.Option(
        "--domain", metavar="NAME", help="Which ledger of that server. [default: default; env: SCHEDULER_DOMAIN]"
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="As for serve: the address is taken from it. [env: SCHEDULER_CONFIG]"
    ),
]


@asynccontextmanager
async def opened(
    redis_addr: RedisAddress = None, domain: Domain = None, config: ConfigFile = None
) -> AsyncIterator[LedgerSource]:
    async with ledger_at(Where(redis_addr, domain, config)) as ledger:
        yield LedgerSource(ledger)


@asynccontextmanager
async def opened_as_it_is(
    redis_addr: RedisAddress = None, domain: Domain = None, config: ConfigFile = None
) -> AsyncIterator[LedgerSource]:
    """Also one of another version, or none at all."""
    async with ledger_at(Where(redis_addr, domain, config), settled=False) as ledger:
        yield LedgerSource(ledger)
