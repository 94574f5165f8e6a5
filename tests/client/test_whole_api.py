"""Everything the HTTP API offers, asked by both flavours of a real replica."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Match

import scheduler
from agentenv_scheduler_client import (
    ApiRequest,
    Artifact,
    AsyncSchedulerClient,
    CancelCause,
    ColdSandbox,
    Conflict,
    Creation,
    DiscoveryState,
    Heartbeat,
    InvalidRequest,
    Lifecycle,
    MachineInfo,
    NodeAddress,
    NodeRefused,
    NodeSnapshot,
    NodeStatus,
    NoNodes,
    NotFound,
    P2pEndpoint,
    ReservationState,
    SandboxEvent,
    SandboxEventType,
    Strategy,
    TemplateSandbox,
)
from agentenv_scheduler_client._async.calls import AsyncCalls
from agentenv_scheduler_client._sync.calls import Calls
from scheduler.api.http import create_app
from scheduler.service import build_services
from tests.client.flavours import open_flavour
from tests.support.embedded import unopened_ledger
from tests.support.replica_thread import replica_in_thread

NODE_A, NODE_B = NodeAddress("node/a", "http://node-a:8000"), NodeAddress("node-b", "http://node-b:8000")
HINT = ColdSandbox(cpu_count=2, memory_mb=1024, images=("app:1",), metadata={"team": "x"}, locality=("k",))


@pytest.fixture
def url() -> Iterator[str]:
    with replica_in_thread(strategy="grouped_round_robin", grouped_round_robin__max_sandbox_count=50) as address:
        yield address


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Method and path of every call."""
    seen: set[tuple[str, str]] = set()
    for kind in (AsyncCalls, Calls):
        send = kind._send

        def note(self: Any, question: Any, seconds: float, send: Any = send) -> Any:
            seen.add((question.method, question.path))
            return send(self, question, seconds)

        monkeypatch.setattr(kind, "_send", note)
    return seen


def routes(asked: set[tuple[str, str]]) -> set[str]:
    """The operations of the document that were called; of all, with None."""
    app = create_app(build_services(unopened_ledger()))
    documented = [route for route in app.router.routes if isinstance(route, APIRoute) and route.include_in_schema]
    called = set()
    for method, path in asked:
        scope = {"type": "http", "method": method, "path": path}
        called |= {route.name for route in documented if route.matches(scope)[0] is Match.FULL}
    assert len(documented) > 20
    return {route.name for route in documented} - called


@pytest.mark.parametrize("flavour", ["async", "blocking"])
async def test_the_whole_api_is_there_in_both_flavours(flavour: str, url: str, asked: set[tuple[str, str]]) -> None:
    async with open_flavour(flavour, url) as client:
        await operating(client)
        await nodes(client)
        await placing(client)
        await reservations(client)
        await blocks(client)
        await catalog(client)
        await leaving(client)
    assert routes(asked) == set()


async def operating(client: AsyncSchedulerClient) -> None:
    await client.check_health()
    assert (await client.check_readiness()).settings["strategy"] == "grouped_round_robin"
    settings, replicas = await client.settings(), await client.replicas()
    assert settings.settings["strategy"] == "grouped_round_robin"
    assert [replica.expires_at_ms > replicas.now_ms for replica in replicas.replicas] == [True]
    summary = await client.summary()
    assert (summary.domain, summary.capacity.cpu_count, len(summary.replicas)) == (settings.domain, 0, 1)
    assert (await client.ask("GET", "/v1/settings"))["domain"] == settings.domain
    assert await client.server_version() == scheduler.__version__


async def nodes(client: AsyncSchedulerClient) -> None:
    assert (await client.nodes.replace([NODE_A], [NODE_B])).lingering == 1
    assert (await client.nodes.put(NODE_B)).state is DiscoveryState.ACTIVE
    assert (await client.nodes.put(NODE_B, DiscoveryState.LINGERING)).state is DiscoveryState.LINGERING
    report = Heartbeat(
        "i-1",
        cluster_id="c1",
        machine_info=MachineInfo(cpu_model="m"),
        sequence=1,
        snapshot=NodeSnapshot(NodeStatus.READY, cpu_count=64, memory_total_bytes=2**36),
        sandbox_ids=(),
        p2p_endpoint=P2pEndpoint("b", "node-a:1"),
    )
    told = await client.nodes.heartbeat(NODE_A.node_id, report)
    assert not told.stale
    assert (await client.nodes.heartbeat(NODE_A.node_id, report)).stale
    listed, lingering = await client.nodes.list(), await client.nodes.get(NODE_B.node_id)
    assert [node.address for node in listed] == [NODE_B, NODE_A]
    assert (lingering.discovery, lingering.last_seen_ms) == (DiscoveryState.LINGERING, None)
    (known,) = await client.nodes.list("c1")
    assert (known.status, known.snapshot.cpu_count, known.generation) == (NodeStatus.READY, 64, told.generation)
    assert known.machine_info == MachineInfo(cpu_model="m")
    await client.nodes.cordon(NODE_A.node_id, "i-1")
    assert (await client.nodes.get(NODE_A.node_id)).cordoned
    await client.nodes.uncordon(NODE_A.node_id, "i-1")
    with pytest.raises(Conflict):
        await client.nodes.cordon(NODE_A.node_id, "i-0")
    last = (await client.audit(limit=1)).acts[0]
    assert (last.actor, last.act, last.subject) == ("anonymous", "node.uncordon", NODE_A.node_id)
    with pytest.raises(NotFound):
        await client.nodes.heartbeat("nobody", report)


