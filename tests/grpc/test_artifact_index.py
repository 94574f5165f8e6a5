"""The shared index of P2P artifacts: who serves what, bounded, and lost with its node."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.connection.options import StoreOptions
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus, P2pEndpoint
from scheduler.domain.sandbox import ArtifactKey
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NodeNotListed
from scheduler.ledger.ledger import Ledger, open_ledger
from tests.conftest import OpenLedger
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock


def artifact(key: str = "k1", cluster_id: str = "c1", backend: str = "iroh") -> ArtifactKey:
    return ArtifactKey(cluster_id, backend, key)


async def list_nodes(ledger: Ledger, *node_ids: str) -> None:
    await ledger.nodes.replace([NodeAddress(node_id, f"http://{node_id}:8000") for node_id in node_ids], [])


async def report(ledger: Ledger, *node_ids: str, cluster_id: str = "c1", backend: str = "iroh") -> None:
    for node_id in node_ids:
        await ledger.nodes.heartbeat(
            Heartbeat(
                node_id,
                f"svc-{node_id}",
                cluster_id=cluster_id,
                snapshot=NodeSnapshot(status=NodeStatus.READY),
                p2p_endpoint=P2pEndpoint(backend, f"addr-{node_id}"),
            )
        )


async def providers(ledger: Ledger, key: ArtifactKey, exclude: str = "") -> list[str]:
    return sorted(node_id for node_id, _ in await ledger.artifacts.lookup(key, exclude))


async def index_keys(backend: Backend, *names: str) -> dict[str, Any]:
    """Every key of the index, by name without tag; the ones named with their type's size."""
    client = backend.client()
    found = sorted([key.split("}:", 1)[1] async for key in client.scan_iter("*artifact*")])
    await client.aclose()
    return dict.fromkeys(found)


async def test_the_asking_node_is_left_out_and_addresses_are_answered(ledger: Ledger) -> None:
    await list_nodes(ledger, "a", "b", "c")
    await report(ledger, "a", "b")
    await report(ledger, "c", backend="other")
    for node_id in ("a", "b", "c"):
        await ledger.artifacts.record(artifact(), node_id)
    assert await ledger.artifacts.lookup(artifact(), "a") == (("b", P2pEndpoint("iroh", "addr-b")),)


async def test_recording_for_a_node_outside_discovery_is_refused(ledger: Ledger) -> None:
    with pytest.raises(NodeNotListed):
        await ledger.artifacts.record(artifact(), "zz")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (artifact("k", "a", "b|k"), artifact("b|k|k", "a", "b")),
        (artifact("k", "a|1:b", "c"), artifact("c|k", "a", "b")),
        (artifact("k:1", "1:a", "x"), artifact("k", "1:a", "x:1")),
        (artifact("k", "ü", "i"), artifact("k", "u", "i")),
    ],
)
async def test_texts_that_hold_separators_stay_apart(ledger: Ledger, one: ArtifactKey, other: ArtifactKey) -> None:
    await list_nodes(ledger, "a")
    await report(ledger, "a", cluster_id=one.cluster_id, backend=one.backend)
    await ledger.artifacts.record(one, "a")
    assert await providers(ledger, one) == ["a"]
    await ledger.artifacts.forget(other, "a")
    await ledger.artifacts.record(other, "a")
    await ledger.artifacts.forget(other, "a")
    assert await providers(ledger, one) == ["a"]


@pytest.mark.ledger_settings(artifact_lookup_node_limit=2)
async def test_the_limit_counts_ready_providers_only(ledger: Ledger, clock: VirtualClock) -> None:
    names = [f"n{number}" for number in range(8)]
    await list_nodes(ledger, *names)
    await report(ledger, *names)
    for name in names:
        await ledger.artifacts.record(artifact(), name)
    clock.advance(30_001)
    await report(ledger, "n6", "n7", "n1")
    assert await providers(ledger, artifact(), "n1") == ["n6", "n7"]
    assert len(await providers(ledger, artifact())) == 2


