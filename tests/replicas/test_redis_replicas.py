"""A Redis replica that durable writes wait for goes and comes back; without processes, on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from scheduler.connection.options import StoreOptions
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import BatchRequest, Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import StoreUnavailable
from scheduler.ledger.ledger import open_ledger
from tests.replicas.test_membership import Member
from tests.support.servers import RedisServer

NODE_A = NodeAddress("node-a", "http://10.0.0.7:8000")
CREATION = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64), Lifecycle.EXPLICIT)


@pytest.fixture
def follower(private_server: RedisServer) -> RedisServer:
    """A Redis replica of the private server, to be started."""
    with private_server.client() as client:
        client.config_set("repl-diskless-sync-delay", "0")
    return RedisServer(["--replicaof", "127.0.0.1", str(private_server.port)])


@pytest.fixture
async def member(private_server: RedisServer, follower: RedisServer) -> AsyncIterator[Member]:
    """A replica that waits for one Redis replica, which is online."""
    options = StoreOptions(wait_replicas=1, operation_timeout_ms=1_000)
    with follower:
        ledger = await open_ledger(private_server.address, options=options)
        member = Member(ledger, "one", LedgerSettings(), (NODE_A,))
        await step_until_online(member, 1)
        yield member
        await ledger.close()


async def step_until_online(member: Member, count: int) -> None:
    async with asyncio.timeout(60):
        while not member.membership.joined or member.ledger.client.replicas.online != count:
            try:
                await member.step()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


def page(member: Member) -> str:
    return member.services.overview.page().decode()


async def test_without_its_redis_replica_nothing_is_placed_or_held_and_everybody_is_told(
    member: Member, follower: RedisServer
) -> None:
    placement, replicas = member.services.placement, member.ledger.client.replicas
    first, second = [(await placement.schedule(CREATION)).reservation for _ in range(2)]
    assert first is not None
    assert second is not None
    assert (await member.services.readiness.check()).redis_replicas == {"online": 1, "wanted": 1}

    follower.kill()
    with capture_logs() as log:
        await step_until_online(member, 0)
        await member.step()
    [warning] = [line for line in log if line["log_level"] == "warning"]
    assert warning["event"] == "too few Redis replicas are online for durability.wait_replicas; nothing is placed"
    assert (warning["online"], warning["wanted"]) == (0, 1)
    readiness = await member.services.readiness.check()
    assert readiness.redis_replicas == {"online": 0, "wanted": 1}

    for refused in (placement.schedule(CREATION), placement.schedule_batch(BatchRequest((CREATION, CREATION)))):
        with pytest.raises(StoreUnavailable, match="not written, since fewer than 1 replicas are online"):
            await refused
    [held] = await member.ledger.reservations.tally()
    assert (held.count, held.state) == (2, ReservationState.PENDING)
    await placement.schedule(ScheduleRequest())  # reserves nothing, so it waits for nobody

    for written in (
        member.services.reservations.cancel(first.reservation_id),
        member.services.reservations.confirm(second.reservation_id, "sandbox-2"),
    ):
        with pytest.raises(StoreUnavailable, match="written, but fewer than 1 replicas have it"):
            await written
    states = [(await member.ledger.reservations.get(each.reservation_id)).state for each in (first, second)]
    assert states == [ReservationState.CANCELLED, ReservationState.CONFIRMED]

    with capture_logs() as log:
        follower.restart()
        await step_until_online(member, 1)
        await member.step()
    assert [line["event"] for line in log if "Redis replicas" in line["event"]] == [
        "enough Redis replicas are online again"
    ]
    assert not replicas.too_few
    assert (await placement.schedule(CREATION)).reservation is not None


async def test_the_metrics_tell_how_many_are_online_and_wanted(member: Member, follower: RedisServer) -> None:
    def shown() -> dict[str, str]:
        lines = (line.partition(" ") for line in page(member).splitlines())
        return {name.removeprefix("agentenv_scheduler_"): value for name, _, value in lines if "redis_replicas" in name}

    assert shown() == {"redis_replicas": "1.0", "redis_replicas_wanted": "1.0"}
    follower.kill()
    await step_until_online(member, 0)
    assert shown() == {"redis_replicas": "0.0", "redis_replicas_wanted": "1.0"}


async def test_a_replica_that_waits_for_none_shows_none(private_server: RedisServer) -> None:
    ledger = await open_ledger(private_server.address)
    member = Member(ledger, "one", LedgerSettings(), (NODE_A,))
    await member.step()
    assert (await member.services.readiness.check()).redis_replicas is None
    assert "\nagentenv_scheduler_redis_replicas" not in page(member)
    assert (await member.services.placement.schedule(CREATION)).reservation is not None
    await ledger.close()
