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
from dataclasses import dataclass, field
from typing import Any

import httpx

from scheduler.domain.limits import MIB
from scheduler.observability.logging import get_logger

log = get_logger("scheduler.lab.fleet")

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

    def report(self, options: LiveFleetOptions) -> dict[str, Any]:
        """The body of its next heartbeat."""
        self.reports += 1
        snapshot = {
            "status": "ready",
            "cpu_count": options.cpu_count,
            "memory_total_bytes": options.memory_mb * MIB,
            "allocated_cpu": sum(cpu for cpu, _ in self.running.values()),
            "allocated_memory_bytes": sum(memory for _, memory in self.running.values()) * MIB,
            "sandbox_count": len(self.running),
            "create_successes": self.created,
        }
        return {
            "service_instance_id": self.instance_id,
            "endpoint": f"http://{self.node_id}:8000",
            "sequence": self.reports,
            "snapshot": snapshot,
            "sandbox_ids": sorted(self.running),
        }


class LiveFleet:
    """`run()` until cancelled. `counts` tells what came of everything."""

    def __init__(self, options: LiveFleetOptions) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        self._random = random.Random(options.seed)
        self._nodes = {
            f"node-{number}": LiveNode(f"node-{number}", secrets.token_hex(8)) for number in range(options.nodes)
        }

    async def run(self) -> None:
        async with (
            _client(self.options.url, self.options.node_key) as for_nodes,
            _client(self.options.url, self.options.gateway_key) as for_gateway,
            asyncio.TaskGroup() as tasks,
        ):
            for node in self._nodes.values():
                tasks.create_task(self._report_forever(for_nodes, node))
            tasks.create_task(self._create_forever(for_gateway, tasks))
            tasks.create_task(self._tell_forever())

    async def _report_forever(self, client: httpx.AsyncClient, node: LiveNode) -> None:
        await asyncio.sleep(self._random.uniform(0, min(1.0, self.options.report_seconds)))
        while True:
            path = f"/v1/nodes/{node.node_id}/heartbeat"
            answer = await self._call(client, "report", path, node.report(self.options))
            pause = self.options.report_seconds * self._random.uniform(0.9, 1.1)
            await asyncio.sleep(pause if answer is not None else min(pause, 1.0))

    async def _create_forever(self, client: httpx.AsyncClient, tasks: asyncio.TaskGroup) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(self.options.creates_per_second))
            tasks.create_task(self._live_one_sandbox(client))

    async def _live_one_sandbox(self, client: httpx.AsyncClient) -> None:
        cpu_count, memory_mb = self._random.choice(SIZES)
        image = self._random.choice(IMAGES)
        hint = {"kind": "cold_sandbox", "cpu_count": cpu_count, "memory_mb": memory_mb, "images": [image]}
        key = {"Idempotency-Key": secrets.token_hex(16)}
        placed = await self._call(client, "schedule", "/v1/schedule", {"hint": hint}, key)
        if placed is None:
            return
        node, sandbox_id = self._nodes.get(placed["node"]["node_id"]), f"sbx-{secrets.token_hex(8)}"
        if node is None:  # the cluster has nodes of somebody else's
            await self._call(client, "cancel", _reservation_path(placed, "cancel"), {"reason": "not a simulated node"})
            return
        await asyncio.sleep(self.options.boot_seconds * self._random.uniform(0.5, 1.5))
        node.running[sandbox_id] = (cpu_count, memory_mb)
        node.created += 1
        await self._call(client, "confirm", _reservation_path(placed, "confirm"), {"sandbox_id": sandbox_id})
        await asyncio.sleep(self._random.expovariate(1 / self.options.sandbox_seconds))
        del node.running[sandbox_id]

    async def _tell_forever(self) -> None:
        while True:
            await asyncio.sleep(10)
            running = sum(len(node.running) for node in self._nodes.values())
            log.info("fleet", running=running, **dict(sorted(self.counts.items())))

    async def _call(
        self,
        client: httpx.AsyncClient,
        name: str,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """The answer, or None when there was none that says yes."""
        try:
            response = await client.post(path, json=body, headers=headers)
        except httpx.TransportError:
            self.counts[f"{name}_unanswered"] += 1
            return None
        if response.status_code != httpx.codes.OK:
            self.counts[f"{name}_{response.status_code}"] += 1
            return None
        self.counts[name] += 1
        content: dict[str, Any] = response.json()
        return content


def _client(url: str, key: str | None) -> httpx.AsyncClient:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=10, trust_env=False)


def _reservation_path(placed: dict[str, Any], call: str) -> str:
    return f"/v1/reservations/{placed['reservation']['reservation_id']}/{call}"
