"""The doors of a replica. Each is bound when made, so that a taken port is told before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import uvicorn

from scheduler.config import GrpcSettings, HttpSettings, ListenAddress, Settings, TlsSettings
from scheduler.errors import ConfigurationError
from scheduler.replica.connections import ConnectionLimits, Connections, Door
from scheduler.replica.descriptors import port_limits
from scheduler.replica.heads import BoundedProtocol

if TYPE_CHECKING:
    from scheduler.api.grpc.server import GrpcServer
    from scheduler.service import Services

ANYONE = "anyone who can reach it: the network alone guards it"
_BACKLOG = 2048
# Fewer requests are answered at once than connections are held, so that there is always one to give way.
_CONNECTIONS_BESIDE_REQUESTS = 16


class Listener(Protocol):
    """`name`, `address` (the port resolved) and `callers` (who is let in) are for the log."""

    name: str
    address: str
    callers: str

    async def start(self) -> None: ...

    async def drain(self) -> None:
        """Tell probes that this replica is leaving; keep answering."""

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new; what is in flight has `grace_seconds`, then it is cut."""


def open_doors(services: Services, settings: Settings) -> list[Listener]:
    """Every door the settings ask for, bound and not yet started. Must be called on the running event loop.

    ConfigurationError, with nothing left bound, when one cannot be had."""
    doors: list[Listener] = []
    query_only = settings.replica.query_only
    limits = port_limits(settings)
    with contextlib.ExitStack() as opened:
        if not query_only:
            sock = opened.enter_context(bind(settings.http.listen, "http.port"))
            doors.append(http_listener(services, settings.http, sock, limits.http))
        if settings.metrics.enabled:
            sock = opened.enter_context(bind(settings.metrics.listen, "metrics_listen_addr"))
            doors.append(metrics_listener(services, sock, limits.metrics))
        if settings.grpc.enabled:
            # gRPC's own words for a taken port fill a screen; ours come first.
            bind(settings.grpc.listen, "grpc_listen_addr").close()
            doors.append(grpc_listener(services, settings, limits.grpc_connections_max))
        opened.pop_all()
    return doors


def bind(listen: ListenAddress, key: str) -> socket.socket:
    """A listening socket. ConfigurationError names the key, the address, and what is in the way."""
    try:
        if not listen.host:
            return _bind_every_interface(listen.port)
        family, _, _, _, target = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(target, family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"{key}: cannot listen on {listen}: {error.strerror or error}") from error


