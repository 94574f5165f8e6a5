"""Nodes of the harness: what they are, and what they report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from scheduler.connection.keys import DEFAULT_DOMAIN
from tests.replicas.harness.rig import Rig

MIB = 1024 * 1024


@dataclass(slots=True)
class NodeModel:
    """One node. `running`: sandbox id → (CPUs, MiB), the truth that a living node reports."""

    node_id: str
    cpu_count: int
    memory_mb: int
    running: dict[str, tuple[int, int]] = field(default_factory=dict)
    most_cpu: int = 0
    most_memory_mb: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://{self.node_id}:8000"

    def create(self, sandbox_id: str, cpu_count: int, memory_mb: int) -> None:
        """A gateway asked the node to start it. A repeated request finds it there."""
        self.running[sandbox_id] = (cpu_count, memory_mb)
        self.most_cpu = max(self.most_cpu, sum(cpu for cpu, _ in self.running.values()))
        self.most_memory_mb = max(self.most_memory_mb, sum(memory for _, memory in self.running.values()))

    def holds(self, cpu_count: int, memory_mb: int) -> int:
        """How many sandboxes of one size fit, whichever runs out first."""
        return min(self.cpu_count // cpu_count, self.memory_mb // memory_mb)

    def report(self, *, living: bool, sequence: int | None) -> dict[str, Any]:
        """The body of a heartbeat. Pinned: nothing runs here, whatever was placed; the roster is left unsaid."""
        running = self.running if living else {}
        snapshot = {
            "status": "ready",
            "cpu_count": self.cpu_count,
            "memory_total_bytes": self.memory_mb * MIB,
            "allocated_cpu": sum(cpu for cpu, _ in running.values()),
            "allocated_memory_bytes": sum(memory for _, memory in running.values()) * MIB,
            "sandbox_count": len(running),
            "create_successes": len(running),
        }
        body: dict[str, Any] = {"service_instance_id": f"instance-{self.node_id}", "snapshot": snapshot}
        if sequence is not None:
            body["sequence"] = sequence
        if living:
            body["sandbox_ids"] = sorted(running)
        return body


class Fleet:
    """The nodes of one rig, and the tasks that report for them."""

    def __init__(self, rig: Rig, nodes: Sequence[NodeModel], *, living: bool = False) -> None:
        self.rig = rig
        self.nodes: Mapping[str, NodeModel] = {node.node_id: node for node in nodes}
        self.living = living
        self.domain = DEFAULT_DOMAIN
        self.silent = False
        self.reports_accepted = 0
        self._sequence = 0

    def ceiling(self, cpu_count: int, memory_mb: int) -> int:
        """How many sandboxes of one size the whole fleet admits."""
        return sum(node.holds(cpu_count, memory_mb) for node in self.nodes.values())

    async def discover(self) -> None:
        listed = [{"id": node.node_id, "endpoint": node.endpoint} for node in self.nodes.values()]
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            url = f"{self.rig.urls[0]}/v1/nodes"
            (await client.put(url, json={"active": listed, "lingering": []})).raise_for_status()
            for node in self.nodes.values():
                assert await self.report(client, node) == 200

    async def report(self, client: httpx.AsyncClient, node: NodeModel) -> int | None:
        """One heartbeat to some replica; None when nobody answered."""
        url = self.rig.any_url()
        if url is None:
            return None
        self._sequence += 1
        body = node.report(living=self.living, sequence=self._sequence)
        try:
            answer = await client.post(f"{url}/v1/nodes/{node.node_id}/heartbeat", json=body)
        except httpx.HTTPError:
            return None
        self.reports_accepted += answer.status_code == 200
        return answer.status_code

    @contextlib.asynccontextmanager
    async def reporting(self, interval_seconds: float = 0.5) -> AsyncIterator[None]:
        """Every node reports again and again while the block runs; failures are a node's everyday life."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:

            async def report_for(node: NodeModel) -> None:
                while True:
                    if not self.silent:
                        await self.report(client, node)
                    await asyncio.sleep(interval_seconds * self.rig.random.uniform(0.8, 1.2))

            tasks = [asyncio.create_task(report_for(node)) for node in self.nodes.values()]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def eight_nodes() -> list[NodeModel]:
    """Some run out of CPUs first, some of memory; together a few hundred sandboxes of one size."""
    sizes = [(64, 131_072), (96, 65_536), (32, 262_144), (128, 131_072), (17, 40_000), (48, 98_304), (64, 50_000)]
    return [NodeModel(f"node-{number}", cpu, memory) for number, (cpu, memory) in enumerate([*sizes, (80, 163_840)])]


def large_nodes(count: int = 8) -> list[NodeModel]:
    """More capacity than any test asks for."""
    return [NodeModel(f"node-{number}", 100_000, 400_000_000) for number in range(count)]
