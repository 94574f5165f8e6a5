"""On a Redis Cluster: every domain goes to its slot's primary, and follows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler import deadline
from scheduler.connection.client import StoreClient
from scheduler.connection.keys import Keys
from scheduler.errors import StoreUnavailable
from tests.redis.conftest import SETTINGS, Connect
from tests.support.servers import RedisServer
from tests.support.topologies import ClusterTopology, wait_for


@pytest.fixture
def empty_cluster(cluster: ClusterTopology) -> ClusterTopology:
    for member in cluster.primaries:
        member.flush()
    return cluster


async def count(client: StoreClient, key: str = SETTINGS) -> list[Any]:
    return await client.run("count", settings_key=key)


async def test_domains_spread_over_the_members(empty_cluster: ClusterTopology, connect_to: Connect) -> None:
    client = await connect_to(empty_cluster.url)
    await client.check_server()
    domains = [Keys(f"domain-{number}") for number in range(12)]
    for keys in domains:
        assert await count(client, keys.settings) == [b"ok", 1]
        assert await client.command("GET", keys.settings) == b"1"
    held = []
    for member in empty_cluster.primaries:
        with member.client() as looker:
            held.append(looker.dbsize())
    assert sum(held) == len(domains)
    assert all(held)


async def test_one_living_seed_is_enough(empty_cluster: ClusterTopology, connect_to: Connect) -> None:
    client = await connect_to(f"cluster://127.0.0.1:1,{empty_cluster.primaries[0].address}")
    assert await count(client) == [b"ok", 1]


async def test_scripts_are_loaded_where_the_ledger_is(empty_cluster: ClusterTopology, connect_to: Connect) -> None:
    client = await connect_to(empty_cluster.url)
    await client.load_scripts()
    await count(client)
    assert client.statistics.scripts_reloaded == 0


async def test_a_moved_slot_is_followed(empty_cluster: ClusterTopology, connect_to: Connect) -> None:
    client = await connect_to(empty_cluster.url)
    old = empty_cluster.owner(SETTINGS)
    new = next(member for member in empty_cluster.primaries if member is not old)
    assert await count(client) == [b"ok", 1]
    _move_slot(empty_cluster, old, new, finish=True)
    try:
        assert await count(client) == [b"ok", 2]
        assert client.statistics.retries >= 1
    finally:
        _move_slot(empty_cluster, new, old, finish=True)
    assert await count(client) == [b"ok", 3]


async def test_a_slot_on_the_move_is_waited_for_and_never_half_used(
    empty_cluster: ClusterTopology, connect_to: Connect
) -> None:
    client = await connect_to(empty_cluster.url)
    old = empty_cluster.owner(SETTINGS)
    new = next(member for member in empty_cluster.primaries if member is not old)
    await count(client)
    _move_slot(empty_cluster, old, new, finish=False)
    # The key has moved, the slot has not: the old member answers ASK.
    call = asyncio.create_task(count(client))
    while client.statistics.retries < 2:  # noqa: ASYNC110 - a counter has no event
        await asyncio.sleep(0)
    assert not call.done()
    _assign_slot(empty_cluster, new)
    assert await call == [b"ok", 2]
    _move_slot(empty_cluster, new, old, finish=True)


async def test_a_member_that_is_gone_makes_its_domains_unavailable_and_no_others(connect_to: Connect) -> None:
    with ClusterTopology() as cluster:
        for member in cluster.primaries:
            with member.client() as looker:
                looker.config_set("cluster-require-full-coverage", "no")
        lost = cluster.owner(SETTINGS)
        other = next(keys for keys in map(Keys, "abcdefgh") if cluster.owner(keys.settings) is not lost)
        client = await connect_to(cluster.url)
        await count(client)
        await count(client, other.settings)
        lost.kill()
        with deadline.within(0.3), pytest.raises(StoreUnavailable):
            await count(client)
        assert await count(client, other.settings) == [b"ok", 2]


async def test_a_promoted_replica_is_found(connect_to: Connect) -> None:
    with ClusterTopology(replicas_each=1) as cluster:
        client = await connect_to(cluster.url, operation_timeout_ms=30_000, wait_replicas=1)
        assert await client.run("count_once", ["a"], settings_key=SETTINGS, durable=True) == [1]
        cluster.owner(SETTINGS).kill()
        assert await client.run("count_once", ["b"], settings_key=SETTINGS) == [2]


def _move_slot(cluster: ClusterTopology, old: RedisServer, new: RedisServer, *, finish: bool) -> None:
    """Move the test domain's slot and its keys; without `finish` nobody is told yet."""
    with old.client() as source, new.client() as target:
        slot = source.execute_command("CLUSTER", "KEYSLOT", SETTINGS)
        source_id, target_id = (side.execute_command("CLUSTER", "MYID") for side in (source, target))
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        for key in source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.execute_command("MIGRATE", "127.0.0.1", new.port, key, 0, 5000)
    if finish:
        _assign_slot(cluster, new)


def _assign_slot(cluster: ClusterTopology, owner: RedisServer) -> None:
    with owner.client() as looker:
        slot = looker.execute_command("CLUSTER", "KEYSLOT", SETTINGS)
        owner_id = looker.execute_command("CLUSTER", "MYID")
    members = [owner, *(member for member in cluster.primaries if member is not owner)]
    for member in members:
        with member.client() as looker:
            looker.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owner_id)
    wait_for(lambda: cluster.owner(SETTINGS) is owner, "the slot to arrive")
