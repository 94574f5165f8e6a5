"""The way between replicas and ledger, and between callers and replicas, breaks at its worst moments."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack

import httpx
import pytest

from tests.replicas.conftest import StartServer
from tests.replicas.harness.callers import Workload, eventually
from tests.replicas.harness.fleet import eight_nodes
from tests.replicas.harness.scene import Scene, Setting, now, scene
from tests.support.relay import Relay
from tests.support.servers import RedisServer

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


async def cut_often(at: Scene, relay: Relay, fault: str, cuts: int = 40) -> None:
    """One by one, so that cuts meet placements, confirms, cancels, reports and maintenance alike."""
    for _ in range(cuts):
        getattr(relay, fault)(1)
        await eventually(lambda: not relay.faults_left, "the relay to meet a call")


@pytest.mark.brief
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("drop_requests", "connection cut before the commit"),
        ("drop_replies", "connection cut after the commit"),
        ("tear_replies", "connection cut in the middle of a reply"),
    ],
)
async def test_a_connection_cut_at_any_moment_reserves_nothing_twice(
    fault: str, told: str, start_server: StartServer
) -> None:
    server = start_server()
    async with Relay(server.port) as relay, scene(server, Setting(addresses=(relay.address,))) as at:
        await at.more_answers(20)
        await cut_often(at, relay, fault)
        await at.more_answers(20)
        failed = sum(answer.status != 200 for answer in at.history.answers)
        verdict = await at.verdict(told, cuts=40, failed_calls=failed)
        assert verdict.lost == []


async def test_a_slow_connection_costs_only_time(start_server: StartServer) -> None:
    server = start_server()
    async with Relay(server.port) as relay, scene(server, Setting(addresses=(server.address, relay.address))) as at:
        relay.delay_seconds = 0.2
        await at.more_answers(60)
        relay.delay_seconds = 0.0
        await at.verdict("slow connection: 0.2 s a packet each way, one replica of two")


async def test_a_half_open_connection_is_closed_within_the_deadline(start_server: StartServer) -> None:
    """The peer is gone and nobody was told: nothing passes, nothing is closed."""
    server = start_server()
    async with Relay(server.port) as relay:
        setting = Setting(addresses=(server.address, relay.address), workload=Workload(timeout_seconds=8))
        async with scene(server, setting) as at:
            await at.more_answers(30)
            relay.hold()
            held_at = now()
            url = at.rig.replicas[1].url
            answer = await at.place_once(url, "while-held", **{"X-Request-Timeout": "1s"})
            assert answer.status_code in (503, 504)
            assert now() - held_at < 8
            assert await at.statuses(url, "/healthz") == [200]
            await at.more_answers(30)
            relay.release()
            released_at = now()
            await asyncio.to_thread(at.rig.replicas[1].wait_until_ready, 15.0)
            recovery = now() - released_at
            await at.verdict("half-open connection of one replica", recovery_s=recovery)


async def test_a_pool_of_one_connection_serves_everybody_in_turn(start_server: StartServer) -> None:
    server = start_server()
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay(server.port))
        settings = ("store.pool_size=1",)
        at = await stack.enter_async_context(scene(server, Setting(addresses=(relay.address,), settings=settings)))
        await at.more_answers(60)
        relay.cut()
        await at.more_answers(60)
        verdict = await at.verdict("a pool of one connection, cut once")
        assert verdict.lost == []


@pytest.mark.brief
async def test_callers_that_vanish_leave_no_capacity_reserved_twice(start_server: StartServer) -> None:
    """Half of the callers hang up as soon as they have asked. What they asked for may have been done; it is then
    an open reservation under their key, which the same key finds again."""
    async with scene(start_server(), Setting(nodes=eight_nodes(), workload=Workload(clients=4, creates=200))) as at:
        vanished = [f"vanished-{number}" for number in range(60)]
        for key in vanished:
            await asyncio.to_thread(_ask_and_hang_up, at.rig.any_url() or "", key)
            await asyncio.sleep(0.01)
        again = [(await at.place_once(at.rig.urls[0], key)).raise_for_status().json() for key in vanished]
        twice = [(await at.place_once(at.rig.urls[0], key)).raise_for_status().json() for key in vanished]
        assert [answer["reservation"] for answer in again] == [answer["reservation"] for answer in twice]
        assert all(answer["replayed"] for answer in twice)
        done_unheard = sum(answer["replayed"] for answer in again)
        await at.verdict("callers that vanish mid-call", vanished=len(vanished), done_unheard=done_unheard)


def _ask_and_hang_up(url: str, key: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    hint = {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 512}
    body = json.dumps({"hint": hint, "reservation_ttl": "10m"})  # what `place_once` asks again
    head = f"POST /v1/schedule HTTP/1.1\r\nHost: {host}\r\nIdempotency-Key: {key}\r\n"
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )


async def test_the_ledger_cut_off_for_five_seconds_is_reported_and_recovers(start_server: StartServer) -> None:
    server: RedisServer = start_server()
    async with Relay(server.port) as relay, scene(server, Setting(addresses=(relay.address,))) as at:
        await at.more_answers(30)
        relay.down()
        async with httpx.AsyncClient(base_url=at.rig.urls[0], trust_env=False, timeout=10) as client:
            answer = await client.get("/v1/nodes", headers={"X-Request-Timeout": "1s"})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert "Retry-After" in answer.headers
        assert await at.statuses(at.rig.urls[0], "/readyz", "/healthz") == [503, 200]
        await asyncio.sleep(5)  # real time: longer than any call's own limit
        relay.up()
        recovery = await at.recovery_seconds(now())
        await at.more_answers(30)
        verdict = await at.verdict("the ledger cut off for 5 s", recovery_s=recovery)
        assert verdict.lost == []
