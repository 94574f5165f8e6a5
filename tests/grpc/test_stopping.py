"""A port that stops under load: every caller is answered, or hears UNAVAILABLE; nobody is told that it gave up."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest

from scheduler.api.grpc import GrpcOptions, create_server
from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.api.grpc.generated import scheduler_v1_pb2_grpc
from scheduler.api.grpc.sockets import cut_connections
from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import Binding
from tests.grpc.support import refusal, scripted_services, serving

BINDING = Binding("s1", NodeAddress("a", "http://a:8000"), 0)
LOOKUP = v1.LookupNodeRequest(sandbox_id="s1")
CALLERS = 60
ANSWERED_FIRST = 600


@pytest.mark.parametrize("grace", [None, 10.0], ids=["at once", "with grace"])
async def test_a_stop_under_load_cancels_nobody(grace: float | None) -> None:
    services = scripted_services()
    told: Counter[str] = Counter()
    enough, stopped = asyncio.Event(), asyncio.Event()

    async def lookup(*_: object) -> Binding:
        await asyncio.sleep(0.001)  # so that calls are under way at any moment
        return BINDING

    services.bindings.behaviours["lookup"] = lookup
    server = create_server(services, GrpcOptions(address="127.0.0.1:0"))
    await server.start()

    async def keep_calling(channel: grpc.aio.Channel) -> None:
        stub = scheduler_v1_pb2_grpc.SchedulerStub(channel)  # type: ignore[no-untyped-call]
        while not stopped.is_set():
            try:
                await stub.LookupNode(LOOKUP)
                told["OK"] += 1
            except grpc.aio.AioRpcError as error:
                told[error.code().name] += 1
                await asyncio.sleep(0.001)
            if told["OK"] >= ANSWERED_FIRST:
                enough.set()

    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=own) for _ in range(4)]
    callers = [asyncio.create_task(keep_calling(channels[number % 4])) for number in range(CALLERS)]
    await enough.wait()
    await server.stop(grace)
    stopped.set()
    await asyncio.gather(*callers)
    for channel in channels:
        await channel.close()
    assert set(told) == {"OK", "UNAVAILABLE"}, told


async def test_while_it_waits_for_calls_in_progress_others_are_refused() -> None:
    services = scripted_services()
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> Binding:
        entered.set()
        await release.wait()
        return BINDING

    services.bindings.behaviours["lookup"] = slow
    async with serving(services) as port:
        under_way = asyncio.ensure_future(port.scheduler.LookupNode(LOOKUP))
        await entered.wait()
        stopping = asyncio.ensure_future(port.server.stop(60))
        await asyncio.sleep(0)
        told = await refusal(port.scheduler.LookupNode(LOOKUP))
        assert told == ("UNAVAILABLE", "draining: this replica is leaving")
        release.set()
        assert (await under_way).node.node_id == "a"
        await stopping


async def test_a_call_that_outlives_the_grace_is_cut_and_gets_unavailable() -> None:
    services = scripted_services()
    entered = asyncio.Event()

    async def never(*_: object) -> Binding:
        entered.set()
        await asyncio.Event().wait()
        return BINDING

    services.bindings.behaviours["lookup"] = never
    async with serving(services) as port:
        call = asyncio.ensure_future(port.scheduler.LookupNode(LOOKUP))
        await entered.wait()
        await port.server.stop(0.01)
        assert (await refusal(call))[0] == "UNAVAILABLE"


async def test_cutting_ends_the_connections_of_one_port_alone() -> None:
    services = scripted_services()
    services.bindings.answers("lookup", BINDING)
    async with serving(services) as cut, serving(services) as other:
        for port in (cut, other):
            await port.scheduler.LookupNode(LOOKUP)
        assert cut_connections(cut.server.port) == 1
        assert (await refusal(cut.scheduler.LookupNode(LOOKUP)))[0] == "UNAVAILABLE"
        await other.scheduler.LookupNode(LOOKUP)
