"""AgentENV's own binding keys beside the ledger, as its query-only replicas read them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from scheduler.domain.settings import LedgerSettings
from scheduler.errors import StoreUnavailable
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.upstream_bindings import UpstreamBindings
from scheduler.replica.upstream import LEASE_TTL_MS, refreshing
from scheduler.service import build_services
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import BINDING_TTL_MS, GRACE_MS, REPORT_TTL_MS, Cluster, address, event
from tests.support.backends import Backend
from tests.support.clock import VirtualClock

HOUR_MS = 3_600_000


class Reader:
    """What AgentENV's query-only replica does with the keys, and what one may want to know about them."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.client = client

    async def lookup(self, sandbox_id: str) -> tuple[str, str] | None:
        """Node and endpoint; malformed text, a blank node or a blank endpoint reads as a miss."""
        try:
            node = json.loads(await self.client.get(self.sandbox(sandbox_id)) or "null")["node"]
        except (ValueError, TypeError, KeyError):
            return None
        return (node["node_id"], node["endpoint"]) if node["node_id"] and node["endpoint"] else None

    async def ttl_ms(self, sandbox_id: str) -> int:
        return int(await self.client.pttl(self.sandbox(sandbox_id)))

    async def of_node(self, node_id: str) -> set[str]:
        return {str(each) for each in await self.client.smembers(f"agentenv:scheduler:bindings:node:{node_id}")}

    async def expire(self, sandbox_id: str) -> None:
        """The TTL of one key is over; the clock of a test moves the ledger's time only."""
        await self.client.delete(self.sandbox(sandbox_id))

    @staticmethod
    def sandbox(sandbox_id: str) -> str:
        return f"agentenv:scheduler:bindings:sandbox:{sandbox_id}"


def at(node_id: str) -> tuple[str, str]:
    return node_id, address(node_id).endpoint


@pytest.fixture
async def ledger(open_ledger_on: OpenLedger) -> Ledger:
    return await open_ledger_on(LedgerSettings(), upstream_bindings=True)


@pytest.fixture
async def reader(backend: Backend) -> AsyncIterator[Reader]:
    client = backend.client()
    yield Reader(client)
    await client.aclose()


def mirror(ledger: Ledger) -> UpstreamBindings:
    assert ledger.upstream_bindings is not None
    return ledger.upstream_bindings


# -- at once ----------------------------------------------------------------------------------------------------


async def test_an_assignment_is_there_in_agentenvs_words(cluster: Cluster, reader: Reader) -> None:
    await cluster.add()
    await cluster.record("s1")
    text = await reader.client.get("agentenv:scheduler:bindings:sandbox:s1")
    assert text is not None
    assert json.loads(text) == {"node": {"node_id": "a", "endpoint": "http://a:8000"}}
    assert BINDING_TTL_MS - 30_000 < await reader.ttl_ms("s1") <= BINDING_TTL_MS
    assert await reader.of_node("a") == {"s1"}
    reverse_ttl_ms = await reader.client.pttl("agentenv:scheduler:bindings:node:a")
    assert HOUR_MS - 30_000 < reverse_ttl_ms <= HOUR_MS


async def test_a_confirm_is_there_and_a_late_one_too(cluster: Cluster, reader: Reader) -> None:
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=1_000)
    cluster.wait(1_000)
    await cluster.confirm(reservation)
    assert await reader.lookup("s1") == at("a")
    await reader.expire("s1")
    await cluster.confirm(reservation)
    assert await reader.lookup("s1") == at("a"), "also a replay may be the first that gets this far"


async def test_a_roster_adds_and_removes(cluster: Cluster, reader: Reader) -> None:
    await cluster.add()
    await cluster.report("a", ("s1", "s2"))
    await cluster.report("a", ("s2", "s3"))
    assert [await reader.lookup(each) for each in ("s1", "s2", "s3")] == [None, at("a"), at("a")]
    assert await reader.of_node("a") == {"s2", "s3"}
    await cluster.report("a", ())
    assert await reader.of_node("a") == set()