async def test_no_limit_is_every_provider_of_many_slices(open_ledger_on: OpenLedger) -> None:
    ledger = await open_ledger_on(LedgerSettings(artifact_lookup_node_limit=2))
    names = [f"n{number:04d}" for number in range(1200)]
    await list_nodes(ledger, *names)
    await report(ledger, *names)
    for name in names:
        await ledger.artifacts.record(artifact(), name)
    assert len(await providers(ledger, artifact(), "n0007")) == 2
    for revision, limit in enumerate((0, -1), 1):
        await put_settings(ledger, LedgerSettings(artifact_lookup_node_limit=limit, revision=revision))
        assert await providers(ledger, artifact(), "n0007") == [name for name in names if name != "n0007"]
    assert [node_id for node_id, _ in await ledger.artifacts.peers("c1", "iroh", "n0000")] == names[1:]


async def test_peers_are_ready_nodes_by_cluster_and_backend(ledger: Ledger, clock: VirtualClock) -> None:
    await list_nodes(ledger, "a", "b", "c", "d", "e")
    await report(ledger, "d")
    clock.advance(30_001)
    await report(ledger, "a")
    await report(ledger, "b", cluster_id="c2")
    await report(ledger, "c", backend="other")

    async def peers(*filters: str) -> str:
        return "".join(node_id for node_id, _ in await ledger.artifacts.peers(*filters))

    assert await peers() == "abc"
    assert await peers("c1") == "ac"
    assert await peers("c1", "iroh") == "a"
    assert await peers("", "iroh", "a") == "b"
    await ledger.nodes.replace([], [NodeAddress("a", "http://a:8000")])
    assert await peers() == ""


@pytest.mark.parametrize("how", ["unregister", "remove"])
async def test_a_node_with_very_many_artifacts_loses_them_at_once(ledger: Ledger, backend: Backend, how: str) -> None:
    await list_nodes(ledger, "a", "b")
    await report(ledger, "a", "b")
    for number in range(700):
        await ledger.artifacts.record(artifact(f"k{number}"), "a")
    await ledger.artifacts.record(artifact("k0"), "b")
    if how == "unregister":
        await ledger.nodes.unregister("a", "svc-a")
    else:
        await ledger.nodes.remove("a")
        await list_nodes(ledger, "a", "b")
    await report(ledger, "a")
    await ledger.artifacts.record(artifact("k699"), "a")
    assert await providers(ledger, artifact("k0")) == ["b"]
    assert await providers(ledger, artifact("k1")) == []
    assert await providers(ledger, artifact("k699")) == ["a"], "what it offers anew counts"
    for _ in range(6):
        await ledger.artifacts.forget(artifact("none"), "b")
    assert await providers(ledger, artifact("k699")) == ["a"]
    assert set(await index_keys(backend)) == {
        "artifacts",
        "artifact_scopes",
        "artifact:2:c1|4:iroh|k0",
        "artifact:2:c1|4:iroh|k699",
        "node:a:artifacts",
        "node:b:artifacts",
    }


@pytest.mark.ledger_settings(artifact_store_capacity=1)
async def test_an_artifact_with_very_many_providers_is_evicted_whole(ledger: Ledger, backend: Backend) -> None:
    names = [f"n{number:03d}" for number in range(600)]
    await list_nodes(ledger, *names)
    await report(ledger, *names)
    for name in names:
        await ledger.artifacts.record(artifact("old"), name)
    await ledger.artifacts.record(artifact("new"), "n000")
    assert await providers(ledger, artifact("old")) == []
    for _ in range(6):
        await ledger.artifacts.forget(artifact("none"), "n000")
    assert set(await index_keys(backend)) == {
        "artifacts",
        "artifact_scopes",
        "artifact:2:c1|4:iroh|new",
        "node:n000:artifacts",
    }


