"""A whole replica exports its spans to a collector, and stops in order when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest

from tests.support.replica_process import ReplicaProcess

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra otel is not installed")

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """OpenTelemetry's own service, keeping what it is sent."""

    def __init__(self) -> None:
        self.resources: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the method's name on the wire
        self.resources += request.resource_spans
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> dict[str, str]:
        """Trace id by name."""
        scopes = [scope for resource in self.resources for scope in resource.scope_spans]
        return {span.name: span.trace_id.hex() for scope in scopes for span in scope.spans}


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    kept = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield kept, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def traced(endpoint: str) -> ReplicaProcess:
    environment = {"SCHEDULER_TRACING_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    return ReplicaProcess("--no-grpc", "--no-metrics-listener", environment=environment)


def test_spans_reach_the_collector_at_the_latest_when_the_replica_stops(collector: tuple[Collector, str]) -> None:
    kept, endpoint = collector
    with traced(endpoint) as replica:
        replica.wait_until_ready()
        httpx.post(f"{replica.url}/v1/schedule", headers={"traceparent": TRACEPARENT})
        assert replica.stop() == 0
    spans = kept.spans()
    assert spans["POST /v1/schedule"] == spans["ledger schedule"] == TRACEPARENT.split("-")[1]
    [service] = {
        attribute.value.string_value
        for resource in kept.resources
        for attribute in resource.resource.attributes
        if attribute.key == "service.name"
    }
    assert service == "agentenv-scheduler"


def test_a_collector_that_is_away_keeps_no_replica_from_stopping() -> None:
    with traced("http://127.0.0.1:9") as replica:
        replica.wait_until_ready()
        assert httpx.post(f"{replica.url}/v1/schedule").status_code == 503  # no node yet: answered all the same
        assert replica.stop() == 0