async def test_a_roster_of_many_is_written_in_slices(cluster: Cluster, reader: Reader) -> None:
    await cluster.add()
    roster = tuple(f"s{number}" for number in range(1_200))
    await cluster.report("a", roster)
    assert await reader.of_node("a") == set(roster)
    assert await reader.lookup("s1199") == at("a")


async def test_a_sandbox_that_moves_is_moved_in_both_reverse_sets(cluster: Cluster, reader: Reader) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1", "s2"))
    await cluster.record("s2", "b")
    cluster.wait(REPORT_TTL_MS + 1)
    await cluster.report("b", ("s1", "s2"))
    assert [await reader.lookup(each) for each in ("s1", "s2")] == [at("b"), at("b")]
    assert (await reader.of_node("a"), await reader.of_node("b")) == (set(), {"s1", "s2"})


async def test_an_unregistered_node_leaves_nothing_of_its_own(cluster: Cluster, reader: Reader) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.report("a", ("s1",))
    await cluster.record("s2", "a")
    await cluster.report("b", ("s3",))
    await cluster.services.nodes.unregister("a", "run-1")
    assert [await reader.lookup(each) for each in ("s1", "s2", "s3")] == [None, None, at("b")]
    assert await reader.of_node("a") == set()


async def test_a_delete_event_takes_the_key_with_it(cluster: Cluster, reader: Reader) -> None:
    await cluster.add()
    await cluster.report("a", ("s1", "s2"))
    await cluster.tell("a", event("delete", "s1"))
    assert [await reader.lookup(each) for each in ("s1", "s2")] == [None, at("a")]


async def test_a_key_that_names_another_node_is_left_alone(cluster: Cluster, reader: Reader) -> None:
    """Somebody else wrote it, a scheduler of AgentENV's on the same server for instance."""
    await cluster.add("a")
    await cluster.report("a", ("s1", "s2"))
    foreign = '{"node":{"node_id":"elsewhere","endpoint":"http://elsewhere:8000"}}'
    await reader.client.set(reader.sandbox("s1"), foreign)
    await reader.client.set(reader.sandbox("s2"), "not JSON")
    await cluster.report("a", ())
    assert await reader.lookup("s1") == ("elsewhere", "http://elsewhere:8000")
    assert await reader.client.get(reader.sandbox("s2")) == "not JSON"
    assert await reader.of_node("a") == set()


async def test_recording_over_malformed_text_works(cluster: Cluster, reader: Reader) -> None:
    await cluster.add()
    await reader.client.set(reader.sandbox("s1"), "not JSON")
    await cluster.record("s1")
    assert await reader.lookup("s1") == at("a")


# -- refreshed --------------------------------------------------------------------------------------------------


async def test_what_stands_is_written_again(cluster: Cluster, ledger: Ledger, reader: Reader) -> None:
    await cluster.add()
    roster = tuple(f"s{number}" for number in range(600))
    await cluster.report("a", roster)
    await cluster.record("assigned")
    for sandbox_id in (*roster, "assigned"):
        await reader.expire(sandbox_id)
    assert await mirror(ledger).refresh() == BINDING_TTL_MS
    assert [await reader.lookup(each) for each in ("s0", "s599", "assigned")] == [at("a")] * 3


async def test_a_key_lives_no_longer_than_its_binding(cluster: Cluster, ledger: Ledger, reader: Reader) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    cluster.wait(BINDING_TTL_MS - 60_000)
    await mirror(ledger).refresh()
    assert 0 < await reader.ttl_ms("s1") <= 60_000
    await cluster.report("a", ("s1",))
    await mirror(ledger).refresh()
    assert await reader.ttl_ms("s1") > 60_000


async def test_what_ended_by_itself_goes_with_the_next_round(cluster: Cluster, ledger: Ledger, reader: Reader) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place())
    await cluster.record("s2")
    for _ in range(2):
        cluster.wait(GRACE_MS)
        await cluster.report("a", ())  # one is gone, the other was never listed: no roster changed
    assert await cluster.node_of("s1") is None
    await mirror(ledger).refresh()
    assert [await reader.lookup(each) for each in ("s1", "s2")] == [None, None]
    assert await reader.of_node("a") == set()


