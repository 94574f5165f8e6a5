"""The doors of a replica. Each is bound when made, so that a taken port is told before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn

from scheduler.config import GrpcSettings, HttpSettings, ListenAddress, TlsSettings
from scheduler.errors import ConfigurationError
from scheduler.observability.metrics import PAGE_CONTENT_TYPE

if TYPE_CHECKING:
    from scheduler.api.grpc.server import GrpcServer
    from scheduler.service import Services

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75


class Listener(Protocol):
    """`name` and `address` are for the log; `address` is where it listens, the port resolved."""

    name: str
    address: str

    async def start(self) -> None: ...

    async def drain(self) -> None:
        """Tell probes that this replica is leaving; keep answering."""

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new; what is in flight has `grace_seconds`, then it is cut."""


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
    """An ASGI application on a socket, by uvicorn. Also serves the metrics page."""

    def __init__(self, name: str, app: AsgiApp, sock: socket.socket, tls: TlsSettings | None = None) -> None:
        self.name = name
        host, port = sock.getsockname()[:2]
        self.address = f"{'https' if tls else 'http'}://{ListenAddress(host, port)}"
        self._socket = sock
        self._server = _Server(_uvicorn_config(app, tls))
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when requests are answered."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"{self.name} listener")
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError(f"the {self.name} listener ended before it began")
            await asyncio.sleep(0.01)

    async def drain(self) -> None:
        """`/readyz` tells; nothing to do at the door."""

    async def stop(self, grace_seconds: float) -> None:
        if self._serving is None:
            self._socket.close()
            return
        # uvicorn counts whole seconds; 0 would mean that it waits for ever.
        self._server.config.timeout_graceful_shutdown = max(1, math.ceil(grace_seconds))
        self._server.should_exit = True
        await self._serving


def _uvicorn_config(app: AsgiApp, tls: TlsSettings | None) -> uvicorn.Config:
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {"ssl_certfile": str(tls.cert_file), "ssl_keyfile": str(tls.key_file)}
        if tls.client_ca_file is not None:
            secured |= {"ssl_ca_certs": str(tls.client_ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Config(
        app,
        log_config=None,  # one pipe for all logs: scheduler.observability.logging
        access_log=False,  # the HTTP layer logs requests, with their id
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        backlog=_BACKLOG,
        **secured,
    )


def http_listener(app: AsgiApp, settings: HttpSettings, sock: socket.socket) -> HttpListener:
    return HttpListener("HTTP", app, sock, settings.tls)


def metrics_listener(services: Services, sock: socket.socket) -> HttpListener:
    """Prometheus' page on any path, as AgentENV's scrape configurations expect."""

    async def page(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        known = scope["method"] in {"GET", "HEAD"}
        body = await services.overview.page() if known else b""
        headers = [(b"content-type", PAGE_CONTENT_TYPE.encode())] if known else [(b"allow", b"GET, HEAD")]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200 if known else 405, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    return HttpListener("metrics", page, sock)


class GrpcListener:
    """The gRPC port."""

    name = "gRPC"

    def __init__(self, server: GrpcServer, listen: ListenAddress) -> None:
        self._server = server
        self.address = str(ListenAddress(listen.host, server.port))

    async def start(self) -> None:
        await self._server.start()

    async def drain(self) -> None:
        await self._server.set_not_serving()

    async def stop(self, grace_seconds: float) -> None:
        await self._server.stop(grace_seconds)


def grpc_listener(services: Services, settings: GrpcSettings, *, query_only: bool) -> GrpcListener:
    """Bound to its port. Must be called on the running event loop."""
    from scheduler.api.grpc import GrpcOptions, TlsFiles, create_server

    tls = None
    if settings.tls is not None:
        client_ca = settings.tls.client_ca_file
        tls = TlsFiles(
            settings.tls.cert_file.read_bytes(),
            settings.tls.key_file.read_bytes(),
            client_ca.read_bytes() if client_ca else None,
        )
    options = GrpcOptions(
        address=str(settings.listen), tls=tls, query_only=query_only, observe=services.metrics.observe_rpc
    )
    return GrpcListener(create_server(services, options), settings.listen)
