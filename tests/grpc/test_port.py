"""The port itself: health, deadlines, odd bytes, limits, query-only, measurements, TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scheduler import errors, health_probe
from scheduler.api.grpc import GrpcOptions, create_server
from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.api.grpc.health import Health
from scheduler.deadline import left_ms
from scheduler.domain.node import HeartbeatResult, NodeAddress
from scheduler.domain.sandbox import Binding
from scheduler.observability.metrics import Metrics
from tests.grpc.support import Port, refusal, scripted_services, serving

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
BINDING = Binding("s1", NodeAddress("a", "http://a:8000"), 0)


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    async with serving(scripted_services()) as started:
        started.services.bindings.answers("lookup", BINDING)
        yield started


async def health_of(port: Port, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(port.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def still_answers(port: Port) -> bool:
    answer = await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
    return bool(answer.node.node_id == "a")


async def test_health_serves_the_empty_name_and_the_service_until_draining(port: Port) -> None:
    assert await health_of(port, "") == SERVING
    assert await health_of(port, "scheduler.v1.Scheduler") == SERVING
    assert (await refusal(health_of(port, "other")))[0] == "NOT_FOUND"
    await port.server.set_not_serving()
    assert await health_of(port, "") == NOT_SERVING
    assert await health_of(port, "scheduler.v1.Scheduler") == NOT_SERVING
    assert await still_answers(port), "a draining server still answers what reaches it"


async def test_readiness_is_what_readyz_says(port: Port) -> None:
    assert await health_of(port, "readiness") == SERVING
    port.services.readiness.fails("check", errors.StoreUnavailable("the ledger cannot be reached"))
    assert await health_of(port, "readiness") == NOT_SERVING
    assert await health_of(port, "") == SERVING, "the port answers all the same"
    port.services.readiness.answers("check", None)
    assert await health_of(port, "readiness") == SERVING
    await port.server.set_not_serving()
    assert await health_of(port, "readiness") == NOT_SERVING


async def test_a_watcher_of_readiness_receives_changes() -> None:
    answers = iter([None, None, errors.StoreUnavailable("away")])

    async def check() -> None:
        found = next(answers, None)
        if found is not None:
            raise found

    class Watcher:
        told: list[int]

        def __init__(self) -> None:
            self.told = []

        async def write(self, response: health_pb2.HealthCheckResponse) -> None:
            self.told.append(int(response.status))
            if len(self.told) == 3:
                raise asyncio.CancelledError

    watcher = Watcher()
    health = Health(check, watch_seconds=0)
    await health.serve("")
    with pytest.raises(asyncio.CancelledError):
        await health.Watch(health_pb2.HealthCheckRequest(service="readiness"), watcher)  # type: ignore[arg-type]
    assert watcher.told == [SERVING, NOT_SERVING, SERVING]


async def test_calls_under_way_finish_during_a_graceful_stop() -> None:
    services = scripted_services()
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> Binding:
        entered.set()
        await release.wait()
        return BINDING

    services.bindings.behaviours["lookup"] = slow
    async with serving(services) as port:
        call = asyncio.ensure_future(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1")))
        await entered.wait()
        stopping = asyncio.ensure_future(port.server.stop(5))
        await asyncio.sleep(0)
        release.set()
        assert (await call).node.node_id == "a"
        await stopping


async def test_the_callers_deadline_is_the_deadline_of_the_work(port: Port) -> None:
    seen: list[float | None] = []

    async def remember(*_: object) -> Binding:
        seen.append(left_ms())
        return BINDING

    port.services.bindings.behaviours["lookup"] = remember
    await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"), timeout=3)
    await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
    with_deadline, without = seen
    assert with_deadline is not None
    assert with_deadline < 3500, "three seconds, as coarsely as gRPC keeps time"
    assert without is not None
    assert 3500 < without <= 10_000


async def test_calls_beyond_the_limit_are_refused_at_once() -> None:
    services = scripted_services()
    release = asyncio.Event()

    async def slow(*_: object) -> Binding:
        await release.wait()
        return BINDING

    services.bindings.behaviours["lookup"] = slow
    metrics = Metrics()
    async with serving(services, in_flight_max=3, metrics=metrics) as port:
        lookup = v1.LookupNodeRequest(sandbox_id="s1")
        under_way = [asyncio.ensure_future(port.scheduler.LookupNode(lookup)) for _ in range(3)]
        while len(services.bindings.calls) < 3:  # noqa: ASYNC110  the calls arrive when they do
            await asyncio.sleep(0.001)
        told = await refusal(port.scheduler.LookupNode(lookup))
        assert told == ("UNAVAILABLE", "too many calls at once; ask again")
        assert await health_of(port, "") == SERVING, "probes are not counted"
        assert b"agentenv_scheduler_grpc_in_flight 3.0\n" in metrics.page()
        assert b"agentenv_scheduler_grpc_shed_total 1.0\n" in metrics.page()
        release.set()
        await asyncio.gather(*under_way)
        assert await still_answers(port)
    assert b"agentenv_scheduler_grpc_in_flight 0.0\n" in metrics.page()
    assert b"agentenv_scheduler_http_shed_total 0.0\n" in metrics.page()


async def test_a_caller_that_goes_away_cancels_its_work(port: Port) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(*_: object) -> Binding:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return BINDING

    port.services.bindings.behaviours["lookup"] = wait
    call = port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
    await entered.wait()
    call.cancel()
    async with asyncio.timeout(5):
        await cancelled.wait()


async def test_a_defect_is_an_internal_error_that_says_nothing_and_the_server_lives_on(port: Port) -> None:
    port.services.bindings.fails("lookup", RuntimeError("secret detail"))
    told = await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1")))
    assert told == ("INTERNAL", "internal error")
    port.services.bindings.fails("lookup", errors.ScriptError("lua/x.lua:3: secret"))
    told = await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1")))
    assert told == ("INTERNAL", "internal error")
    port.services.bindings.answers("lookup", BINDING)
    assert await still_answers(port)


@pytest.mark.parametrize(
    "path", ["/scheduler.v1.Scheduler/ListP2PPeers", "/scheduler.v1.Scheduler/Nope", "/no/such", "/"]
)
async def test_an_unknown_method_is_unimplemented(port: Port, path: str) -> None:
    assert (await refusal(port.raw(path)(b"")))[0] == "UNIMPLEMENTED"
    assert await still_answers(port)


async def test_the_p2p_paths_are_spelled_as_nodes_send_them(port: Port) -> None:
    port.services.artifacts.answers("peers", ())
    assert await port.raw("/scheduler.v1.Scheduler/ListP2pPeers")(b"") == b""


@pytest.mark.parametrize("frame", [b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe"])
async def test_a_garbage_frame_is_refused_and_the_server_lives_on(port: Port, frame: bytes) -> None:
    assert (await refusal(port.raw("/scheduler.v1.Scheduler/LookupNode")(frame)))[0] == "INTERNAL"
    assert await still_answers(port)


async def test_bytes_that_are_no_http2_at_all_disturb_nobody(port: Port) -> None:
    with socket.create_connection(("127.0.0.1", port.server.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"\x00" * 4096)
        assert await still_answers(port)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("LookupNode", "sandbox_id is required"),
        ("RecordAssignment", "sandbox_id is required"),
        ("Heartbeat", "node_id and service_instance_id are required"),
        ("GetNode", "node_id is required"),
        ("UnregisterNode", "node_id and service_instance_id are required"),
        ("RecordP2pArtifact", "cluster_id, backend, key, and node_id are required"),
        ("ForgetP2pArtifact", "cluster_id, backend, key, and node_id are required"),
        ("LookupP2pArtifact", "cluster_id, backend, and key are required"),
    ],
)
async def test_an_empty_message_is_refused_in_upstreams_words(port: Port, method: str, told: str) -> None:
    assert await refusal(port.raw(f"/scheduler.v1.Scheduler/{method}")(b"")) == ("INVALID_ARGUMENT", told)


async def test_fields_of_forks_are_ignored(port: Port) -> None:
    port.services.nodes.answers("heartbeat", HeartbeatResult(1))
    request = v1.HeartbeatRequest(node_id="a", service_instance_id="i").SerializeToString()
    # endpoint = 10 as text in one fork, roster_complete = 10 as a number in another, 15 and 200 elsewhere.
    for extra in (b"\x52\x03abc", b"\x50\x01", b"\x78\x07", b"\xc2\x0c\x01x"):
        await port.raw("/scheduler.v1.Scheduler/Heartbeat")(request + extra)
    assert len(port.services.nodes.calls) == 4


async def test_a_roster_of_110_000_ids_is_accepted(port: Port) -> None:
    port.services.nodes.answers("heartbeat", HeartbeatResult(1))
    roster = [f"{number:036d}" for number in range(110_000)]
    request = v1.HeartbeatRequest(node_id="a", service_instance_id="i", sandbox_ids=roster)
    assert request.ByteSize() > 4_000_000
    await port.scheduler.Heartbeat(request)
    [(_, (heartbeat, _))] = port.services.nodes.calls
    assert len(heartbeat.sandbox_ids) == 110_000


async def test_an_oversized_message_is_resource_exhausted_and_the_server_lives_on(port: Port) -> None:
    call = port.raw("/scheduler.v1.Scheduler/LookupNode")(b"\x0a" + b"\x00" * (4 * 1024 * 1024))
    assert (await refusal(call))[0] == "RESOURCE_EXHAUSTED"
    assert await still_answers(port)


async def services_told(port: Port) -> set[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(port.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([asked])):
        return {service.name for service in answer.list_services_response.service}
    raise AssertionError("it told nothing")


async def test_tools_may_ask_for_the_services_where_that_is_switched_on() -> None:
    async with serving(scripted_services(), reflection=True) as port:
        assert await services_told(port) == {
            "scheduler.v1.Scheduler",
            "agentenv.scheduler.v1alpha.Reservations",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        stub = reflection_pb2_grpc.ServerReflectionStub(port.channel)
        asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="scheduler.v1.Scheduler")
        async for answer in stub.ServerReflectionInfo(iter([asked])):
            assert answer.file_descriptor_response.file_descriptor_proto
    async with serving(scripted_services(), reflection=True, query_only=True) as port:
        assert "agentenv.scheduler.v1alpha.Reservations" not in await services_told(port)
    async with serving(scripted_services()) as port:
        assert (await refusal(services_told(port)))[0] == "UNIMPLEMENTED"


async def test_query_only_knows_lookup_and_health_alone() -> None:
    services = scripted_services()
    services.bindings.answers("lookup", BINDING)
    async with serving(services, query_only=True) as port:
        assert await still_answers(port)
        assert await health_of(port, "scheduler.v1.Scheduler") == SERVING
        assert (await refusal(port.scheduler.Schedule(v1.ScheduleRequest())))[0] == "UNIMPLEMENTED"
        assert (await refusal(port.scheduler.Heartbeat(v1.HeartbeatRequest())))[0] == "UNIMPLEMENTED"
        reserve = port.raw("/agentenv.scheduler.v1alpha.Reservations/Reserve")
        assert (await refusal(reserve(b"")))[0] == "UNIMPLEMENTED"


async def test_calls_are_measured_under_upstreams_names_and_p2p_calls_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, str]] = []
    metrics = Metrics()
    monkeypatch.setattr(metrics, "observe_rpc", lambda rpc, status, seconds: measured.append((rpc, status)))
    services = scripted_services()
    services.bindings.answers("lookup", BINDING)
    services.artifacts.answers("peers", ())
    async with serving(services, metrics=metrics) as port:
        await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
        await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest()))
        services.bindings.fails("lookup", errors.PayloadTooLarge("large"))
        await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1")))
        await port.scheduler.ListP2pPeers(v1.ListP2pPeersRequest())
    assert measured == [("LookupNode", "ok"), ("LookupNode", "invalid_argument"), ("LookupNode", "other")]


async def test_an_address_in_use_is_a_configuration_error(port: Port) -> None:
    with pytest.raises(errors.ConfigurationError, match="grpc_listen_addr"):
        create_server(scripted_services(), GrpcOptions(address=port.address))


async def test_upstreams_spelling_of_every_interface_is_understood() -> None:
    assert GrpcOptions(address=":9090").listen_address == "[::]:9090"


async def test_the_probe_reports_serving_not_serving_and_unreachable(
    port: Port, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = [f"-addr={port.address}"]
    assert await asyncio.to_thread(health_probe.main, ask) == 0
    assert capsys.readouterr().out == "status: SERVING\n"
    assert await asyncio.to_thread(health_probe.main, [*ask, "-service=nope"]) == 3
    assert "NOT_FOUND" in capsys.readouterr().err
    await port.server.set_not_serving()
    assert await asyncio.to_thread(health_probe.main, ask) == 4
    assert await asyncio.to_thread(health_probe.main, ["-addr=127.0.0.1:1", "-connect-timeout=50ms"]) == 2


async def test_aio_channel_reuse_is_not_needed_for_rust_like_urls(port: Port) -> None:
    """A tonic client dials lazily, one channel for heartbeats and one for P2P."""
    async with grpc.aio.insecure_channel(f"dns:///{port.address}") as second:
        stub = health_pb2_grpc.HealthStub(second)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
