"""Spans: a caller's trace goes on through HTTP and gRPC down to the ledger; off, nothing of it is imported."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import pytest

from scheduler.api.grpc import GrpcOptions, create_server
from scheduler.api.http import create_app
from scheduler.domain.node import DiscoveryState
from scheduler.errors import ConfigurationError, StoreUnavailable
from scheduler.ledger.ledger import Ledger
from scheduler.observability.metrics import Metrics
from scheduler.observability.tracing import Tracing, open_tracing
from scheduler.service import Services, build_services
from tests.support.embedded import fail_with

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE_ID, CALLERS_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{CALLERS_SPAN}-01"


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exported: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return Tracing(provider)


@pytest.fixture
async def services(embedded_ledger: Ledger, tracing: Tracing, exported: InMemorySpanExporter) -> Services:
    built = build_services(embedded_ledger, metrics=Metrics(tracing))
    await built.nodes.set("a", "http://a:1", DiscoveryState.ACTIVE)
    exported.clear()
    return built


@pytest.fixture
async def api(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
        yield client


def spans(exported: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exported.get_finished_spans()}


def assert_one_trace(request: ReadableSpan, ledger: ReadableSpan) -> None:
    assert request.context is not None
    assert request.parent is not None
    assert ledger.parent is not None
    assert f"{request.context.trace_id:032x}" == TRACE_ID
    assert f"{request.parent.span_id:016x}" == CALLERS_SPAN
    assert ledger.parent.span_id == request.context.span_id


async def test_a_placement_over_http_is_a_part_of_its_callers_trace(
    api: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    answer = await api.post("/v1/schedule", headers={"traceparent": TRACEPARENT, "X-Request-Id": "r1"})
    assert answer.status_code == 200
    found = spans(exported)
    assert set(found) == {"POST /v1/schedule", "ledger schedule"}
    request, ledger = found["POST /v1/schedule"], found["ledger schedule"]
    assert_one_trace(request, ledger)
    assert request.attributes == {
        "http.request.method": "POST",
        "http.request.id": "r1",
        "http.route": "/v1/schedule",
        "http.response.status_code": 200,
    }
    assert ledger.attributes == {"db.system.name": "redis", "db.operation.name": "schedule"}
    assert request.status.is_unset
    assert ledger.status.is_unset


async def test_without_a_traceparent_a_trace_begins_here(
    api: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    await api.post("/v1/schedule", headers={"traceparent": "garbage"})
    request = spans(exported)["POST /v1/schedule"]
    assert request.parent is None


@pytest.mark.parametrize("sampled", [True, False])
async def test_a_caller_that_is_not_sampled_leaves_no_spans(
    api: httpx.AsyncClient, exported: InMemorySpanExporter, sampled: bool
) -> None:
    flags = "01" if sampled else "00"
    await api.post("/v1/schedule", headers={"traceparent": f"00-{TRACE_ID}-{CALLERS_SPAN}-{flags}"})
    assert bool(spans(exported)) is sampled


async def test_a_refusal_is_no_fault_and_an_outage_is_one(
    api: httpx.AsyncClient,
    embedded_ledger: Ledger,
    exported: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await api.get("/v1/bindings/nowhere")).status_code == 404
    found = spans(exported)
    assert all(span.status.is_unset for span in found.values())
    exported.clear()
    fail_with(monkeypatch, embedded_ledger, StoreUnavailable("gone"))
    assert (await api.get("/v1/bindings/nowhere")).status_code == 503
    found = spans(exported)
    assert [span.status.is_ok for span in found.values()] == [False, False]
    assert {(span.attributes or {})["error.type"] for span in found.values()} == {"503", "store_unavailable"}


async def test_paths_without_a_route_share_one_name_and_probes_have_no_span(
    api: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    await api.get("/no/such/path")
    await api.get("/healthz")
    await api.get("/metrics")
    assert set(spans(exported)) == {"GET unmatched"}


async def test_a_call_over_grpc_is_a_part_of_its_callers_trace(
    services: Services, tracing: Tracing, exported: InMemorySpanExporter
) -> None:
    server = create_server(services, GrpcOptions(address="127.0.0.1:0", tracing=tracing))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            schedule: Any = channel.unary_unary("/scheduler.v1.Scheduler/Schedule")
            await schedule(b"", metadata=(("traceparent", TRACEPARENT),), timeout=10)
            look_up: Any = channel.unary_unary("/scheduler.v1.Scheduler/LookupNode")
            with pytest.raises(grpc.aio.AioRpcError):
                await look_up(b"\x0a\x07nowhere", timeout=10)
    finally:
        await server.stop(0)
    found = spans(exported)
    assert_one_trace(found["scheduler.v1.Scheduler/Schedule"], found["ledger schedule"])
    assert found["scheduler.v1.Scheduler/Schedule"].attributes == {
        "rpc.system": "grpc",
        "rpc.service": "scheduler.v1.Scheduler",
        "rpc.method": "Schedule",
        "rpc.grpc.status_code": 0,
    }
    refused = found["scheduler.v1.Scheduler/LookupNode"]
    assert (refused.attributes or {})["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]
    assert refused.status.is_unset


async def test_an_end_does_not_wait_for_a_collector_that_is_away(
    monkeypatch: pytest.MonkeyPatch, exported: InMemorySpanExporter
) -> None:
    monkeypatch.setattr("scheduler.observability.tracing._FLUSH_SECONDS", 0.01)

    class Stuck(TracerProvider):
        def shutdown(self) -> None:
            stuck.wait(60)

    stuck = threading.Event()
    await Tracing(Stuck(shutdown_on_exit=False)).close()
    stuck.set()


def test_without_the_extra_the_process_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"agentenv-scheduler\[otel\]"):
        open_tracing("1")


def test_off_nothing_of_it_is_imported() -> None:
    # Where OpenTelemetry is installed, redis-py imports its metrics, and with them the resources, all the same.
    code = (
        "import sys, scheduler.replica.process, scheduler.service, scheduler.api.http, scheduler.api.grpc;"
        "sys.exit(any(name.startswith(('opentelemetry.sdk.trace', 'opentelemetry.exporter')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
