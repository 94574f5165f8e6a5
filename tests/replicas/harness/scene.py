"""A whole scene: server, replicas, reporting nodes, callers at work and a watch over them. A test adds the fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from tests.replicas.harness.callers import Callers, Workload, eventually, read_answer
from tests.replicas.harness.fleet import Fleet, NodeModel, large_nodes
from tests.replicas.harness.history import History
from tests.replicas.harness.judge import Evidence, Verdict, assert_kept, judge
from tests.replicas.harness.observed import observed
from tests.replicas.harness.rig import Rig
from tests.replicas.harness.watcher import Watch, watching
from tests.support.servers import RedisServer

SITE = Path(__file__).parent / "site"  # what Python imports by itself when it starts: shifts a replica's clock


@dataclass(frozen=True, slots=True)
class Setting:
    """How a scene is built. `addresses`: what the replicas are given, when that is not the server's own.
    `clocks`: seconds by which each replica's own clock is off."""

    replicas: int = 2
    addresses: Sequence[str] = ()
    settings: Sequence[str] = ()
    nodes: Sequence[NodeModel] = field(default_factory=large_nodes)
    living: bool = False
    clocks: Sequence[str] = ()
    report_seconds: float = 0.5
    workload: Workload = field(default_factory=Workload)


@dataclass(slots=True)
class Scene:
    server: RedisServer
    rig: Rig
    fleet: Fleet
    history: History
    callers: Callers
    watch: Watch
    load: asyncio.Task[History]

    async def more_answers(self, count: int, seconds: float = 60.0) -> None:
        """Let the load go on until that many more placements are acknowledged."""
        wanted = sum(1 for _ in self.history.acknowledged("schedule")) + count
        await eventually(
            lambda: self.load.done() or sum(1 for _ in self.history.acknowledged("schedule")) >= wanted,
            f"{count} more placements; so far {self.history.tally()}",
            seconds,
        )

    def _still_at_work(self) -> None:
        """Raises what ended the callers, when that was a defect of theirs."""
        if self.load.done():
            self.load.result()

    async def recovery_seconds(self, since: float, seconds: float = 60.0) -> float:
        """From `since` until the end of the first placement that began later and was acknowledged."""

        def placed_or_broken() -> bool:
            self._still_at_work()
            return self.history.first_after(since) is not None

        await eventually(placed_or_broken, "a placement", seconds)
        found = self.history.first_after(since)
        assert found is not None
        return found.ended - since

    async def place_once(self, url: str, key: str, ttl: str = "10m", **headers: str) -> httpx.Response:
        """One attempt of one placement at one replica, outside of the load, recorded like any other."""
        body = {"hint": {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 512}, "reservation_ttl": ttl}
        began = now()
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            response = await client.post("/v1/schedule", json=body, headers={"Idempotency-Key": key, **headers})
        self.history.note(read_answer("schedule", key, began, response))
        return response

    async def get(self, url: str, path: str) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            body: dict[str, Any] = (await client.get(path)).raise_for_status().json()
            return body

    async def nodes(self, url: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = (await self.get(url, "/v1/nodes"))["nodes"]
        return nodes

    async def report(self, url: str, node_id: str, body: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            return await client.post(f"/v1/nodes/{node_id}/heartbeat", json=body)

    async def wall_clock_difference(self, slow: str, fast: str) -> float:
        """Seconds between what two replicas themselves take for now, by the date of their answers."""
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            dates = [
                parsedate_to_datetime((await client.get(url + "/healthz")).headers["Date"]) for url in (slow, fast)
            ]
        return (dates[1] - dates[0]).total_seconds()

    async def statuses(self, url: str, *paths: str) -> list[int]:
        """What a replica answers there."""
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            return [(await client.get(path)).status_code for path in paths]

    async def end_load(self) -> None:
        self.callers.stop()
        await self.load

    async def verdict(self, fault: str, *, loss_allowed: bool = False, **figures: Any) -> Verdict:
        """End the load, judge, and fail unless everything was kept."""
        await self.end_load()
        await self.rig.ready()
        evidence = Evidence(
            self.history, self.rig, self.server, self.fleet, self.watch, loss_allowed, self.fleet.domain
        )
        verdict = await judge(evidence)
        assert_kept(verdict, evidence)
        assert verdict.placed > 0
        observed(fault, verdict, **figures)
        return verdict


@asynccontextmanager
async def scene(server: RedisServer, setting: Setting = Setting()) -> AsyncIterator[Scene]:
    """Everything running and every node known when the block begins."""
    # Pinned nodes list no sandboxes, so bindings must outlive the run by themselves.
    common = ("strategy=least_loaded", "shutdown.drain=200ms", "binding_ttl=1h", *setting.settings)
    addresses = setting.addresses or (server.url,)
    made = Rig(*addresses, replicas=setting.replicas, settings=common)
    for number, offset in enumerate(setting.clocks):
        made.environment(number, PYTHONPATH=str(SITE), HARNESS_CLOCK_OFFSET_SECONDS=offset)
    async with made as rig:
        fleet, history = Fleet(rig, setting.nodes, living=setting.living), History()
        await fleet.discover()
        callers = Callers(rig, history, setting.workload, fleet)
        async with (
            fleet.reporting(setting.report_seconds),
            watching(server, admission=not setting.living, domain=fleet.domain) as watch,
        ):
            load = asyncio.create_task(callers.run())
            try:
                yield Scene(server, rig, fleet, history, callers, watch, load)
            finally:
                callers.stop()
                load.cancel()
                await asyncio.gather(load, return_exceptions=True)


def now() -> float:
    return time.monotonic()
