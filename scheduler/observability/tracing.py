"""OpenTelemetry spans: one around each request, and inside it one around each ledger call.

A caller's `traceparent` is continued. Nothing of this is imported unless `tracing.enabled` is set; destination,
sampling and names come from OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER,
OTEL_SERVICE_NAME, …).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scheduler.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

SERVICE_NAME = "agentenv-scheduler"
_FLUSH_SECONDS = 2.0


def open_tracing(version: str) -> Tracing:
    """Tracing that exports over OTLP and gRPC. Raises ConfigurationError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(
            f'tracing.enabled is true, which needs the extra: pip install "agentenv-scheduler[otel]" ({error})'
        ) from error
    named = Resource.create({"service.name": SERVICE_NAME, "service.version": version})
    provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider, version)


class Tracing:
    """The spans of one process. It has its own provider, so that nothing else in the process starts tracing."""

    def __init__(self, provider: TracerProvider, version: str = "") -> None:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE_NAME, version)
        self._propagator = TraceContextTextMapPropagator()
        self._kinds, self._codes = SpanKind, StatusCode

    @contextmanager
    def request(self, name: str, headers: Mapping[str, str]) -> Iterator[RequestSpan]:
        """A span around one request. `headers`: the caller's, in lower case."""
        parent = self._propagator.extract(headers)
        with self._tracer.start_as_current_span(
            name, parent, self._kinds.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            yield RequestSpan(span, self._codes.ERROR)

    @contextmanager
    def ledger_call(self, operation: str) -> Iterator[RequestSpan]:
        """A span around one ledger call, retries included."""
        attributes = {"db.system.name": "redis", "db.operation.name": operation}
        with self._tracer.start_as_current_span(
            f"ledger {operation}",
            kind=self._kinds.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield RequestSpan(span, self._codes.ERROR)

    async def close(self) -> None:
        """Export what is waiting, for two seconds at most: an unreachable collector delays no stop."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut, daemon=True, name="tracing ends").start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await done.wait()


class RequestSpan:
    """Adds to a span what is known only at the end of the request."""

    def __init__(self, span: Span, error: object) -> None:
        self._span = span
        self._error = error

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, **attributes: str | int) -> None:
        """Set attributes by name, with `__` for a dot."""
        self._span.set_attributes({name.replace("__", "."): value for name, value in attributes.items()})

    def fail(self, kind: str) -> None:
        """The scheduler or its ledger failed, not the request; `kind` is an error code."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._error)  # type: ignore[arg-type]  # a StatusCode, imported only where it is used