async def placing(client: AsyncSchedulerClient) -> None:
    routed = await client.schedule()
    assert (routed.reservation, routed.strategy) == (None, Strategy.GROUPED_ROUND_ROBIN)
    together = await client.schedule_batch([Creation(HINT), Creation(HINT, "named")], all_or_none=True)
    assert [placed.reservation.sandbox_id for placed in together.placed] == [None, "named"]
    assert (await client.schedule_batch([Creation(HINT)] * 2)).refused == ()
    explained = await client.explain(HINT)
    assert explained.node == NODE_A
    assert {node.node_id: node.reason for node in explained.nodes} == {"node/a": None, "node-b": "lingering"}
    with pytest.raises(NoNodes) as refused:
        await client.schedule(HINT, exclude_nodes=("node/a",))
    assert refused.value.reasons == {"excluded": 1, "lingering": 1}
    last = (await client.decisions(limit=1)).decisions[0]
    assert (last.outcome, last.reasons) == ("refused", refused.value.reasons)
    with pytest.raises(InvalidRequest) as invalid:
        await client.schedule(ColdSandbox(cpu_count=-1))
    assert invalid.value.errors[0].field == "hint.cpu_count"
    request = ApiRequest("POST", "/sandboxes-cold", {"image": "app:1", "cpuCount": -1})
    reading = await client.read_hint(request)
    assert reading.hint == ColdSandbox(images=("app:1",))
    assert len(reading.warnings) == 1
    assert (await client.schedule(request, lifecycle=Lifecycle.HEARTBEAT)).warnings == reading.warnings


async def reservations(client: AsyncSchedulerClient) -> None:
    one = await client.schedule(HINT, idempotency_key="k1", reservation_ttl_seconds=90, sandbox_id="mine")
    again = await client.schedule(HINT, idempotency_key="k1", reservation_ttl_seconds=90, sandbox_id="mine")
    assert one.reservation is not None
    assert (again.replayed, again.reservation) == (True, one.reservation)
    assert one.reservation.expires_at_ms - one.reservation.created_at_ms == 90_000
    reservation_id = one.reservation.reservation_id
    with pytest.raises(Conflict) as other:
        await client.reservations.confirm(reservation_id, "yours")
    assert other.value.reservation == one.reservation
    assert (await client.reservations.renew(reservation_id, 600)).reservation.state is ReservationState.PENDING
    assert (await client.reservations.confirm(reservation_id, "mine")).reservation.sandbox_id == "mine"
    assert (await client.reservations.get(reservation_id)).reservation.state is ReservationState.CONFIRMED
    assert [each.reservation_id async for each in client.reservations.each(state=ReservationState.CONFIRMED)] == [
        reservation_id
    ]
    page = await client.reservations.list(node_id="node/a", limit=1)
    assert page.cursor is not None
    refused = await client.schedule(HINT, idempotency_key="k2")
    assert refused.reservation is not None
    cancelled = await client.reservations.cancel(
        refused.reservation.reservation_id, "full", cause=CancelCause.NODE_REFUSED
    )
    assert cancelled.reservation.reason == "full"
    assert (await client.reservations.cancel_by_key("k2")).replayed
    tombstone = (await client.reservations.cancel_by_key("never")).reservation
    assert tombstone is not None
    assert (tombstone.state, tombstone.node_id) == (ReservationState.CANCELLED, "")


async def blocks(client: AsyncSchedulerClient) -> None:
    async def start(node: NodeAddress) -> str:
        return f"on-{node.node_id}"

    async def refuse(node: NodeAddress) -> str:
        raise NodeRefused("no")

    assert await client.create(HINT, start) == "on-node/a"
    with pytest.raises(NoNodes):
        await client.create(HINT, refuse, timeout_seconds=30)
    async with client.place(TemplateSandbox("base")) as placement:
        assert placement.node == NODE_A
        await placement.cancel("changed my mind")
    with pytest.raises(ZeroDivisionError):
        async with client.place(HINT):
            1 / 0  # noqa: B018 - the crash
    last = [each async for each in client.reservations.each()][-1]
    assert (last.state, last.reason) == (ReservationState.CANCELLED, "nothing was begun")