async def test_an_endpoint_that_moved_is_written_with_the_next_round(
    cluster: Cluster, ledger: Ledger, reader: Reader
) -> None:
    await cluster.add()
    await cluster.report("a", ("s1",))
    await ledger.nodes.set("a", "http://10.0.0.9:8000", (await ledger.nodes.get("a")).discovery)
    await mirror(ledger).refresh()
    assert await reader.lookup("s1") == ("a", "http://10.0.0.9:8000")


async def test_any_number_of_replicas_may_refresh(
    cluster: Cluster, ledger: Ledger, open_ledger_on: OpenLedger, reader: Reader
) -> None:
    other = await open_ledger_on(upstream_bindings=True)
    await cluster.add()
    await cluster.report("a", ("s1", "s2"))
    for _ in range(2):
        await mirror(ledger).refresh()
        await mirror(other).refresh()
    assert [await reader.lookup(each) for each in ("s1", "s2")] == [at("a"), at("a")]
    assert await reader.of_node("a") == {"s1", "s2"}


async def test_one_replica_refreshes_and_who_takes_over_begins_at_once(
    ledger: Ledger, open_ledger_on: OpenLedger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await open_ledger_on(upstream_bindings=True)
    rounds: list[str] = []
    seconds = [0.0]

    def counting(name: str, replica: Ledger) -> None:
        async def refresh() -> int:
            rounds.append(name)
            return BINDING_TTL_MS

        monkeypatch.setattr(mirror(replica), "refresh", refresh)

    counting("first", ledger)
    counting("second", other)
    first = refreshing(mirror(ledger), ledger.leases, "r1", lambda: seconds[0])
    second = refreshing(mirror(other), other.leases, "r2", lambda: seconds[0])
    for seconds[0] in (0.0, 2.0, 59.9):
        await first()
        await second()
    assert rounds == ["first"]
    seconds[0] = 60.0
    await first()
    assert rounds == ["first", "first"]
    clock.advance(LEASE_TTL_MS)
    await second()
    await first()
    assert rounds == ["first", "first", "second"]


# -- in trouble -------------------------------------------------------------------------------------------------


async def test_what_moves_while_it_is_written_is_written_as_it_is_in_the_end(
    cluster: Cluster, ledger: Ledger, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading the ledger and writing the key another replica moves the sandbox, and is done first."""
    await cluster.add("a")
    await cluster.add("b")
    await cluster.record("s1", "a")
    upstream, moved = mirror(ledger), False
    writing = upstream._write

    async def overtaken(bound: object) -> None:
        nonlocal moved
        if not moved:
            moved = True
            await cluster.record("s1", "b")
        await writing(bound)  # type: ignore[arg-type]

    monkeypatch.setattr(upstream, "_write", overtaken)
    await upstream.follow(["s1"])
    assert await reader.lookup("s1") == at("b")
    assert (await reader.of_node("a"), await reader.of_node("b")) == (set(), {"s1"})


async def test_trouble_with_these_keys_fails_nobodys_request(
    cluster: Cluster, ledger: Ledger, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(commands: object) -> None:
        raise StoreUnavailable("no")

    await cluster.add()
    with monkeypatch.context() as patched:
        patched.setattr(mirror(ledger), "_write", refused)
        await cluster.record("s1")
        await cluster.report("a", ("s1",))
        with pytest.raises(StoreUnavailable):
            await mirror(ledger).refresh()
    assert mirror(ledger).lapses == 2
    assert await reader.lookup("s1") is None
    await mirror(ledger).refresh()
    assert await reader.lookup("s1") == at("a")


async def test_without_being_asked_for_nothing_of_it_is_written(
    open_ledger_on: OpenLedger, clock: VirtualClock, reader: Reader
) -> None:
    plain = await open_ledger_on(LedgerSettings())
    cluster = Cluster(build_services(plain), clock)
    await cluster.add()
    await cluster.record("s1")
    await cluster.report("a", ("s1", "s2"))
    assert plain.upstream_bindings is None
    assert [key async for key in reader.client.scan_iter("agentenv:*")] == []