async def test_the_last_provider_takes_everything_with_it(ledger: Ledger, backend: Backend) -> None:
    await list_nodes(ledger, "a", "b")
    for node_id in ("a", "b"):
        await ledger.artifacts.record(artifact(), node_id)
        await ledger.artifacts.record(artifact("k2", "c2"), node_id)
    await ledger.artifacts.forget(artifact(), "a")
    await ledger.artifacts.forget(artifact(), "b")
    await ledger.nodes.remove("a")
    await ledger.nodes.unregister("b", "anyone: it never reported")
    assert await index_keys(backend) == {}


async def test_two_replicas_share_one_index_and_a_restart_keeps_it(open_ledger_on: OpenLedger) -> None:
    first = await open_ledger_on(LedgerSettings())
    second = await open_ledger_on()
    await list_nodes(first, "a", "b")
    await report(first, "a", "b")
    await asyncio.gather(first.artifacts.record(artifact(), "a"), second.artifacts.record(artifact(), "b"))
    assert await providers(first, artifact()) == await providers(second, artifact()) == ["a", "b"]
    third = await open_ledger_on()
    assert await providers(third, artifact()) == ["a", "b"]


# ── against a plain model ────────────────────────────────────────────────────

CAPACITY = 3
NODES = ["a", "b", "c"]
KEYS = ["k1", "k2", "k3", "k4", "k5"]
ACTIONS = st.one_of(
    st.tuples(st.just("record"), st.sampled_from(KEYS), st.sampled_from(NODES)),
    st.tuples(st.just("forget"), st.sampled_from(KEYS), st.sampled_from(NODES)),
    st.tuples(st.just("lookup"), st.sampled_from(KEYS), st.just("")),
    st.tuples(st.just("unregister"), st.just(""), st.sampled_from(NODES)),
)


class PlainIndex:
    """Key → providers, least recently used first."""

    def __init__(self) -> None:
        self.providers: OrderedDict[str, set[str]] = OrderedDict()

    def record(self, key: str, node_id: str) -> None:
        self.providers.setdefault(key, set()).add(node_id)
        self.providers.move_to_end(key)
        if len(self.providers) > CAPACITY:
            self.providers.popitem(last=False)

    def forget(self, key: str, node_id: str) -> None:
        self.providers.get(key, set()).discard(node_id)
        if not self.providers.get(key):
            self.providers.pop(key, None)

    def lookup(self, key: str) -> list[str]:
        if key in self.providers:
            self.providers.move_to_end(key)
        return sorted(self.providers.get(key, ()))


@given(st.lists(ACTIONS, max_size=40))
def test_every_sequence_of_calls_comes_out_as_a_plain_index_says(actions: list[tuple[str, str, str]]) -> None:
    asyncio.run(_compare(actions))


async def _compare(actions: list[tuple[str, str, str]]) -> None:
    import fakeredis

    options = StoreOptions(fake_server=fakeredis.FakeServer())
    ledger = await open_ledger("embedded", domain="test", options=options, clock=VirtualClock())
    await put_settings(ledger, LedgerSettings(artifact_store_capacity=CAPACITY))
    await list_nodes(ledger, *NODES)
    await report(ledger, *NODES)
    model = PlainIndex()
    for action, key, node_id in actions:
        if action == "record":
            await ledger.artifacts.record(artifact(key), node_id)
            model.record(key, node_id)
        elif action == "forget":
            await ledger.artifacts.forget(artifact(key), node_id)
            model.forget(key, node_id)
        elif action == "lookup":
            assert await providers(ledger, artifact(key)) == model.lookup(key)
        else:
            await ledger.nodes.unregister(node_id, f"svc-{node_id}")
            await report(ledger, node_id)
            for known in list(model.providers):
                model.forget(known, node_id)
    for key in KEYS:
        assert await providers(ledger, artifact(key)) == model.lookup(key)
    await ledger.close()
