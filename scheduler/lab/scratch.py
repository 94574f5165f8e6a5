"""A ledger for one run: empty at the start, on the lab's clock, gone at the end.

Where: inside this process, on a server of the lab's own, or on one that was named, under a domain
nobody else uses, whose keys are deleted afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from scheduler.connection.embedded import new_server
from scheduler.connection.options import StoreOptions
from scheduler.domain.settings import LedgerSettings
from scheduler.lab.server import find_server_binary, private_server
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.ledger.runner import Clock, server_clock

EMBEDDED = "embedded"
ERASE_SLICE = 1_000
INTERRUPTED_SECONDS = 1.0
# Nobody waits for an answer here: a run on a busy machine is to be slow, not to fail.
PATIENT = StoreOptions(connect_timeout_ms=10_000, operation_timeout_ms=120_000, attempt_timeout_ms=60_000)
# Simulated nodes are silent while nothing changes; no run lasts as long as this.
REPORT_TTL_MS = 10 * 365 * 86_400_000


@contextmanager
def best_server(redis_addr: str | None) -> Iterator[str]:
    """The address to run on: the one named, else a private server, else the embedded ledger."""
    if redis_addr is not None:
        yield redis_addr
    elif find_server_binary() is None:
        yield EMBEDDED
    else:
        with private_server() as address:
            yield address


@contextmanager
def real_server(redis_addr: str | None) -> Iterator[str]:
    """The address named, else a private server; never the embedded ledger unless that is named."""
    if redis_addr is not None:
        yield redis_addr
        return
    with private_server() as address:
        yield address


@asynccontextmanager
async def scratch_ledger(
    redis_addr: str, settings: LedgerSettings, clock: Clock = server_clock
) -> AsyncIterator[Ledger]:
    """An empty ledger under these settings."""
    options = replace(PATIENT, fake_server=new_server() if redis_addr == EMBEDDED else None)
    ledger = await open_ledger(redis_addr, domain=f"lab-{secrets.token_hex(6)}", options=options, clock=clock)
    try:
        await ledger.settings.put(settings, "lab")
        yield ledger
    finally:
        try:
            await erase(ledger)
        finally:
            await ledger.close()


async def erase(ledger: Ledger) -> None:
    """Delete every key of the ledger's domain, a slice at a time. The embedded one goes with the run.

    When the run was interrupted, its caller waits: what is not deleted within INTERRUPTED_SECONDS is left."""
    if ledger.client.embedded:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds_to_erase()):
            await _erase(ledger)


def seconds_to_erase() -> float | None:
    task = asyncio.current_task()
    interrupted = task is not None and task.cancelling() > 0
    return INTERRUPTED_SECONDS if interrupted else None


async def _erase(ledger: Ledger) -> None:
    cursor, pattern = b"0", f"{ledger.keys.tag}*"
    while True:
        cursor, keys = await ledger.client.command("SCAN", cursor, "MATCH", pattern, "COUNT", ERASE_SLICE)
        if keys:
            await ledger.client.command("UNLINK", *keys)
        if int(cursor) == 0:
            return
