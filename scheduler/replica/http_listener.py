"""The two HTTP ports of a replica: the API with its console, and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from scheduler.access.policy import AccessPolicy
from scheduler.config import HttpSettings, ListenAddress, TlsSettings
from scheduler.replica.connections import Acceptor, ConnectionLimits, Connections
from scheduler.replica.heads import BoundedProtocol
from scheduler.replica.reload import Source, server_context, tls_files

if TYPE_CHECKING:
    from scheduler.service import Services

_BACKLOG = 2048
# Fewer requests are answered at once than connections are open, so that there is always an idle one to close.
_CONNECTIONS_BESIDE_REQUESTS = 16
_SECONDS_FOR_LAST_REQUESTS = 0.25


class _Server(uvicorn.Server):
    """Signals belong to the replica, which stops several listeners."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpListener:
    """An ASGI application on a socket: uvicorn answers requests, our Acceptor accepts connections."""

    def __init__(
        self,
        name: str,
        app: Callable[..., Any],
        bound: tuple[socket.socket, ConnectionLimits],
        access: AccessPolicy,
        tls: TlsSettings | None = None,
    ) -> None:
        sock, limits = bound
        self.name = name
        self.callers = access.callers
        host, port = sock.getsockname()[:2]
        self.address = f"{'https' if tls else 'http'}://{ListenAddress(host, port)}"
        self.sources: tuple[Source, ...] = (
            () if tls is None else (Source("http_tls", tls_files(tls), self._renew_certificates),)
        )
        self._tls = tls
        self._socket = sock
        self._limits = limits
        self._connections = Connections(limits.connections_max)
        self._context = None if tls is None else server_context("http", tls)
        protocol = functools.partial(bounded_protocol(), limits=limits, connections=self._connections)
        self._draining_app = _CloseWhenDraining(app)
        self._server = _Server(_uvicorn_config(self._draining_app, tls, protocol))
        self._serving: asyncio.Task[None] | None = None
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Returns when requests are answered."""
        # Windows' event loop cannot watch a listening socket: there uvicorn accepts.
        own_acceptor = sys.platform != "win32"
        sockets = [] if own_acceptor else [self._socket]
        self._serving = asyncio.create_task(self._server.serve(sockets=sockets), name=f"{self.name} listener")
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError(f"the {self.name} listener ended before it began")
            await asyncio.sleep(0.01)
        if own_acceptor:
            made = self._new_protocol
            self._acceptor = Acceptor(self._socket, self._connections, made, self._context, self._limits)
            self._acceptor.open()

    def _renew_certificates(self) -> None:
        """Use the certificates now in the files for later connections."""
        assert self._tls is not None  # noqa: S101  without TLS there is no such source
        self._context = server_context("http", self._tls)
        if self._acceptor is not None:
            self._acceptor.tls = self._context
        elif self._server.config.ssl is not None:
            # uvicorn accepts here, with the context it already has; the client authority stays the old one.
            self._server.config.ssl.load_cert_chain(self._tls.cert_file, self._tls.key_file)

    def _new_protocol(self) -> BoundedProtocol:
        server = self._server
        protocol: Any = server.config.http_protocol_class
        made: BoundedProtocol = protocol(server.config, server.server_state, server.lifespan.state)
        return made

    async def drain(self) -> None:
        """`/readyz` reports not ready, and every answer closes its connection, so that callers reconnect elsewhere
        before the stop."""
        self._draining_app.draining = True

    async def stop(self, grace_seconds: float) -> None:
        if self._serving is None:
            self._socket.close()
            return
        await self.drain()
        if self._acceptor is not None:
            await self._acceptor.close()
            await self._wait_for_callers(min(grace_seconds, _SECONDS_FOR_LAST_REQUESTS))
        # uvicorn counts whole seconds; 0 would mean that it waits for ever.
        self._server.config.timeout_graceful_shutdown = max(1, math.ceil(grace_seconds))
        self._server.should_exit = True
        await self._serving

    async def _wait_for_callers(self, seconds: float) -> None:
        """Wait for requests already sent on kept-alive connections; one that sends none in this time had none."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds
        while len(self._connections) and clock() < ends_at:  # noqa: ASYNC110  they end when their callers are done
            await asyncio.sleep(0.01)


class _CloseWhenDraining:
    """Wraps an application: while draining, each answer closes its connection."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self.draining = False

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def last(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and self.draining:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, last)


def bounded_protocol() -> type[BoundedProtocol]:
    """Built on httptools where it is installed, else on h11."""
    try:
        from scheduler.replica.heads_httptools import BoundedHttpTools
    except ImportError:
        from scheduler.replica.heads_h11 import BoundedH11

        return BoundedH11
    return BoundedHttpTools


def _uvicorn_config(
    app: Callable[..., Any], tls: TlsSettings | None, protocol: Callable[..., BoundedProtocol]
) -> uvicorn.Config:
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {"ssl_certfile": str(tls.cert_file), "ssl_keyfile": str(tls.key_file)}
        if tls.client_ca_file is not None:
            secured |= {"ssl_ca_certs": str(tls.client_ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),  # uvicorn only calls it
        log_config=None,  # all logs go through scheduler.observability.logging
        access_log=False,  # the HTTP layer logs requests, with their id
        ws="none",
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        **secured,
    )


def http_listener(
    services: Services, settings: HttpSettings, access: AccessPolicy, bound: tuple[socket.socket, ConnectionLimits]
) -> HttpListener:
    """The API and the console."""
    from scheduler.api.http import HttpOptions, create_app

    _, limits = bound
    options = HttpOptions(
        body_bytes_max=settings.body_bytes_max,
        in_flight_max=min(settings.in_flight_max, limits.connections_max - _CONNECTIONS_BESIDE_REQUESTS),
        request_timeout_ms=settings.request_timeout_ms,
        metrics_need_admin=settings.metrics_need_admin,
        root_path=settings.root_path,
    )
    app = create_app(services, options=options, access=access)
    return HttpListener("HTTP", app, bound, access, settings.tls)


def metrics_listener(
    services: Services, access: AccessPolicy, bound: tuple[socket.socket, ConnectionLimits]
) -> HttpListener:
    """The Prometheus page on any path, as AgentENV's scrape configurations expect."""
    from scheduler.api.http import create_metrics_app

    return HttpListener("metrics", create_metrics_app(services, access), bound, access)
