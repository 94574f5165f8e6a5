"""Behind Sentinel: the primary is found, followed when it changes, and waited for while there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.connection.client import StoreClient
from scheduler.errors import StoreUnavailable, StoreUnusable
from tests.redis.conftest import SETTINGS, Connect
from tests.support.servers import free_port
from tests.support.topologies import SentinelTopology, wait_for


async def count_once(client: StoreClient, identity: str, **options: bool) -> list[Any]:
    return await client.run("count_once", [identity], settings_key=SETTINGS, **options)  # type: ignore[arg-type]


async def test_the_primary_is_found_through_any_sentinel_that_lives(
    sentinel: SentinelTopology, connect_to: Connect
) -> None:
    hosts = ",".join([f"127.0.0.1:{free_port()}", *(server.address for server in sentinel.sentinels)])
    client = await connect_to(f"sentinel://{hosts}/{sentinel.name}")
    await client.check_server()
    assert await count_once(client, "a") == [1]
    with sentinel.primary.client() as looker:
        assert looker.exists(f"{SETTINGS}:seen") == 1


async def test_no_sentinel_or_no_such_primary_is_unavailable(sentinel: SentinelTopology, connect_to: Connect) -> None:
    for address in (f"sentinel://127.0.0.1:{free_port()}/aenv", sentinel.url.replace("/aenv", "/another")):
        client = await connect_to(address, operation_timeout_ms=150)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await count_once(client, "a")


async def test_calls_under_way_outlive_a_killed_primary(sentinel: SentinelTopology, connect_to: Connect) -> None:
    client = await connect_to(sentinel.url, operation_timeout_ms=30_000, wait_replicas=0)
    await count_once(client, "before")
    before = (await client.server_identity()).replication_id
    with sentinel.replicas[0].client() as looker:
        wait_for(lambda: looker.exists(f"{SETTINGS}:seen") == 1, "the write to reach the replica")
    sentinel.primary.kill()
    replies = await asyncio.gather(*(count_once(client, f"during {number}") for number in range(20)))
    assert sorted(reply[0] for reply in replies) == list(range(2, 22))
    assert sentinel.primary_port() == sentinel.replicas[0].port
    assert (await client.server_identity()).replication_id != before


async def test_a_demoted_primary_is_left(sentinel: SentinelTopology, connect_to: Connect) -> None:
    client = await connect_to(sentinel.url, operation_timeout_ms=30_000)
    await count_once(client, "before")
    with sentinel.sentinels[0].client() as looker:
        looker.execute_command("SENTINEL", "FAILOVER", sentinel.name)
    wait_for(lambda: sentinel.primary_port() == sentinel.replicas[0].port, "the failover")
    # A sentinel demotes the old primary up to ten seconds later. Until then it takes writes that will be lost, which
    # is what `wait_replicas` is there for; here it happens at once.
    with sentinel.primary.client() as looker:
        looker.replicaof("127.0.0.1", sentinel.replicas[0].port)
    assert await count_once(client, "after") == [2]
    with sentinel.replicas[0].client() as looker:
        assert looker.scard(f"{SETTINGS}:seen") == 2


async def test_a_frozen_primary_is_left_before_the_operation_timeout(
    sentinel: SentinelTopology, connect_to: Connect
) -> None:
    client = await connect_to(sentinel.url, operation_timeout_ms=30_000, attempt_timeout_ms=200)
    await count_once(client, "before")
    sentinel.primary.pause()
    assert await count_once(client, "after") in ([1], [2])
    assert sentinel.primary_port() == sentinel.replicas[0].port


# -- durable writes -------------------------------------------------------------------------------------------

# Several attempts: one whose answer a loaded machine delays says less, and what an earlier one met is told.
WITHOUT_REPLICA = {"wait_replicas": 1, "operation_timeout_ms": 3_000, "attempt_timeout_ms": 500}


async def test_a_durable_write_is_on_the_replica_when_it_is_acknowledged(
    sentinel: SentinelTopology, connect_to: Connect
) -> None:
    client = await connect_to(sentinel.url, wait_replicas=1)
    for number in range(20):
        await count_once(client, str(number), durable=True)
        with sentinel.replicas[0].client() as looker:
            assert looker.scard(f"{SETTINGS}:seen") == number + 1


async def test_a_durable_write_without_its_replica_says_that_it_may_stand(
    sentinel: SentinelTopology, connect_to: Connect
) -> None:
    client = await connect_to(sentinel.url, **WITHOUT_REPLICA)
    sentinel.replicas[0].pause()
    with pytest.raises(StoreUnavailable, match="written, but fewer than 1 replicas have it"):
        await count_once(client, "a", durable=True)
    assert await count_once(client, "a") == [1]


async def test_a_repeated_durable_write_waits_for_the_first_one_too(
    sentinel: SentinelTopology, connect_to: Connect
) -> None:
    """The replay writes nothing itself; what it tells must be on the replica all the same."""
    first = await connect_to(sentinel.url)
    sentinel.replicas[0].pause()
    await count_once(first, "a")
    replay = await connect_to(sentinel.url, **WITHOUT_REPLICA)
    with pytest.raises(StoreUnavailable, match="fewer than 1 replicas"):
        await count_once(replay, "a", durable=True)
    sentinel.replicas[0].resume()
    patient = await connect_to(sentinel.url, wait_replicas=1)
    assert await count_once(patient, "a", durable=True) == [1]


async def test_plain_calls_do_not_wait_for_replicas(sentinel: SentinelTopology, connect_to: Connect) -> None:
    client = await connect_to(sentinel.url, wait_replicas=1)
    sentinel.replicas[0].pause()
    assert await count_once(client, "a") == [1]


async def test_the_replicas_own_address_is_refused(sentinel: SentinelTopology, connect_to: Connect) -> None:
    with pytest.raises(StoreUnusable, match="read-only replica"):
        await (await connect_to(sentinel.replicas[0].address)).check_server()
