"""A gateway's create while the ledger is away: the sandbox that runs keeps its capacity, and is confirmed."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from agentenv_scheduler_client import AsyncSchedulerClient, ColdSandbox
from tests.support.relay import Relay
from tests.support.replica_process import ReplicaProcess
from tests.support.servers import RedisServer

pytestmark = [pytest.mark.faults, pytest.mark.brief, pytest.mark.timeout(120)]

HINT = ColdSandbox(cpu_count=2, memory_mb=1024)
AWAY_SECONDS = 3  # real time: longer than a replica's own attempts at one confirm
NODE = {"service_instance_id": "i", "snapshot": {"status": "ready", "cpu_count": 4, "memory_total_bytes": 2**33}}


async def list_node(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as http:
        (await http.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})).raise_for_status()
        (await http.post("/v1/nodes/node-a/heartbeat", json=NODE)).raise_for_status()


async def test_a_confirm_outlives_a_ledger_that_is_away_for_three_seconds(real_server: RedisServer) -> None:
    async with Relay(real_server.port) as relay:
        replica = ReplicaProcess("--redis-addr", relay.address, "--set", "strategy=least_loaded")
        all_there = asyncio.Barrier(3)

        async def start(sandbox_id: str) -> str:
            await all_there.wait()
            return sandbox_id

        async def ledger_away(leaving: asyncio.Task[str]) -> None:
            await all_there.wait()
            relay.down()
            await asyncio.sleep(AWAY_SECONDS / 2)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            await asyncio.sleep(AWAY_SECONDS / 2)
            relay.up()

        try:
            await asyncio.to_thread(replica.start)
            await list_node(replica.url)
            async with AsyncSchedulerClient(replica.url, timeout_seconds=30.0) as client:
                leaving = asyncio.create_task(client.create(HINT, lambda node: start("leaving")))
                staying = client.create(HINT, lambda node: start("staying"))
                assert await asyncio.gather(staying, ledger_away(leaving)) == ["staying", None]
            # Closing the client has waited for the confirm that went on without its caller.
            async with httpx.AsyncClient(base_url=replica.url) as http:
                listed = (await http.get("/v1/reservations")).raise_for_status().json()["reservations"]
                told = {(one["state"], one["sandbox_id"]) for one in listed}
                assert told == {("confirmed", "staying"), ("confirmed", "leaving")}
                for sandbox_id in ("staying", "leaving"):
                    assert (await http.get(f"/v1/bindings/{sandbox_id}")).json()["node"]["node_id"] == "node-a"
        finally:
            await asyncio.to_thread(replica.__exit__, None, None, None)
