"""Around every request: its id, its undecoded path, the load limit, and unexpected errors.

Plain ASGI, because every request passes here and nothing more is needed.
"""

from __future__ import annotations

import asyncio
import os
import re
from urllib.parse import quote

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.api.http.header_fields import HeaderFields
from scheduler.api.http.options import HttpOptions
from scheduler.api.http.route import problem_response
from scheduler.domain.path_prefix import without_prefix
from scheduler.errors import Overloaded, SchedulerError, forget_frames
from scheduler.observability.logging import REQUEST_ID, writes_debug
from scheduler.observability.metrics import Metrics
from scheduler.observability.tracing import Tracing

log = structlog.get_logger("scheduler.http")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
# Health, readiness and metrics are answered under any load.
_ALWAYS_ANSWERED = frozenset({"/healthz", "/readyz", "/metrics"})


class Edge:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics, options: HttpOptions) -> None:
        self._app = app
        self._metrics = metrics
        self._in_flight_max = options.in_flight_max
        self._root_path = options.root_path
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        if method == "HEAD":
            # Answered as GET without its body; the server's own scope keeps HEAD, so it knows.
            scope = {**scope, "method": "GET"}
        # Routes match the path as it was sent, so that an id may hold an escaped slash.
        raw_path: bytes | None = scope.get("raw_path")
        scope["path"] = quote(scope["path"]) if raw_path is None else raw_path.partition(b"?")[0].decode("latin-1")
        if self._root_path:
            scope["path"] = without_prefix(scope["path"], self._root_path)
        request_id = scope["request_id"] = _request_id(HeaderFields.of(scope))
        answer = _Answer(send, request_id, with_body=method != "HEAD")
        self._in_flight += 1
        self._metrics.set_http_in_flight(self._in_flight)
        clock = asyncio.get_running_loop().time
        started = clock()
        logged_as = REQUEST_ID.set(request_id)
        try:
            if self._metrics.tracing is None or scope["path"] in _ALWAYS_ANSWERED:
                await self._serve(scope, receive, answer)
            else:
                await self._serve_traced(self._metrics.tracing, scope, receive, answer)
        finally:
            REQUEST_ID.reset(logged_as)
            self._in_flight -= 1
            self._metrics.set_http_in_flight(self._in_flight)
            method = method if method in _METHODS else "other"
            template = scope.get("route_template", "unmatched")
            self._metrics.observe_http(method, template, answer.status, clock() - started)
            if answer.status != 503 and answer.status >= 500:
                log.warning("request", method=method, route=template, status=answer.status, request_id=request_id)
            elif writes_debug():
                log.debug("request", method=method, route=template, status=answer.status, request_id=request_id)

    async def _serve_traced(self, tracing: Tracing, scope: Scope, receive: Receive, answer: _Answer) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with tracing.request(method, headers) as span:
            span.set(http__request__method=method, http__request__id=scope["request_id"])
            try:
                with structlog.contextvars.bound_contextvars(trace_id=span.trace_id):
                    await self._serve(scope, receive, answer)
            finally:
                template = scope.get("route_template", "unmatched")
                span.name(f"{method} {template}")
                span.set(http__route=template, http__response__status_code=answer.status)
                if answer.status >= 500:
                    span.fail(str(answer.status))

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            if self._in_flight > self._in_flight_max and scope["path"] not in _ALWAYS_ANSWERED:
                self._metrics.count_http_shed()
                raise Overloaded("too many requests are being answered; this one was not begun")
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            log.debug("the caller disconnected before its request was complete", path=scope["path"])
        except SchedulerError as error:
            forget_frames(error)
            await answer.problem(error, scope, receive)
        except Exception:
            # Any unexpected error: the trace goes to the log, the caller gets a problem without it.
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if answer.status:
                raise
            await answer.problem(SchedulerError("internal error"), scope, receive)


class _Answer:
    """The way back to the caller: adds the request id and records the status."""

    __slots__ = ("_request_id", "_send", "_with_body", "status")

    def __init__(self, send: Send, request_id: str, *, with_body: bool) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self._with_body = with_body
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._request_id)]
        elif not self._with_body:
            message = {**message, "body": b""}
        await self._send(message)

    async def problem(self, error: SchedulerError, scope: Scope, receive: Receive) -> None:
        await problem_response(error, Request(scope))(scope, receive, self)


def _request_id(headers: HeaderFields) -> str:
    """The caller's own id when it is safe to log, else a new one."""
    for given in headers.all(b"x-request-id"):
        if _REQUEST_ID.fullmatch(given):
            return given
    return os.urandom(16).hex()
