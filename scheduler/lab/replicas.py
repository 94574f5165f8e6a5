"""The demo's replicas: whole ones, HTTP, gRPC and maintenance included, each with a ledger inside this process.

They serve HTTP on free loopback ports like any replica; only the process is shared, because starting
one Python after another would be most of the demo.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from agentenv_scheduler_client import AsyncSchedulerClient
from scheduler.config import load_configuration
from scheduler.domain.placement import Strategy
from scheduler.lab.http_surface import open_client
from scheduler.replica import Replica


@dataclass(frozen=True, slots=True)
class RunningReplica:
    """`client` speaks to it; `address` is for people."""

    strategy: Strategy
    address: str
    client: AsyncSchedulerClient
    replica: Replica


@asynccontextmanager
async def replicas(
    strategies: Sequence[Strategy], group_size: int, last_port: int = 0
) -> AsyncIterator[list[RunningReplica]]:
    """One replica per strategy, answering, stopped with the block; the last one takes `last_port` if not 0."""
    async with AsyncExitStack() as stack:
        started: list[RunningReplica] = []
        for strategy in strategies:
            port = last_port if strategy is strategies[-1] else 0
            started.append(await stack.enter_async_context(_replica(strategy, group_size, port)))
        yield started


@asynccontextmanager
async def _replica(strategy: Strategy, group_size: int, port: int) -> AsyncIterator[RunningReplica]:
    options = {
        "strategy": strategy.value,
        "redis_addr": "embedded",
        # The embedded server is the process's; a domain of its own makes it the replica's.
        "domain": f"demo-{strategy.value}",
        "http.port": port,
        "grpc.enabled": False,
        "metrics.enabled": False,
        "grouped_round_robin.max_sandbox_count": group_size,
        "shutdown.drain": "0s",
    }
    # What is configured for a real replica on this machine is not meant for the demo.
    replica = Replica(load_configuration(options=options, environment={}).settings)
    await replica.start()
    try:
        (http,) = replica.listeners
        async with open_client(http.address) as client:
            yield RunningReplica(strategy, http.address, client, replica)
    finally:
        await replica.stop()
