"""What replicas do when the server comes back, or another one took over: nothing is decided before they looked."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler import deadline
from scheduler.config import DiscoverySettings
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes, NotRebuilt, PuttingBack, StoreUnavailable
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.replica.membership import UNLISTED_MS, Membership
from scheduler.service import build_services
from tests.replicas.conftest import StartServer
from tests.support.clock import VirtualClock
from tests.support.servers import RedisServer, free_port

ONE_CPU = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, cpu_count=1, memory_mb=1))
NODE = NodeAddress("node-a", "http://10.0.0.7:8000")
# Sweeping, silence and expiry are none of these tests' business.
SETTINGS = LedgerSettings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=600_000)


class Member:
    """A replica without its process."""

    def __init__(self, ledger: Ledger, name: str, clock: VirtualClock, settings: LedgerSettings = SETTINGS) -> None:
        self.ledger = ledger
        self.clock = clock
        self.membership = Membership(ledger, build_services(ledger), settings, DiscoverySettings(nodes=(NODE,)), name)

    async def join(self) -> None:
        """Joins, and lets the time pass in which members that no list names may speak up."""
        await self.membership.step()
        assert self.membership.joined
        self.clock.advance(UNLISTED_MS)

    async def report(self, allocated_cpu: int = 0) -> None:
        snapshot = NodeSnapshot(NodeStatus.READY, cpu_count=8, memory_total_bytes=2**36, allocated_cpu=allocated_cpu)
        await self.ledger.nodes.heartbeat(Heartbeat(NODE.node_id, "one", snapshot=snapshot))

    async def place(self) -> None:
        await self.ledger.placements.schedule(ONE_CPU)


class Members:
    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._clock = VirtualClock()
        self.ledgers: list[Ledger] = []

    async def new(self, name: str, settings: LedgerSettings = SETTINGS) -> Member:
        ledger = await open_ledger(self._server.url, clock=self._clock)
        self.ledgers.append(ledger)
        return Member(ledger, name, self._clock, settings)


@pytest.fixture
def server(start_server: StartServer) -> RedisServer:
    return start_server(persistence="always")


@pytest.fixture
async def members(server: RedisServer) -> AsyncIterator[Members]:
    made = Members(server)
    yield made
    for ledger in made.ledgers:
        await ledger.close()


class Past:
    """The server's log as it was at one moment, to come back to."""

    def __init__(self, server: RedisServer, directory: Path) -> None:
        self._server = server
        self._kept = Path(shutil.copytree(server.directory / "appendonlydir", directory / "older"))

    def come_back(self) -> None:
        self._server.kill()
        shutil.rmtree(self._server.directory / "appendonlydir")
        shutil.copytree(self._kept, self._server.directory / "appendonlydir")
        self._server.restart()


def restart(server: RedisServer) -> None:
    server.kill()
    server.restart()


async def test_a_server_that_lost_nothing_admits_soon_and_reads_stay_cautious(
    server: RedisServer, members: Members
) -> None:
    member = await members.new("one")
    await member.join()
    await member.report()
    await member.place()
    restart(server)
    await member.join()
    await member.place()
    with pytest.raises(NotRebuilt):
        await member.ledger.bindings.lookup("nobody")


async def test_nothing_is_answered_by_another_server_before_the_replica_has_checked_it(
    server: RedisServer, members: Members
) -> None:
    member = await members.new("one")
    await member.join()
    await member.report()
    restart(server)
    with deadline.within(1), pytest.raises(StoreUnavailable, match="another server took over"):
        await member.place()
    assert member.ledger.client.guard.check_requested.is_set()
    await member.join()
    assert not member.ledger.client.guard.check_requested.is_set()
    await member.place()


async def test_connections_of_before_are_no_obstacle_when_the_same_server_goes_on_with_another_history(
    server: RedisServer, members: Members
) -> None:
    """It was a replica for a moment: its process and its connections live on, and what they heard of it is over."""
    member = await members.new("one")
    await member.join()
    await member.report()
    await asyncio.gather(*(member.place() for _ in range(6)))
    with server.client() as admin:
        admin.replicaof("127.0.0.1", str(free_port()))
        admin.replicaof("NO", "ONE")
    await member.join()
    with deadline.within(5):
        await asyncio.gather(*(member.report() for _ in range(8)))


