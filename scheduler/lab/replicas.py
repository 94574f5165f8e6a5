"""Replicas of the demo: real processes, each with its own embedded ledger, on free loopback ports."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from scheduler.domain.placement import Strategy
from scheduler.errors import StoreUnavailable
from scheduler.lab.server import free_port

START_SECONDS = 20.0
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunningReplica:
    strategy: Strategy
    port: int
    command: tuple[str, ...]
    client: httpx.AsyncClient
    process: asyncio.subprocess.Process

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def replicas(
    strategies: Sequence[Strategy], group_size: int, last_port: int = 0
) -> AsyncIterator[list[RunningReplica]]:
    """One replica per strategy, all ready; ended with the block. The last one takes `last_port` if not 0."""
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(
                _replica(strategy, group_size, last_port if strategy is strategies[-1] else 0)
            )
            for strategy in strategies
        ]
        await asyncio.gather(*(_until_ready(replica) for replica in started))
        yield started


@asynccontextmanager
async def _replica(strategy: Strategy, group_size: int, port: int) -> AsyncIterator[RunningReplica]:
    port = port or free_port()
    options = ("--port", str(port), "--redis-addr", "embedded", "--strategy", strategy.value, "--log-level", "error")
    command = ("serve", *options, "--no-grpc", "--no-metrics-listener")
    budget = ("--set", f"grouped_round_robin.max_sandbox_count={group_size}")
    # What is configured for a real replica on this machine is not meant for the demo.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler", *command, *budget, env=environment, start_new_session=True
    )
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False)
    try:
        async with client:
            yield RunningReplica(strategy, port, command, client, process)
    finally:
        await _stop(process)


async def _until_ready(replica: RunningReplica) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while loop.time() < deadline and replica.process.returncode is None:
        try:
            if (await replica.client.get("/readyz")).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass  # not listening yet
        await asyncio.sleep(0.05)
    raise StoreUnavailable(f"the {replica.strategy.value} replica of the demo did not become ready")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
