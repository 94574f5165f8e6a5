"""A tracing span around every call of the port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from scheduler.observability.tracing import Tracing

Behaviour = Callable[[Any, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Any]]

# The statuses that OpenTelemetry's conventions count as errors of the server.
_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)


def traced(tracing: Tracing, path: str, answer: Behaviour) -> Behaviour:
    """`path`: the full service and the method, `scheduler.v1.Scheduler/Schedule`."""

    async def answer_in_span(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        metadata = context.invocation_metadata() or ()
        headers = {str(name): value for name, value in metadata if isinstance(value, str)}
        service, _, method = path.partition("/")
        with tracing.request(path, headers) as span:
            span.set(rpc__system="grpc", rpc__service=service, rpc__method=method)
            code = grpc.StatusCode.CANCELLED
            try:
                response = await answer(request, context)
                code = grpc.StatusCode.OK
            except grpc.aio.AbortError:
                code = _status_of(context)
                raise
            finally:
                span.set(rpc__grpc__status_code=code.value[0])
                if code in _FAULTS:
                    span.fail(code.name)
        return response

    return answer_in_span


def _status_of(context: grpc.aio.ServicerContext[Any, Any]) -> grpc.StatusCode:
    """The status that the call was aborted with."""
    found: Any = context.code()  # a StatusCode or, as grpc.aio documents it, its number
    codes = (code for code in grpc.StatusCode if found in (code, code.value[0]))
    return next(codes, grpc.StatusCode.UNKNOWN)