def _bind_every_interface(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    return socket.create_server(("", port), backlog=_BACKLOG)


class _Server(uvicorn.Server):
    """Signals belong to the replica, which has more than one door to close."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpListener:
    """An ASGI application on a socket: uvicorn answers, a door of ours lets in."""

    def __init__(
        self,
        name: str,
        app: Callable[..., Any],
        sock: socket.socket,
        limits: ConnectionLimits,
        tls: TlsSettings | None = None,
    ) -> None:
        self.name = name
        self.callers = ANYONE
        host, port = sock.getsockname()[:2]
        self.address = f"{'https' if tls else 'http'}://{ListenAddress(host, port)}"
        self._socket = sock
        self._limits = limits
        self._connections = Connections(limits.connections_max)
        protocol = functools.partial(bounded_protocol(), limits=limits, connections=self._connections)
        self._server = _Server(_uvicorn_config(app, tls, protocol))
        self._serving: asyncio.Task[None] | None = None
        self._door: Door | None = None

    async def start(self) -> None:
        """Returns when requests are answered."""
        # Windows' event loop cannot say when somebody knocks: there uvicorn lets in whoever comes.
        own_door = sys.platform != "win32"
        sockets = [] if own_door else [self._socket]
        self._serving = asyncio.create_task(self._server.serve(sockets=sockets), name=f"{self.name} listener")
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError(f"the {self.name} listener ended before it began")
            await asyncio.sleep(0.01)
        if own_door:
            tls = self._server.config.ssl
            self._door = Door(self._socket, self._connections, self._new_protocol, tls, self._limits)
            self._door.open()

    def _new_protocol(self) -> BoundedProtocol:
        server = self._server
        protocol: Any = server.config.http_protocol_class
        made: BoundedProtocol = protocol(server.config, server.server_state, server.lifespan.state)
        return made

    async def drain(self) -> None:
        """`/readyz` tells; nothing to do at the door."""

    async def stop(self, grace_seconds: float) -> None:
        if self._serving is None:
            self._socket.close()
            return
        if self._door is not None:
            await self._door.close()
        # uvicorn counts whole seconds; 0 would mean that it waits for ever.
        self._server.config.timeout_graceful_shutdown = max(1, math.ceil(grace_seconds))
        self._server.should_exit = True
        await self._serving


def bounded_protocol() -> type[BoundedProtocol]:
    """On httptools where it installs, else on h11."""
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
        log_config=None,  # one pipe for all logs: scheduler.observability.logging
        access_log=False,  # the HTTP layer logs requests, with their id
        ws="none",
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        **secured,
    )


def http_listener(
    services: Services, settings: HttpSettings, sock: socket.socket, limits: ConnectionLimits
) -> HttpListener:
    """The API and the console. Raises ConfigurationError when the file of API keys is broken."""
    from scheduler.access import KeyRing
    from scheduler.api.http import HttpOptions, create_app

    options = HttpOptions(
        body_bytes_max=settings.body_bytes_max,
        in_flight_max=min(settings.in_flight_max, limits.connections_max - _CONNECTIONS_BESIDE_REQUESTS),
        request_timeout_ms=settings.request_timeout_ms,
        metrics_need_admin=settings.metrics_need_admin,
    )
    keys = KeyRing(settings.api_keys_file) if settings.api_keys_file else None
    listener = HttpListener("HTTP", create_app(services, options=options, keys=keys), sock, limits, settings.tls)
    if keys is not None:
        listener.callers = "by API key"
    return listener


def metrics_listener(services: Services, sock: socket.socket, limits: ConnectionLimits) -> HttpListener:
    """Prometheus' page on any path, as AgentENV's scrape configurations expect."""
    from scheduler.api.http import create_metrics_app

    return HttpListener("metrics", create_metrics_app(services), sock, limits)


class GrpcListener:
    """The gRPC port."""

    name = "gRPC"

    def __init__(self, server: GrpcServer, settings: GrpcSettings) -> None:
        self._server = server
        self.address = str(ListenAddress(settings.listen.host, server.port))
        mutual = settings.tls is not None and settings.tls.client_ca_file is not None
        self.callers = "by certificate (mTLS)" if mutual else ANYONE

    async def start(self) -> None:
        await self._server.start()

    async def drain(self) -> None:
        await self._server.set_not_serving()

    async def stop(self, grace_seconds: float) -> None:
        await self._server.stop(grace_seconds)


def grpc_listener(services: Services, all_settings: Settings, connections_max: int) -> GrpcListener:
    """Bound to its port."""
    from scheduler.api.grpc import GrpcOptions, TlsFiles, create_server

    settings, http = all_settings.grpc, all_settings.http
    tls = None
    if settings.tls is not None:
        client_ca = settings.tls.client_ca_file
        tls = TlsFiles(
            settings.tls.cert_file.read_bytes(),
            settings.tls.key_file.read_bytes(),
            client_ca.read_bytes() if client_ca else None,
        )
    options = GrpcOptions(
        address=str(settings.listen),
        tls=tls,
        query_only=all_settings.replica.query_only,
        observe=services.metrics.observe_rpc,
        tracing=services.metrics.tracing,
        message_bytes_max=settings.message_bytes_max,
        in_flight_max=settings.in_flight_max,
        connections_max=connections_max,
        handshake_seconds=http.head_timeout_ms / 1000,
        idle_seconds=http.idle_timeout_ms / 1000,
    )
    return GrpcListener(create_server(services, options), settings)
