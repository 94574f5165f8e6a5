"""The ledger moves to another server: Sentinel promotes, a server turns read-only, a cluster loses a primary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scheduler.connection.keys import Keys
from tests.replicas.harness.callers import Workload, eventually
from tests.replicas.harness.scene import Scene, Setting, now, scene
from tests.support.relay import Relay
from tests.support.servers import RedisServer
from tests.support.topologies import ClusterTopology, SentinelTopology

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

RESUME_WITHIN_SECONDS = 2.0  # of the failover's end; a promise of the documentation
PATIENT = Workload(clients=8, patience_seconds=60)


@pytest.fixture
def sentinel() -> Iterator[SentinelTopology]:
    with SentinelTopology(replicas=2) as topology:
        yield topology


async def fail_over(topology: SentinelTopology) -> tuple[float, float, RedisServer]:
    """Kill the primary. Returns when it died, when the sentinels named another, and that other."""
    killed_at = now()
    await asyncio.to_thread(topology.primary.kill)
    while await asyncio.to_thread(topology.primary_port) == topology.primary.port:
        assert now() - killed_at < 60, "the sentinels did not fail over"
        await asyncio.sleep(0.02)
    port = topology.primary_port()
    return killed_at, now(), next(replica for replica in topology.replicas if replica.port == port)


@asynccontextmanager
async def behind_sentinel(topology: SentinelTopology, *settings: str) -> AsyncIterator[Scene]:
    setting = Setting(addresses=(topology.url,), settings=settings, living=True, workload=PATIENT)
    async with scene(topology.primary, setting) as at:
        yield at


def restored_by(at: Scene) -> list[dict[str, Any]]:
    """What every replica said of its putting back."""
    return [event for replica in at.rig.replicas for event in replica.log if event["message"] == "put back"]


@pytest.mark.brief
async def test_after_a_sentinel_failover_writes_resume_and_durable_reservations_are_all_there(
    sentinel: SentinelTopology,
) -> None:
    async with behind_sentinel(sentinel, "durability.wait_replicas=1") as at:
        await at.more_answers(100)
        killed_at, promoted_at, at.server = await fail_over(sentinel)
        recovery = await at.recovery_seconds(promoted_at)
        await at.more_answers(60)
        verdict = await at.verdict(
            "Sentinel failover, durability.wait_replicas 1",
            failover_s=promoted_at - killed_at,
            recovery_s=recovery,
        )
        # How soon is seen in the figures: it takes as long as the other replica needs to follow the promoted one.
        assert verdict.lost == []


async def test_after_a_sentinel_failover_without_waiting_replicas_put_back_what_is_missing(
    sentinel: SentinelTopology,
) -> None:
    async with behind_sentinel(sentinel) as at:
        await at.more_answers(100)
        killed_at, promoted_at, at.server = await fail_over(sentinel)
        recovery = await at.recovery_seconds(promoted_at)
        await at.more_answers(60)
        verdict = await at.verdict(
            "Sentinel failover, wait_replicas 0", failover_s=promoted_at - killed_at, recovery_s=recovery
        )
        assert verdict.lost == []
        assert recovery < RESUME_WITHIN_SECONDS


async def test_what_a_replica_lacked_when_it_was_promoted_is_put_back(sentinel: SentinelTopology) -> None:
    """Replication is cut off for the last moments before the primary dies, so that something is missing."""
    async with behind_sentinel(sentinel) as at:
        await at.more_answers(60)
        for replica in sentinel.replicas:
            replica.pause()
        with sentinel.primary.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        await at.more_answers(40, seconds=20)
        await asyncio.to_thread(sentinel.primary.kill)
        for replica in sentinel.replicas:
            replica.resume()
        _, promoted_at, at.server = await fail_over(sentinel)
        recovery = await at.recovery_seconds(promoted_at)
        await at.more_answers(60)
        verdict = await at.verdict("Sentinel failover to a replica that lagged", recovery_s=recovery)
        assert verdict.lost == []
        assert any(event["restored"] for event in restored_by(at)), "the promoted replica lacked nothing"


async def test_without_enough_replicas_a_durable_reservation_is_not_acknowledged(sentinel: SentinelTopology) -> None:
    async with behind_sentinel(sentinel, "durability.wait_replicas=2") as at:
        await at.more_answers(30)
        sentinel.replicas[0].pause()
        try:
            answer = await at.place_once(at.rig.urls[0], "one-replica-short", **{"X-Request-Timeout": "1s"})
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        finally:
            sentinel.replicas[0].resume()
        again = await at.place_once(at.rig.urls[0], "one-replica-short")
        assert again.json()["replayed"], "it was written all along; asked again, it is told"
        await at.verdict("one replica fewer than wait_replicas asks for")


async def test_a_primary_that_turns_read_only_is_left_for_the_one_sentinel_names(sentinel: SentinelTopology) -> None:
    """A switch without a death: the old primary lives on and answers READONLY."""
    async with behind_sentinel(sentinel) as at:
        await at.more_answers(60)
        asked_at = now()
        with sentinel.sentinels[0].client() as client:
            await asyncio.to_thread(client.execute_command, "SENTINEL", "FAILOVER", sentinel.name)
        await eventually(lambda: sentinel.primary_port() != sentinel.primary.port, "the switch")
        switched_at, port = now(), sentinel.primary_port()
        at.server = next(replica for replica in sentinel.replicas if replica.port == port)
        recovery = await at.recovery_seconds(switched_at)
        await at.more_answers(60)
        verdict = await at.verdict(
            "switch-over, the old primary READONLY", failover_s=switched_at - asked_at, recovery_s=recovery
        )
        assert verdict.lost == []


async def test_a_lone_server_that_turns_read_only_is_reported_and_recovers() -> None:
    with RedisServer() as other, RedisServer() as server:
        async with Relay(server.port) as relay, scene(server, Setting(addresses=(relay.address,))) as at:
            await at.more_answers(40)
            with server.client() as client:
                client.execute_command("REPLICAOF", "127.0.0.1", other.port + 1)
                answer = await at.place_once(at.rig.urls[0], "while-read-only", **{"X-Request-Timeout": "1s"})
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                assert await at.statuses(at.rig.urls[0], "/healthz") == [200]
                client.execute_command("REPLICAOF", "NO", "ONE")
            recovery = await at.recovery_seconds(now())
            await at.more_answers(40)
            verdict = await at.verdict("READONLY for a moment", recovery_s=recovery)
            assert verdict.lost == []


async def test_a_cluster_that_lost_the_primary_of_the_ledger_goes_on_with_its_replica() -> None:
    with ClusterTopology(primaries=3, replicas_each=1) as cluster:
        server = cluster.owner(Keys("default").settings)
        setting = Setting(addresses=(cluster.url,), living=True, workload=PATIENT)
        async with scene(server, setting) as at:
            await at.more_answers(60)
            killed_at = now()
            await asyncio.to_thread(server.kill)
            await eventually(lambda: _owner_or_none(cluster) not in (None, server), "the cluster to promote", 60)
            promoted_at, at.server = now(), cluster.owner(Keys("default").settings)
            recovery = await at.recovery_seconds(promoted_at)
            await at.more_answers(60)
            await at.verdict("cluster: the ledger's primary lost", loss_allowed=True,
                             failover_s=promoted_at - killed_at, recovery_s=recovery)  # fmt: skip


async def test_a_cluster_that_lost_the_primary_of_another_slot_is_not_disturbed() -> None:
    with ClusterTopology(primaries=3, replicas_each=1) as cluster:
        home = cluster.owner(Keys("default").settings)
        other = next(member for member in cluster.primaries if member is not home)
        async with scene(home, Setting(addresses=(cluster.url,))) as at:
            await at.more_answers(40)
            await asyncio.to_thread(other.kill)
            await at.more_answers(100)
            verdict = await at.verdict("cluster: another slot's primary lost")
            assert verdict.lost == []


def _owner_or_none(cluster: ClusterTopology) -> RedisServer | None:
    try:
        owner = cluster.owner(Keys("default").settings)
    except (LookupError, OSError):
        return None
    return owner if owner.process is not None else None
