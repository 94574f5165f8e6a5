"""A server that refuses commands or writes: it is noticed, named, and no script is stopped half-way by it twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.config import DiscoverySettings
from scheduler.connection import permissions
from scheduler.connection.options import StoreOptions
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import CommandsWithheld, NoNodes, StoreUnavailable, WritesRefused
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.replica.membership import Membership
from scheduler.service import Services, build_services
from tests.conftest import OpenLedger
from tests.support.recount import assert_ledger_is_sound
from tests.support.servers import RedisServer
from tests.upgrade.old_ledger import contents

SETTINGS = LedgerSettings(strategy=Strategy.LEAST_LOADED)


class Replica:
    """A replica without its process, on a server of its own."""

    def __init__(self, server: RedisServer, ledger: Ledger) -> None:
        self.server, self.ledger = server, ledger
        self.services: Services = build_services(ledger)
        self.membership = Membership(ledger, self.services, SETTINGS, DiscoverySettings(), "replica")

    async def node(self, node_id: str) -> None:
        await self.ledger.nodes.set(node_id, f"http://{node_id}", DiscoveryState.ACTIVE)
        snapshot = NodeSnapshot(status=NodeStatus.READY, cpu_count=16, memory_total_bytes=2**36)
        await self.ledger.nodes.heartbeat(Heartbeat(node_id, "run", sequence=1, snapshot=snapshot))

    async def place(self, key: str = "") -> Any:
        hint = Hint(HintKind.COLD_SANDBOX, 8, 1024)
        return await self.services.placement.schedule(ScheduleRequest(hint, idempotency_key=key or None))

    def tell(self, *command: str) -> None:
        with self.server.client() as admin:
            admin.execute_command(*command)

    async def contents(self) -> dict[str, Any]:
        async def all_of() -> dict[str, Any]:
            import redis.asyncio

            client = redis.asyncio.Redis(host="127.0.0.1", port=self.server.port, decode_responses=True)
            try:
                return await contents(client, self.ledger.keys)
            finally:
                await client.aclose()

        return await all_of()


@pytest.fixture
async def replica(private_server: RedisServer) -> AsyncIterator[Replica]:
    options = StoreOptions(operation_timeout_ms=1_000)
    ledger = await open_ledger(f"redis://scheduler:word@{private_server.address}", domain="d", options=options)
    with private_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "scheduler", "on", ">word", "~*", "+@all")
    made = Replica(private_server, ledger)
    yield made
    await ledger.close()


async def test_a_command_that_is_withheld_is_named_before_the_first_script(replica: Replica) -> None:
    replica.tell("ACL", "SETUSER", "scheduler", "-zadd", "-zpopmin")
    with pytest.raises(CommandsWithheld, match="withholds zadd, zpopmin"):
        await replica.membership.step()
    assert await replica.contents() == {}
    with pytest.raises(StoreUnavailable, match="withholds zadd, zpopmin"):
        await replica.services.readiness.check()
    replica.tell("ACL", "SETUSER", "scheduler", "+@all")
    await replica.membership.step()
    await replica.services.readiness.check()


async def test_after_one_refusal_nothing_is_written_until_the_command_is_granted(replica: Replica) -> None:
    await replica.membership.step()
    await replica.node("a")
    await replica.node("b")
    replica.tell("ACL", "SETUSER", "scheduler", "-zadd")
    with pytest.raises(CommandsWithheld):
        await replica.place("first")
    before = await replica.contents()
    with pytest.raises(CommandsWithheld, match="zadd"):
        await replica.place("second")
    with pytest.raises(CommandsWithheld, match="zadd"):
        await replica.services.readiness.check()
    with pytest.raises(CommandsWithheld, match="zadd"):
        await replica.membership.step()
    assert await replica.contents() == before
    replica.tell("ACL", "SETUSER", "scheduler", "+zadd")
    await replica.place("second")
    await replica.services.readiness.check()


@pytest.mark.parametrize(
    ("setting", "bad", "good", "told"),
    [
        ("min-replicas-to-write", "1", "0", "fewer replicas"),
        ("maxmemory", "1", "0", "maxmemory"),
    ],
)
async def test_a_replica_is_not_ready_while_writes_are_refused(
    setting: str, bad: str, good: str, told: str, replica: Replica
) -> None:
    await replica.membership.step()
    await replica.services.readiness.check()
    replica.tell("CONFIG", "SET", setting, bad)
    with pytest.raises(WritesRefused, match=told):
        await replica.membership.step()
    with pytest.raises(WritesRefused, match=told):
        await replica.services.readiness.check()
    replica.tell("CONFIG", "SET", setting, good)
    await replica.membership.step()
    await replica.services.readiness.check()


async def test_a_refused_placement_is_enough_to_notice(replica: Replica) -> None:
    await replica.membership.step()
    await replica.node("a")
    replica.tell("CONFIG", "SET", "min-replicas-to-write", "1")
    with pytest.raises(StoreUnavailable):
        await replica.place()
    with pytest.raises(WritesRefused, match="fewer replicas"):
        await replica.services.readiness.check()


async def test_commands_are_tried_where_the_server_cannot_be_asked(ledger: Ledger, backend: Any) -> None:
    client = backend.client()
    before = await contents(client, ledger.keys)
    await ledger.client.pipeline(permissions.trial(ledger.keys))
    assert await contents(client, ledger.keys) == before
    await client.aclose()


async def test_a_command_that_is_refused_when_tried_is_named(replica: Replica) -> None:
    replica.tell("ACL", "SETUSER", "scheduler", "-zpopmin")
    with pytest.raises(CommandsWithheld, match="zpopmin"):
        await replica.ledger.client.pipeline(permissions.trial(replica.ledger.keys))


async def test_the_embedded_ledger_is_proven_as_well(open_ledger_on: OpenLedger) -> None:
    ledger = await open_ledger_on(SETTINGS)
    await ledger.client.prove_commands(ledger.keys.settings)
    with pytest.raises(NoNodes):
        await ledger.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 1)))
    await assert_ledger_is_sound(ledger)
