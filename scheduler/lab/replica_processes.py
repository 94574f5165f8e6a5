"""Real replicas: `agentenv-scheduler serve` as processes of their own, over one ledger, spoken to by HTTP.

They listen on free loopback ports, know nothing of this machine's configuration, and end with the block, also when
Ctrl-C or SIGTERM ends that; so does what they kept, since the domain is the run's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from scheduler.errors import ConfigurationError
from scheduler.lab.http_surface import OverHttp, open_client
from scheduler.lab.scratch import EMBEDDED, PATIENT, erase, seconds_to_erase
from scheduler.ledger.ledger import open_ledger

START_SECONDS = 60.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 60.0


@asynccontextmanager
async def replica_processes(count: int, redis_addr: str, keys: Mapping[str, str]) -> AsyncIterator[OverHttp]:
    """So many replicas with these configuration keys, started and ready; calls go to each in turn."""
    if redis_addr == EMBEDDED:
        raise ConfigurationError("several replicas need a Redis server: the embedded ledger is one process's own")
    domain = f"lab-{secrets.token_hex(6)}"
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_erase, redis_addr, domain)
        replicas = [await stack.enter_async_context(_replica(redis_addr, domain, keys)) for _ in range(count)]
        async with asyncio.timeout(START_SECONDS):
            addresses = [await replica.address for replica in replicas]
        opened = [open_client(address, seconds=ANSWER_SECONDS) for address in addresses]
        clients = [await stack.enter_async_context(client) for client in opened]
        yield OverHttp(*clients, addresses=addresses)


@dataclass(frozen=True, slots=True)
class _Replica:
    """`log` is its standard error; `address`: where it answers HTTP, once it listens."""

    log: asyncio.StreamReader
    address: asyncio.Future[str]


@asynccontextmanager
async def _replica(redis_addr: str, domain: str, keys: Mapping[str, str]) -> AsyncIterator[_Replica]:
    """A process from here on; when it listens, `address` says so. Ctrl-C in the terminal is for us alone; a run that
    was interrupted waits for nothing that a replica still does."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")}
    assigned = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler", "serve", "--domain", domain, *assigned,
        "--port", "0", "--no-grpc", "--no-metrics-listener", "--log-format", "json", "--log-level", "info",
        stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, start_new_session=True,
        # The address may hold a password, which everybody would read among a process's arguments.
        env={**inherited, "SCHEDULER_REDIS_ADDR": redis_addr},
    )  # fmt: skip
    if process.stderr is None:  # never: it was asked for
        raise ConfigurationError("a replica without standard error")
    replica = _Replica(process.stderr, asyncio.get_running_loop().create_future())
    reading = asyncio.create_task(_read_log(replica))
    try:
        yield replica
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        raise
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reading
        replica.address.cancel()


async def _read_log(replica: _Replica) -> None:
    """To its end: a pipe that nobody reads would stop the replica once it is full."""
    last_lines: deque[str] = deque(maxlen=10)
    async for line in replica.log:
        last_lines.append(line.decode(errors="replace").rstrip())
        with suppress(ValueError):
            event = json.loads(line)
            if event.get("message") == "listening" and not replica.address.done():
                replica.address.set_result(str(event["http"]))
    if not replica.address.done():
        said = "\n".join(last_lines)
        replica.address.set_exception(ConfigurationError(f"a replica ended before it listened:\n{said}"))


async def _erase(redis_addr: str, domain: str) -> None:
    """Who interrupted the run may have ended its server as well: then nobody waits for that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds_to_erase()):
            ledger = await open_ledger(redis_addr, domain=domain, options=PATIENT)
            try:
                await erase(ledger)
            finally:
                await ledger.close()
