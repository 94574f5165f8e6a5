"""The server of the ledger dies, forgets, stalls; replicas say so, wait, and put back what they know."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest
import redis

from scheduler.replica.membership import KEEPALIVE_TTL_MS
from tests.replicas.conftest import StartServer
from tests.replicas.harness.callers import Workload, eventually
from tests.replicas.harness.fleet import NodeModel, eight_nodes, large_nodes
from tests.replicas.harness.scene import Scene, Setting, now, scene
from tests.support.servers import RedisServer

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

LEASE_SECONDS = KEEPALIVE_TTL_MS / 1000
NEVER_RETURNS = "while true do end"


async def die_and_come_back(at: Scene, outage_seconds: float = 1.0) -> float:
    """Returns when the server answered again; the time until the first placement after that."""
    await asyncio.to_thread(at.server.kill)
    await asyncio.sleep(outage_seconds)
    began = now()
    await asyncio.to_thread(at.server.restart)
    return await at.recovery_seconds(began)


@pytest.mark.brief
async def test_a_server_killed_with_aof_always_loses_no_reservation(start_server: StartServer) -> None:
    async with scene(start_server(persistence="always")) as at:
        await at.more_answers(60)
        recovery = await die_and_come_back(at)
        await at.more_answers(60)
        verdict = await at.verdict("Redis kill -9, AOF always", recovery_s=recovery)
        assert verdict.lost == []


async def test_a_server_killed_with_aof_everysec_admits_to_what_it_lost(start_server: StartServer) -> None:
    async with scene(start_server(persistence="everysec"), Setting(living=True)) as at:
        await at.more_answers(60)
        recovery = await die_and_come_back(at)
        await at.more_answers(60)
        await at.verdict("Redis kill -9, AOF everysec", loss_allowed=True, recovery_s=recovery)


@pytest.mark.brief
async def test_a_server_killed_without_aof_loses_nothing_that_living_replicas_remember(
    start_server: StartServer,
) -> None:
    async with scene(start_server(persistence="none"), Setting(living=True)) as at:
        await at.more_answers(60)
        recovery = await die_and_come_back(at)
        await at.more_answers(60)
        verdict = await at.verdict("Redis kill -9, no persistence", recovery_s=recovery)
        assert verdict.lost == []


async def flush(at: Scene) -> float:
    """Returns when the ledger was empty."""
    await asyncio.to_thread(at.server.flush)
    return now()


@pytest.mark.brief
@pytest.mark.parametrize("living", [True, False], ids=["reporting what runs", "reporting nothing"])
async def test_a_flushed_ledger_loses_nothing_that_living_replicas_remember(
    start_server: StartServer, living: bool
) -> None:
    nodes = large_nodes() if living else eight_nodes()
    async with scene(start_server(), Setting(nodes=nodes, living=living)) as at:
        await at.more_answers(100)
        recovery = await at.recovery_seconds(await flush(at))
        await at.more_answers(60)
        verdict = await at.verdict("FLUSHALL", recovery_s=recovery)
        assert verdict.lost == []
        assert recovery < LEASE_SECONDS + 2


async def test_a_ledger_flushed_again_and_again_loses_nothing(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(replicas=3, living=True)) as at:
        await at.more_answers(100)
        longest = 0.0
        for _ in range(5):
            longest = max(longest, await at.recovery_seconds(await flush(at)))
            await at.more_answers(60)
        verdict = await at.verdict("FLUSHALL, five times", recovery_s=longest)
        assert verdict.lost == []


@pytest.mark.brief
async def test_of_a_flushed_ledger_only_that_is_lost_which_a_replica_knew_that_died_at_the_same_moment(
    start_server: StartServer,
) -> None:
    async with scene(start_server(), Setting(living=True)) as at:
        await at.more_answers(100)
        dead = at.rig.replicas[1].url
        await at.rig.kill(1)
        recovery = await at.recovery_seconds(await flush(at))
        await at.more_answers(60)
        verdict = await at.verdict("FLUSHALL as one of two replicas dies", loss_allowed=True, recovery_s=recovery)
        assert verdict.lost, "of what it had answered alone, something was still open"
        only_told_by_the_dead = {
            key
            for key in at.history.placements()
            if any(answer.replica.startswith(dead) for answer in at.history.answers if answer.key == key)
        }
        assert {fault.partition(":")[0] for fault in verdict.lost} <= only_told_by_the_dead
        assert recovery < LEASE_SECONDS + 2


@pytest.mark.real_time
@pytest.mark.brief
async def test_forgotten_scripts_are_loaded_again_without_a_failure(start_server: StartServer) -> None:
    async with scene(start_server()) as at:
        with at.server.client() as client:
            for _ in range(10):
                await at.more_answers(10)
                await asyncio.to_thread(client.script_flush, "SYNC")
        await at.end_load()
        failed = [answer for answer in at.history.answers if answer.status != 200]
        assert failed == []
        await at.verdict("SCRIPT FLUSH, ten times", failures=0)


async def test_paused_clients_are_answered_within_their_deadline_and_go_on(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(workload=Workload(timeout_seconds=8))) as at:
        await at.more_answers(60)
        paused_at = now()
        with at.server.client() as client:
            await asyncio.to_thread(client.client_pause, 3_000, True)
        await at.recovery_seconds(paused_at + 3)
        await at.more_answers(60)
        silence = at.history.longest_silence(since=paused_at - 0.5)
        verdict = await at.verdict("CLIENT PAUSE, 3 s", recovery_s=max(0.0, silence - 3))
        assert verdict.lost == []


async def test_a_script_that_blocks_the_server_for_ten_seconds_costs_time_and_no_reservation(
    start_server: StartServer,
) -> None:
    server = start_server(["--busy-reply-threshold", "1000"])
    async with scene(server, Setting(settings=("report_ttl=30s",))) as at:
        await at.more_answers(60)
        blocked_at = now()
        blocking = threading.Thread(target=_block, args=(server,))
        blocking.start()
        await asyncio.sleep(3)
        early = await at.place_once(at.rig.urls[0], "while-blocked")
        assert early.status_code in (503, 504)
        assert "Retry-After" in early.headers
        assert await at.statuses(at.rig.urls[0], "/healthz", "/readyz") == [200, 503]
        await asyncio.sleep(max(0.0, blocked_at + 10 - now()))
        freed_at = now()
        with server.client() as client:
            await asyncio.to_thread(client.script_kill)
        blocking.join()
        recovery = await at.recovery_seconds(freed_at)
        await at.more_answers(60)
        verdict = await at.verdict("a script blocks Redis for 10 s", recovery_s=recovery)
        assert verdict.lost == []


def _block(server: RedisServer) -> None:
    with server.client(socket_timeout=60) as client, pytest.raises(redis.exceptions.ResponseError):
        client.eval(NEVER_RETURNS, 0)


@pytest.mark.real_time
@pytest.mark.brief
async def test_a_ledger_that_lost_its_tail_admits_nothing_on_nodes_that_have_not_reported_since(
    start_server: StartServer, tmp_path: Path
) -> None:
    """As after a power cut: the server comes back with an older log. Nodes report rarely, so that a ledger which
    trusted its old rows would have time to give the same capacity away again."""
    nodes = [NodeModel(f"node-{number}", 40, 65_536) for number in range(4)]
    workload = Workload(clients=16, creates=400, think_seconds=0.0, confirm_share=1.0, patience_seconds=5)
    setting = Setting(nodes=nodes, living=True, report_seconds=2.5, workload=workload)
    server = start_server(persistence="everysec")
    async with scene(server, setting) as at:
        await at.more_answers(40)
        older = await asyncio.to_thread(shutil.copytree, server.directory / "appendonlydir", tmp_path / "older")
        await at.more_answers(60)
        await asyncio.to_thread(server.kill)
        shutil.rmtree(server.directory / "appendonlydir")
        shutil.copytree(older, server.directory / "appendonlydir")
        began = now()
        await asyncio.to_thread(server.restart)
        recovery = await at.recovery_seconds(began)
        await eventually(lambda: at.callers.refused > 0 or at.load.done(), "the fleet to be full")
        verdict = await at.verdict("a power cut: Redis returns with an older AOF", recovery_s=recovery)
        assert verdict.lost == []
