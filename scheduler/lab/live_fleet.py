"""Simulated nodes and a simulated gateway at a running scheduler, in real time, until stopped.

Nodes register themselves by their first report and then tell what they run, as AgentENV's do; the gateway places
sandboxes, lets the node "start" them, confirms, and they end after a while. Trouble is everyday: what fails is
counted and tried again with the next report or sandbox.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from agentenv_scheduler_client import (
    AsyncSchedulerClient,
    ColdSandbox,
    Heartbeat,
    NodeSnapshot,
    NodeStatus,
    SchedulerError,
)
from scheduler.domain.limits import MIB
from scheduler.domain.node import NodeAddress
from scheduler.lab.http_surface import open_client
from scheduler.observability.logging import get_logger

log = get_logger("scheduler.lab.fleet")

T = TypeVar("T")

SIZES = ((1, 512), (1, 2_048), (2, 4_096), (4, 8_192))  # CPUs, MiB: what gateways ask for
IMAGES = ("python:3.13", "node:22", "ubuntu:24.04", "golang:1.24")


@dataclass(frozen=True, slots=True)
class LiveFleetOptions:
    """Rates are per second, times in seconds. Keys None: the scheduler asks nobody who they are."""

    url: str
    nodes: int = 8
    cpu_count: int = 64
    memory_mb: int = 131_072
    creates_per_second: float = 2.0
    sandbox_seconds: float = 60.0
    report_seconds: float = 5.0
    boot_seconds: float = 1.0
    seed: int = 1
    node_key: str | None = field(default=None, repr=False)
    gateway_key: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class LiveNode:
    """One machine. `running`: sandbox id → (CPUs, MiB)."""

    node_id: str
    instance_id: str
    running: dict[str, tuple[int, int]] = field(default_factory=dict)
    created: int = 0
    reports: int = 0

    def report(self, options: LiveFleetOptions) -> Heartbeat:
        """Its next one."""
        self.reports += 1
        snapshot = NodeSnapshot(
            status=NodeStatus.READY,
            cpu_count=options.cpu_count,
            memory_total_bytes=options.memory_mb * MIB,
            allocated_cpu=sum(cpu for cpu, _ in self.running.values()),
            allocated_memory_bytes=sum(memory for _, memory in self.running.values()) * MIB,
            sandbox_count=len(self.running),
            create_successes=self.created,
        )
        return Heartbeat(
            service_instance_id=self.instance_id,
            endpoint=endpoint_of(self.node_id),
            sequence=self.reports,
            snapshot=snapshot,
            sandbox_ids=tuple(sorted(self.running)),
        )


def endpoint_of(node_id: str) -> str:
    return f"http://{node_id}:8000"


class LiveFleet:
    """`run()` until cancelled. `counts` tells what came of everything."""

    def __init__(self, options: LiveFleetOptions) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        self._random = random.Random(options.seed)
        self._nodes = {
            f"node-{number}": LiveNode(f"node-{number}", secrets.token_hex(8)) for number in range(options.nodes)
        }

    @property
    def addresses(self) -> list[NodeAddress]:
        """The node list for a scheduler where nodes do not register themselves."""
        return [NodeAddress(node_id, endpoint_of(node_id)) for node_id in self._nodes]

    async def run(self) -> None:
        async with (
            open_client(self.options.url, self.options.node_key) as for_nodes,
            open_client(self.options.url, self.options.gateway_key) as for_gateway,
            asyncio.TaskGroup() as tasks,
        ):
            for node in self._nodes.values():
                tasks.create_task(self._report_forever(for_nodes, node))
            tasks.create_task(self._create_forever(for_gateway, tasks))
            tasks.create_task(self._tell_forever())

    async def _report_forever(self, client: AsyncSchedulerClient, node: LiveNode) -> None:
        await asyncio.sleep(self._random.uniform(0, min(1.0, self.options.report_seconds)))
        while True:
            report = client.nodes.heartbeat(node.node_id, node.report(self.options))
            answer = await self._counted("report", report)
            pause = self.options.report_seconds * self._random.uniform(0.9, 1.1)
            await asyncio.sleep(pause if answer is not None else min(pause, 1.0))

    async def _create_forever(self, client: AsyncSchedulerClient, tasks: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(self.options.creates_per_second))
            tasks.create_task(self._live_one_sandbox(client))

    async def _live_one_sandbox(self, client: AsyncSchedulerClient) -> None:
        cpu_count, memory_mb = self._random.choice(SIZES)
        image = self._random.choice(IMAGES)
        hint = ColdSandbox(cpu_count, memory_mb, (image,))
        placed = await self._counted("schedule", client.schedule(hint))
        if placed is None or placed.reservation is None:
            return
        reservation_id = placed.reservation.reservation_id
        node, sandbox_id = self._nodes.get(placed.node.node_id), f"sbx-{secrets.token_hex(8)}"
        if node is None:  # the cluster has nodes of somebody else's
            cancel = client.reservations.cancel(reservation_id, "not a simulated node")
            await self._counted("cancel", cancel)
            return
        await asyncio.sleep(self.options.boot_seconds * self._random.uniform(0.5, 1.5))
        node.running[sandbox_id] = (cpu_count, memory_mb)
        node.created += 1
        await self._counted("confirm", client.reservations.confirm(reservation_id, sandbox_id))
        await asyncio.sleep(self._random.expovariate(1 / self.options.sandbox_seconds))
        del node.running[sandbox_id]

    async def _tell_forever(self) -> None:
        while True:
            await asyncio.sleep(10)
            running = sum(len(node.running) for node in self._nodes.values())
            log.info("fleet", running=running, **dict(sorted(self.counts.items())))

    async def _counted(self, name: str, call: Awaitable[T]) -> T | None:
        """The answer, or None when there was none that says yes."""
        try:
            answer = await call
        except SchedulerError as error:
            self.counts[f"{name}_{error.status or 'unanswered'}"] += 1
            return None
        self.counts[name] += 1
        return answer
