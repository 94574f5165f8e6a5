"""What a replica tells the ledger, and how a lost ledger is made whole; without processes, on both backends."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.config import DiscoverySettings
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NotRebuilt, PuttingBack, StoreUnusable
from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.replica.membership import KEEPALIVE_TTL_MS, UNLISTED_MS, Membership
from scheduler.service import Services, build_services
from tests.conftest import OpenLedger
from tests.support.backends import Backend
from tests.support.clock import VirtualClock
from tests.support.servers import RedisServer

NODE_A = NodeAddress("node-a", "http://10.0.0.7:8000")
NODE_B = NodeAddress("node-b", "http://10.0.0.8:8000")


class Member:
    """A replica without its process."""

    def __init__(self, ledger: Ledger, name: str, settings: LedgerSettings, nodes: tuple[NodeAddress, ...]) -> None:
        self.ledger = ledger
        self.services: Services = build_services(ledger)
        self.membership = Membership(ledger, self.services, settings, DiscoverySettings(nodes=nodes), name)

    async def step(self) -> None:
        await self.membership.step()

    async def settings_shown(self) -> dict[str, Any]:
        return (await self.services.readiness.check()).settings

    async def listed(self) -> dict[str, tuple[str, DiscoveryState]]:
        return {node.node_id: (node.endpoint, node.discovery) for node in await self.ledger.nodes.list()}


class Members:
    """Makes replicas of one domain."""

    def __init__(self, open_ledger_on: OpenLedger, backend: Backend) -> None:
        self._open = open_ledger_on
        self._backend = backend

    async def new(self, name: str, *nodes: NodeAddress, **settings: Any) -> Member:
        return Member(await self._open(), name, LedgerSettings(**settings), nodes)

    async def empty_the_ledger(self) -> None:
        client = self._backend.client()
        await client.flushall()
        await client.aclose()


@pytest.fixture
def members(open_ledger_on: OpenLedger, backend: Backend) -> Members:
    return Members(open_ledger_on, backend)


async def test_a_replica_is_not_ready_on_a_server_that_cannot_be_written_and_says_why(
    private_server: RedisServer,
) -> None:
    ledger = await open_ledger(private_server.address)
    member = Member(ledger, "one", LedgerSettings(), ())
    with private_server.client() as client:
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnusable, match="read-only replica"):
            await member.step()
        with pytest.raises(StoreUnusable, match="read-only replica"):
            await member.services.readiness.check()
        client.replicaof("NO", "ONE")
    await member.step()
    assert (await member.settings_shown())["status"] == "written"
    await ledger.close()


async def test_a_server_that_may_lose_the_ledger_is_told_once(private_server: RedisServer) -> None:
    ledger = await open_ledger(private_server.address)
    member = Member(ledger, "one", LedgerSettings(), ())
    with private_server.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
        with capture_logs() as logs:
            await member.step()
            client.flushall()
            for _ in range(3):
                await member.step()
    await ledger.close()
    told = [line["problem"].partition(":")[0] for line in logs if line["event"] == "the server may lose the ledger"]
    assert told == ["maxmemory-policy is allkeys-lru", "appendonly is no"]


async def test_the_first_replica_writes_what_it_was_configured_with(members: Members) -> None:
    template = Template("base", 2, 4096)
    member = await members.new("one", NODE_A, strategy=Strategy.LEAST_LOADED, templates={"base": template})
    await member.step()
    assert member.membership.joined
    assert (await member.settings_shown())["status"] == "written"
    assert await member.listed() == {"node-a": (NODE_A.endpoint, DiscoveryState.ACTIVE)}
    assert await member.ledger.templates.get("base") == template


async def test_an_alike_replica_joins_and_changes_nothing(members: Members) -> None:
    await (await members.new("one", NODE_A)).step()
    second = await members.new("two", NODE_A)
    await second.step()
    assert (await second.settings_shown())["status"] == "same"


async def test_configured_nodes_are_added_and_moved_but_never_removed_or_woken(members: Members) -> None:
    first = await members.new("one", NODE_A, NODE_B)
    await first.step()
    await first.ledger.nodes.set("node-a", NODE_A.endpoint, DiscoveryState.LINGERING)
    moved = NodeAddress("node-a", "http://10.9.9.9:8000")
    await (await members.new("two", moved)).step()
    assert await first.listed() == {
        "node-a": (moved.endpoint, DiscoveryState.LINGERING),
        "node-b": (NODE_B.endpoint, DiscoveryState.ACTIVE),
    }


async def test_a_node_that_left_the_file_of_a_higher_revision_leaves_and_an_earlier_file_brings_it_back_no_more(
    members: Members,
) -> None:
    old = await members.new("old", NODE_A, NODE_B, revision=1)
    await old.step()
    await old.ledger.nodes.set("by-hand", "http://10.0.0.9:80", DiscoveryState.ACTIVE)
    await (await members.new("new", NODE_A, revision=2)).step()
    assert list(await old.listed()) == ["by-hand", "node-a"]
    for late in (old, await members.new("late", NODE_A, NODE_B, revision=1)):
        await late.step()
        assert list(await old.listed()) == ["by-hand", "node-a"], "a rolling change has replicas of both"
    await (await members.new("none", revision=3)).step()
    assert list(await old.listed()) == ["by-hand"]


async def test_a_node_that_left_the_file_stays_out_of_a_ledger_that_is_put_back(members: Members) -> None:
    await (await members.new("old", NODE_A, NODE_B, revision=1)).step()
    new = await members.new("new", NODE_A, revision=2)
    await new.step()
    await members.empty_the_ledger()
    await (await members.new("old again", NODE_A, NODE_B, revision=1)).step()
    await new.step()
    assert list(await new.listed()) == ["node-a"]


async def test_of_the_same_revision_a_file_replaces_another_when_no_other_replica_is_alive(
    members: Members, clock: VirtualClock
) -> None:
    await (await members.new("one", NODE_A, NODE_B)).step()
    second = await members.new("two", NODE_A)
    with capture_logs() as told:
        await second.step()
    assert list(await second.listed()) == ["node-a", "node-b"]
    (warning,) = [event for event in told if "stays listed" in event["event"]]
    assert warning["ids"] == ("node-b",)
    clock.advance(KEEPALIVE_TTL_MS + 1)
    await second.step()
    assert list(await second.listed()) == ["node-a"]


async def test_a_node_that_was_removed_by_hand_is_no_longer_one_of_the_file(members: Members) -> None:
    first = await members.new("one", NODE_A, NODE_B)
    await first.step()
    await first.ledger.nodes.remove("node-b")
    await first.ledger.nodes.set("node-b", "http://10.0.0.9:80", DiscoveryState.ACTIVE)
    await (await members.new("two", NODE_A, revision=1)).step()
    assert list(await first.listed()) == ["node-a", "node-b"]


async def test_a_file_of_many_nodes_is_taken_over_in_steps(members: Members) -> None:
    many = [NodeAddress(f"node-{number:03}", f"http://10.0.0.{number % 250}:80") for number in range(450)]
    await (await members.new("one", *many)).step()
    second = await members.new("two", *many[:225], revision=1)
    await second.step()
    assert list(await second.listed()) == [node.node_id for node in many[:225]]


def declared(*template_ids: str) -> dict[str, Template]:
    return {template_id: Template(template_id, 2, 4096) for template_id in template_ids}


async def test_a_template_that_left_the_file_leaves_by_the_rule_of_nodes(members: Members, clock: VirtualClock) -> None:
    async def known() -> list[str]:
        return sorted(template.template_id for template in (await old.ledger.templates.list())[0])

    old = await members.new("old", revision=1, templates=declared("base", "big", "taken"))
    await old.step()
    for template in declared("by-hand", "taken").values():
        await old.ledger.templates.put(template)
    second = await members.new("second", revision=1, templates=declared("base"))
    with capture_logs() as told:
        await second.step()
    assert await known() == ["base", "big", "by-hand", "taken"], "of the same revision the old one still runs"
    assert [event["ids"] for event in told if "stays listed" in event["event"]] == [("big",)]
    clock.advance(KEEPALIVE_TTL_MS + 1)
    await second.step()
    assert await known() == ["base", "by-hand", "taken"]
    new = await members.new("new", revision=2, templates={"base": Template("base", 8, 64), **declared("new")})
    await new.step()
    for late in (second, await members.new("late", revision=1, templates=declared("base", "big"))):
        late.membership._identity = None
        await late.step()
        assert await known() == ["base", "by-hand", "new", "taken"], "a rolling change has replicas of both"
    assert await old.ledger.templates.get("base") == Template("base", 8, 64)
    await (await members.new("none", revision=3)).step()
    assert await known() == ["by-hand", "taken"]


async def test_an_empty_list_of_nodes_replaces_nothing(members: Members) -> None:
    first = await members.new("one", NODE_A)
    await first.step()
    await (await members.new("two")).step()
    assert list(await first.listed()) == ["node-a"]


async def test_other_settings_of_the_same_revision_wait_until_no_other_replica_is_alive(
    members: Members, clock: VirtualClock
) -> None:
    first = await members.new("one", strategy=Strategy.RANDOM)
    await first.step()
    second = await members.new("two", strategy=Strategy.LEAST_LOADED)
    await second.step()
    assert not second.membership.joined
    with pytest.raises(StoreUnusable) as refused:
        await second.services.readiness.check()
    assert refused.value.facts["settings"]["differing"] == ["strategy"]
    clock.advance(KEEPALIVE_TTL_MS + 1)
    await second.step()
    assert (await second.settings_shown())["strategy"] == "least_loaded"


async def test_a_replica_that_leaves_is_waited_for_no_longer(members: Members) -> None:
    first = await members.new("one", strategy=Strategy.RANDOM)
    await first.step()
    await first.membership.leave()
    second = await members.new("two", strategy=Strategy.LEAST_LOADED)
    await second.step()
    assert (await second.settings_shown())["status"] == "written"


async def test_a_lower_revision_runs_on_the_ledgers_settings_and_a_change_is_noticed(members: Members) -> None:
    old = await members.new("old", strategy=Strategy.RANDOM, revision=1)
    await old.step()
    await (await members.new("new", strategy=Strategy.LEAST_LOADED, revision=2)).step()
    await old.step()
    shown = await old.settings_shown()
    assert (shown["status"], shown["strategy"], shown["differing"]) == ("adopted", "least_loaded", ["strategy"])


async def test_an_emptied_ledger_gets_back_what_replicas_remember_and_says_it_is_being_rebuilt(
    members: Members,
) -> None:
    member = await members.new("one", NODE_A)
    await member.step()
    await member.ledger.nodes.set("node-b", NODE_B.endpoint, DiscoveryState.LINGERING)
    await member.membership.remember_discovery()
    await members.empty_the_ledger()
    await member.step()
    assert await member.listed() == {
        "node-a": (NODE_A.endpoint, DiscoveryState.ACTIVE),
        "node-b": (NODE_B.endpoint, DiscoveryState.LINGERING),
    }
    assert (await member.settings_shown())["rebuilding"]
    with pytest.raises(NotRebuilt):
        await member.ledger.bindings.lookup("some-sandbox")


@pytest.mark.parametrize("remembers", [True, False], ids=["remembered", "told since"])
async def test_a_cordon_comes_back_to_its_process_and_to_no_other(
    members: Members, clock: VirtualClock, remembers: bool
) -> None:
    member = await members.new("one", NODE_A, NODE_B, report_ttl_ms=60_000)
    await member.step()
    for node in (NODE_A, NODE_B):
        await member.ledger.nodes.heartbeat(Heartbeat(node.node_id, "i-1"))
        await member.ledger.nodes.cordons.set(node.node_id, "i-1", cordoned=True)
    if remembers:
        await member.membership.remember_discovery()
        assert member.ledger.nodes.cordons.recent_changes == {}
    for _ in range(2):  # lost once more before anybody has reported
        await members.empty_the_ledger()
        await member.step()
        clock.advance(UNLISTED_MS)
        assert [node.cordoned for node in await member.ledger.nodes.list()] == [True, True]
        assert await recount(member.ledger) == []
        member.membership._remember_after = 0.0
        await member.membership.remember_discovery()
    await member.ledger.nodes.heartbeat(Heartbeat(NODE_A.node_id, "i-1"))
    await member.ledger.nodes.heartbeat(Heartbeat(NODE_B.node_id, "i-2"))
    assert {node.node_id: (node.cordoned, node.status.value) for node in await member.ledger.nodes.list()} == {
        "node-a": (True, "lingering"),
        "node-b": (False, "connecting"),
    }
    assert await recount(member.ledger) == []


async def test_an_uncordon_that_was_told_since_stands_above_what_is_remembered(members: Members) -> None:
    """Here another server took over, which lacks nothing but the last writes."""
    one, two = await members.new("one", NODE_A), await members.new("two", NODE_A)
    for member in (one, two):
        await member.step()
    await one.ledger.nodes.heartbeat(Heartbeat(NODE_A.node_id, "i-1"))
    await one.ledger.nodes.cordons.set(NODE_A.node_id, "i-1", cordoned=True)
    for member in (one, two):
        await member.membership.remember_discovery()
    await one.ledger.nodes.cordons.set(NODE_A.node_id, "i-1", cordoned=False)
    await two.ledger.nodes.cordons.put_back({NODE_A.node_id: "i-1"})  # what two remembers is older
    assert [node.cordoned for node in await one.ledger.nodes.list()] == [False]
    await one.ledger.nodes.cordons.put_back({NODE_A.node_id: "i-1"})
    assert [node.cordoned for node in await one.ledger.nodes.list()] == [False]


async def test_what_is_answered_while_a_replica_looks_for_lost_writes_is_no_loss(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await members.new("one", NODE_A)
    await one.step()
    command = one.ledger.client.command

    async def overtaken(*args: Any) -> Any:
        reply = await command(*args)
        if args[0] == "GET":  # a report is told its generation before this reply is read
            await one.ledger.nodes.heartbeat(Heartbeat(NODE_A.node_id, "i-1"))
        return reply

    monkeypatch.setattr(one.ledger.client, "command", overtaken)
    with capture_logs() as logs:
        await one.step()
        await one.step()
    assert not [line for line in logs if line["log_level"] == "warning"]


async def test_a_rebuilt_ledger_is_no_longer_said_to_be_rebuilding(
    members: Members, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await members.new("one", binding_ttl_ms=60_000)
    await member.step()
    await members.empty_the_ledger()
    await member.step()
    assert (await member.settings_shown())["rebuilding"]
    clock.advance(60_000)
    # Between its looks at the ledger, readiness goes by a clock of the process.
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 60)
    monkeypatch.setattr("scheduler.service.readiness.time", later)
    newcomer = await members.new("two", binding_ttl_ms=60_000)
    await newcomer.step()
    for each in (member, newcomer):
        assert not (await each.settings_shown())["rebuilding"]


async def test_a_replica_that_joined_unnoticed_puts_back_before_anything_is_decided(
    members: Members, clock: VirtualClock
) -> None:
    """The first heard last of its fellow members before the second joined, and finds the ledger lost before it does."""
    first = await members.new("one", NODE_A)
    await first.step()
    second = await members.new("two", NODE_A)
    await second.step()
    await members.empty_the_ledger()
    await first.step()
    clock.advance(UNLISTED_MS - 1)
    with pytest.raises(PuttingBack):
        await first.ledger.bindings.record("some-sandbox", NODE_A)
    await second.step()
    assert second.membership.joined
    clock.advance(1)
    await first.ledger.bindings.record("some-sandbox", NODE_A)


async def test_templates_declared_to_the_ledger_come_back_and_do_not_undo_what_was_said_since(
    members: Members,
) -> None:
    member = await members.new("one", templates={"configured": Template("configured", 1, 1024)})
    await member.step()
    for template_id in ("base", "large"):
        await member.ledger.templates.put(Template(template_id, 2, 4096))
    await member.membership.remember_discovery()
    await members.empty_the_ledger()
    other = await members.new("two")
    await other.step()
    await other.ledger.templates.put(Template("large", 8, 16_384))
    await member.step()
    found, _ = await member.ledger.templates.list()
    assert set(found) == {
        Template("base", 2, 4096),
        Template("configured", 1, 1024),
        Template("large", 8, 16_384),
    }


async def test_the_memory_survives_that_another_replica_was_quicker_to_make_the_ledger_anew(members: Members) -> None:
    member, other = await members.new("one"), await members.new("two")
    await member.step()
    await member.ledger.nodes.set("node-b", NODE_B.endpoint, DiscoveryState.ACTIVE)
    await member.membership.remember_discovery()
    await members.empty_the_ledger()
    await other.step()  # it never saw node-b, and makes a ledger without it
    member.membership._remember_after = 0.0
    await member.membership.remember_discovery()
    await member.step()
    assert list(await member.listed()) == ["node-b"]


async def test_a_second_replica_of_a_rebuilt_ledger_finds_it_as_it_should_be(members: Members) -> None:
    first, second = await members.new("one", NODE_A), await members.new("two", NODE_A)
    for member in (first, second):
        await member.step()
    await members.empty_the_ledger()
    for member in (first, second, first, second):
        await member.step()
        assert member.membership.joined
    assert list(await first.listed()) == ["node-a"]


async def test_a_replica_is_not_ready_while_the_settings_name_what_it_does_not_know(
    members: Members, backend: Backend
) -> None:
    member = await members.new("a", NODE_A)
    await member.step()
    client: Any = backend.client()
    await client.hset(member.ledger.keys.settings, mapping={"strategy": "binpack", "revision": "1"})
    with pytest.raises(StoreUnusable, match="binpack"):
        await member.step()
    with pytest.raises(StoreUnusable, match="strategy is 'binpack', which this version does not know"):
        await member.settings_shown()
    await client.hset(member.ledger.keys.settings, mapping={"strategy": "round_robin", "revision": "0"})
    await client.aclose()
    await member.step()
    assert (await member.settings_shown())["strategy"] == "round_robin"