async def test_a_tool_that_never_joined_is_not_held_back(server: RedisServer, members: Members) -> None:
    member, tool = await members.new("one"), await members.new("tool")
    await member.join()
    await tool.report()
    restart(server)
    await tool.place()


async def test_a_node_of_a_rolled_back_ledger_admits_only_after_it_has_reported(
    server: RedisServer, members: Members, tmp_path: Path
) -> None:
    member = await members.new("one")
    await member.join()
    await member.report()
    past = Past(server, tmp_path)
    await member.place()
    past.come_back()
    await member.join()
    with pytest.raises(NoNodes) as refusal:
        await member.place()
    assert {reason: count for reason, count in refusal.value.reasons.items() if count} == {"not_ready": 1}
    await member.report(allocated_cpu=8)
    with pytest.raises(NoNodes) as refusal:
        await member.place()
    assert refusal.value.reasons["insufficient_cpu"] == 1
    await member.report(allocated_cpu=7)
    await member.place()


async def test_a_replica_that_recovers_later_does_not_make_nodes_wait_again(
    server: RedisServer, members: Members, tmp_path: Path
) -> None:
    first, second = await members.new("one"), await members.new("two")
    await first.join()
    await second.join()
    await first.report()
    past = Past(server, tmp_path)
    await first.place()
    await second.place()
    past.come_back()
    await first.join()
    with pytest.raises(PuttingBack):
        await first.report()
    await second.join()
    await first.report()
    await second.membership.step()
    await second.place()


async def test_a_replica_that_saw_a_later_sequence_than_the_first_makes_nodes_wait(
    server: RedisServer, members: Members, tmp_path: Path
) -> None:
    first, second = await members.new("one"), await members.new("two")
    await first.join()
    await second.join()
    await first.report()
    past = Past(server, tmp_path)
    await second.place()
    past.come_back()
    await first.join()
    await second.join()
    with pytest.raises(NoNodes):
        await first.place()


async def test_waiting_outlives_new_settings_and_a_drain(server: RedisServer, members: Members, tmp_path: Path) -> None:
    member = await members.new("one")
    await member.join()
    await member.report()
    past = Past(server, tmp_path)
    await member.place()
    past.come_back()
    await member.join()
    for state in (DiscoveryState.LINGERING, DiscoveryState.ACTIVE):
        await member.ledger.nodes.set(NODE.node_id, NODE.endpoint, state)
    newer = LedgerSettings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=500_000, revision=2)
    await (await members.new("newer", newer)).join()
    with pytest.raises(NoNodes):
        await member.place()
    await member.report()
    await member.place()


async def test_nodes_set_through_a_replica_outlive_a_ledger_emptied_the_next_moment(
    server: RedisServer, members: Members
) -> None:
    """Before any look at the list: what was acknowledged is put back by who acknowledged it."""
    member = await members.new("one")
    await member.join()
    await member.membership.remember_discovery()
    for node_id in ("node-b", "node-c"):
        await member.ledger.nodes.set(node_id, f"http://{node_id}:8000", DiscoveryState.LINGERING)
    await member.ledger.nodes.remove("node-c")
    server.flush()
    await member.join()
    listed = {node.node_id: node.discovery for node in await member.ledger.nodes.list()}
    assert listed == {"node-a": DiscoveryState.ACTIVE, "node-b": DiscoveryState.LINGERING}


async def test_what_was_remembered_with_the_list_is_not_kept_twice(members: Members) -> None:
    member = await members.new("one")
    await member.join()
    await member.ledger.nodes.set("node-b", "http://node-b:8000", DiscoveryState.ACTIVE)
    await member.membership.remember_discovery()
    assert member.ledger.nodes.recent_changes == {}
