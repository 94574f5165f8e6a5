"""Replicas die, freeze, leave and fall out of step; the ledger keeps every reservation all the same."""

from __future__ import annotations

import asyncio

import pytest

from tests.replicas.conftest import StartServer
from tests.replicas.harness.callers import Workload, eventually
from tests.replicas.harness.fleet import NodeModel, eight_nodes
from tests.replicas.harness.scene import Setting, now, scene

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


@pytest.mark.brief
async def test_replicas_that_are_killed_lose_no_reservation(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(replicas=3)) as at:
        recoveries = []
        for victim in (0, 1, 2):
            await at.more_answers(60)
            await at.rig.kill(victim)
            recoveries.append(await at.recovery_seconds(now()))
            await at.rig.replace(victim)
        verdict = await at.verdict("kill -9 of a replica", recovery_s=max(recoveries), kills=3)
        assert verdict.lost == []


async def test_a_frozen_replica_that_wakes_after_ten_seconds_reserves_nothing_twice(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(settings=("report_ttl=5s",), workload=Workload(clients=6))) as at:
        await at.more_answers(60)
        at.rig.freeze(0)
        frozen_at = now()
        await asyncio.sleep(10)  # real time: the freeze outlasts reports, keepalives and callers' patience
        recovery = await at.recovery_seconds(frozen_at)
        at.rig.wake(0)
        await at.more_answers(60)
        await at.rig.ready()
        await at.verdict("SIGSTOP of a replica, woken after 10 s", recovery_s=recovery)


@pytest.mark.brief
async def test_a_terminated_replica_finishes_what_it_has_and_nothing_is_lost(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(replicas=2)) as at:
        for victim in (0, 1):
            await at.more_answers(60)
            assert await at.rig.terminate(victim) == 0
            await at.rig.replace(victim)
        await at.more_answers(30)
        cut = [answer for answer in at.history.answers if answer.fault in ("ReadError", "RemoteProtocolError")]
        await at.verdict("SIGTERM of a replica under load", cut_mid_request=len(cut))


async def test_replicas_whose_clocks_are_a_minute_apart_agree_about_every_deadline(start_server: StartServer) -> None:
    """Deadlines, silence and expiry are judged by the server's clock alone."""
    setting = Setting(clocks=("-60", "60"), settings=("report_ttl=3s",), workload=Workload(creates=150))
    async with scene(start_server(), setting) as at:
        slow, fast = at.rig.urls
        assert await at.wall_clock_difference(slow, fast) > 100
        placed = await at.place_once(slow, "by-the-slow-one", ttl="4s")
        expires_at_ms = placed.json()["reservation"]["expires_at_ms"]
        assert (await at.place_once(fast, "by-the-slow-one", ttl="4s")).json()["replayed"]
        for url in (slow, fast):
            assert {node["status"] for node in await at.nodes(url)} == {"ready"}
        await at.more_answers(100)
        await asyncio.sleep(5)  # real time: the short reservation's whole life
        path = f"/v1/reservations/{placed.json()['reservation']['reservation_id']}"
        views = [await at.get(url, path) for url in (slow, fast)]
        assert views[0] == views[1]
        assert views[0]["reservation"]["state"] == "expired"
        assert views[0]["reservation"]["expires_at_ms"] == expires_at_ms
        await at.verdict("replica clocks 120 s apart")


@pytest.mark.brief
async def test_reports_that_arrive_twice_or_late_change_nothing(start_server: StartServer) -> None:
    """Two replicas are handed the same reports, doubled and out of order. Only the newest may count."""
    async with scene(start_server(), Setting(nodes=(NodeModel("node-0", 1_000, 1_000_000),), report_seconds=600)) as at:
        node, instance = at.fleet.nodes["node-0"], "reordered"
        bodies = []
        for sequence in range(1, 41):
            body = node.report(living=False, sequence=sequence)
            body["service_instance_id"] = instance
            body["snapshot"]["allocated_cpu"] = sequence
            body["sandbox_ids"] = [f"listed-{sequence}"]
            bodies.append(body)
        shuffled = [body for body in bodies for _ in range(2)]
        at.rig.random.shuffle(shuffled)
        answers = await asyncio.gather(
            *(at.report(url, node.node_id, body) for body in shuffled for url in at.rig.urls)
        )
        assert {answer.status_code for answer in answers} == {200}
        generations = [answer.json()["generation"] for answer in answers if not answer.json()["stale"]]
        assert len(generations) == len(set(generations)) <= 40
        for url in at.rig.urls:
            [shown] = await at.nodes(url)
            assert shown["snapshot"]["allocated_cpu"] == 40
            assert (await at.statuses(url, "/v1/bindings/listed-40", "/v1/bindings/listed-39")) == [200, 404]
        await at.verdict("doubled and reordered heartbeats", reports=len(answers), accepted=len(generations))


@pytest.mark.real_time
@pytest.mark.brief
async def test_when_every_node_falls_silent_placements_go_on_and_say_that_they_are_degraded(
    start_server: StartServer,
) -> None:
    setting = Setting(nodes=eight_nodes(), settings=("report_ttl=2s",), workload=Workload(clients=4, think_seconds=0.3))
    async with scene(start_server(), setting) as at:
        await at.more_answers(20)
        assert not any(answer.degraded for answer in at.history.answers)
        at.fleet.silent = True
        await eventually(lambda: any(answer.degraded for answer in at.history.answers), "the last resort")
        for url in at.rig.urls:
            assert {node["status"] for node in await at.nodes(url)} == {"unhealthy"}
        await at.more_answers(20)
        at.fleet.silent = False
        began = now()
        await eventually(
            lambda: any(not answer.degraded for answer in at.history.acknowledged("schedule") if answer.began > began),
            "nodes to be back",
        )
        fresh = next(a for a in at.history.acknowledged("schedule") if a.began > began and not a.degraded)
        degraded = sum(answer.degraded for answer in at.history.answers)
        await at.verdict("all nodes silent at once", degraded_placements=degraded, recovery_s=fresh.ended - began)
