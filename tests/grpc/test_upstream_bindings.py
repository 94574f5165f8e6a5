"""AgentENV's own binding keys beside the ledger, as its query-only replicas read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis.asyncio

from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.settings import LedgerSettings
from scheduler.replica.upstream import following
from scheduler.store.ledger import Ledger
from scheduler.store.upstream_bindings import UpstreamBindings
from tests.conftest import OpenLedger
from tests.support.backends import Backend
from tests.support.clock import VirtualClock

A = NodeAddress("a", "http://a:8000")
B = NodeAddress("b", "http://b:8000")
TTL_MS = 180_000


class Upstream:
    """What AgentENV's query-only replica would find."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def lookup(self, sandbox_id: str) -> Any:
        text = await self._client.get(f"agentenv:scheduler:bindings:sandbox:{sandbox_id}")
        return None if text is None else json.loads(text)

    async def ttl_ms(self, sandbox_id: str) -> int:
        return int(await self._client.pttl(f"agentenv:scheduler:bindings:sandbox:{sandbox_id}"))

    async def of_node(self, node_id: str) -> set[str]:
        return set(await self._client.smembers(f"agentenv:scheduler:bindings:node:{node_id}"))

    async def close(self) -> None:
        await self._client.aclose()


@pytest.fixture
async def ledger(open_ledger_on: OpenLedger) -> Ledger:
    opened = await open_ledger_on(LedgerSettings(binding_ttl_ms=TTL_MS), upstream_bindings=True)
    await opened.nodes.replace([A, B], [])
    return opened


@pytest.fixture
async def upstream(backend: Backend) -> Any:
    found = Upstream(backend.client())
    yield found
    await found.close()


def mirror(ledger: Ledger) -> UpstreamBindings:
    assert ledger.upstream_bindings is not None
    return ledger.upstream_bindings


async def report(ledger: Ledger, node_id: str, *sandbox_ids: str) -> None:
    snapshot = NodeSnapshot(status=NodeStatus.READY)
    await ledger.nodes.heartbeat(Heartbeat(node_id, "i", snapshot=snapshot, sandbox_ids=sandbox_ids))


async def test_an_assignment_is_there_at_once_in_agentenvs_words(ledger: Ledger, upstream: Upstream) -> None:
    await ledger.bindings.record("s1", A)
    assert await upstream.lookup("s1") == {"node": {"node_id": "a", "endpoint": "http://a:8000"}}
    assert TTL_MS - 5_000 < await upstream.ttl_ms("s1") <= TTL_MS
    assert await upstream.of_node("a") == {"s1"}


async def test_what_rosters_tell_follows_and_what_ended_goes(
    ledger: Ledger, upstream: Upstream, clock: VirtualClock
) -> None:
    await report(ledger, "a", "s1", "s2")
    assert await mirror(ledger).follow() == 2
    assert (await upstream.lookup("s2"))["node"]["node_id"] == "a"
    await report(ledger, "a", "s2")
    await report(ledger, "b", "s3")
    assert await mirror(ledger).follow() == 2
    assert await upstream.lookup("s1") is None
    assert await upstream.of_node("a") == {"s2"}
    clock.advance(TTL_MS + 1)
    await report(ledger, "b", "s3")
    await mirror(ledger).follow()
    assert await upstream.lookup("s2") is None, "its node was silent for too long"
    assert await upstream.lookup("s3") is not None


async def test_what_stands_is_written_again_after_a_third_of_its_ttl(ledger: Ledger) -> None:
    seconds = 0.0
    followed = UpstreamBindings(ledger.runner, lambda: seconds)
    await report(ledger, "a", *(f"s{number}" for number in range(1200)))
    assert await followed.follow() == 1200
    seconds = 59.9
    assert await followed.follow() == 0
    seconds = 60.0
    assert await followed.follow() == 1200


async def test_a_sandbox_that_moves_is_written_anew(ledger: Ledger, upstream: Upstream) -> None:
    await report(ledger, "a", "s1")
    await mirror(ledger).follow()
    await report(ledger, "b", "s1")
    assert await mirror(ledger).follow() == 1
    assert (await upstream.lookup("s1"))["node"] == {"node_id": "b", "endpoint": "http://b:8000"}


async def test_one_replica_follows_and_the_other_starts_from_nothing_when_it_takes_over(
    ledger: Ledger, open_ledger_on: OpenLedger, clock: VirtualClock
) -> None:
    other = await open_ledger_on(upstream_bindings=True)
    await report(ledger, "a", "s1")
    first = following(mirror(ledger), ledger.leases, "r1")
    second = following(mirror(other), other.leases, "r2")
    await first()
    await second()
    assert list(mirror(ledger)._written) == ["s1"]
    assert not mirror(other)._written
    clock.advance(15_000)
    await second()
    await first()
    assert list(mirror(other)._written) == ["s1"]
    assert not mirror(ledger)._written


async def test_without_being_asked_for_nothing_of_it_is_written(open_ledger_on: OpenLedger, upstream: Upstream) -> None:
    plain = await open_ledger_on(LedgerSettings())
    await plain.nodes.replace([A], [])
    await plain.bindings.record("s1", A)
    assert plain.upstream_bindings is None
    assert await upstream.lookup("s1") is None