async def catalog(client: AsyncSchedulerClient) -> None:
    assert (await client.bindings.lookup("on-node/a")).node == NODE_A
    assert (await client.bindings.assign("sb-2", NODE_A)).sandbox_id == "sb-2"
    with pytest.raises(InvalidRequest):
        await client.bindings.assign("sb-3", NodeAddress("node/a", "http://elsewhere:1"))
    put = await client.templates.put("base", cpu_count=2, memory_mb=512)
    assert await client.templates.get("base") == put
    assert [each async for each in client.templates.each()] == [put]
    await client.templates.delete("base")
    with pytest.raises(NotFound):
        await client.templates.get("base")
    assert (await client.groups.list()).total == len([each async for each in client.groups.each()]) > 0
    warm = await client.warm_keys.list(key="image:app", node_id="node/a")
    assert (warm.slack, warm.nodes) == (None, ()) == (None, tuple([each async for each in client.warm_keys.each()]))
    artifact = Artifact("c1", "b", "layers/1")
    await client.artifacts.record(artifact, NODE_A.node_id)
    (peer,) = await client.artifacts.lookup(artifact)
    assert (peer.node_id, peer.endpoint) == (NODE_A.node_id, P2pEndpoint("b", "node-a:1"))
    await client.artifacts.forget(artifact, NODE_A.node_id)
    assert await client.artifacts.lookup(artifact, exclude_node_id="node-b") == ()
    events = [SandboxEvent("sb-9", SandboxEventType.CREATE, 1, 2**20)]
    assert await client.nodes.report_events(NODE_A.node_id, "i-1", events) == 1


async def leaving(client: AsyncSchedulerClient) -> None:
    with pytest.raises(Conflict):
        await client.nodes.unregister(NODE_A.node_id, "i-2")
    await client.nodes.unregister(NODE_A.node_id, "i-1")
    await client.nodes.remove(NODE_A.node_id)
    assert [node.node_id for node in await client.nodes.list()] == ["node-b"]
    await client.nodes.replace([])


@pytest.fixture
def any_node_url() -> Iterator[str]:
    with replica_in_thread(strategy="round_robin") as address:
        yield address


@pytest.mark.parametrize("flavour", ["async", "sync"])
@pytest.mark.parametrize("said", ["x" * 1025, "é" * 1000, "broken \udcff path"])
async def test_whatever_a_node_says_when_it_refuses_its_capacity_is_free_and_another_is_tried(
    flavour: str, any_node_url: str, said: str
) -> None:
    tried: list[str] = []

    async def start(node: NodeAddress) -> str:
        tried.append(node.node_id)
        if len(tried) < 2:
            raise NodeRefused(said)
        return "named"

    async with open_flavour(flavour, any_node_url) as client:
        await client.nodes.replace([NODE_A, NODE_B], [])
        assert await client.create(HINT, start, sandbox_id="named") == "named"
        assert set(tried) == {NODE_A.node_id, NODE_B.node_id}
        first, second = (await client.reservations.list()).reservations
        assert (first.state, second.state) == (ReservationState.CANCELLED, ReservationState.CONFIRMED)
        assert first.reason == said.encode(errors="ignore")[:1024].decode(errors="ignore")
        async with client.place(HINT) as placement:
            await placement.cancel(said)
        assert (await client.reservations.list()).reservations[-1].state is ReservationState.CANCELLED


@pytest.mark.parametrize("flavour", ["async", "sync"])
async def test_what_cannot_be_sent_is_an_invalid_request(flavour: str, any_node_url: str) -> None:
    async with open_flavour(flavour, any_node_url) as client:
        for ask in (
            lambda: client.reservations.confirm("r", "\ud800"),
            lambda: client.reservations.get("\ud800"),
            lambda: client.read_hint(ApiRequest("POST", "/sandboxes-cold", {"cpuCount": float("nan")})),
            lambda: client.ask("POST", "/v1/hints", {"method": b"POST"}),
        ):
            with pytest.raises(InvalidRequest):
                await ask()


@pytest.mark.parametrize("flavour", ["async", "sync"])
async def test_a_create_may_try_more_nodes_than_one_request_can_exclude(flavour: str, any_node_url: str) -> None:
    tried: list[str] = []

    async def refuse(node: NodeAddress) -> str:
        tried.append(node.node_id)
        raise NodeRefused("full")

    async with open_flavour(flavour, any_node_url) as client:
        await client.nodes.replace([NodeAddress(f"n{number}", "http://n:1") for number in range(70)], [])
        with pytest.raises(NodeRefused):
            await client.create(HINT, refuse, nodes_tried_max=67)
    assert len(tried) == 67
    assert len(set(tried)) >= 65
