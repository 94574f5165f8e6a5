"""A replica's HTTP, gRPC and metrics listeners. Each is bound when it is made, so a port in use fails the start."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Protocol

from scheduler.access import KeyRing
from scheduler.access.policy import AccessPolicy
from scheduler.config import ListenAddress, Settings, TlsSettings
from scheduler.errors import ConfigurationError
from scheduler.replica.descriptors import port_limits
from scheduler.replica.grpc_listener import grpc_listener
from scheduler.replica.http_listener import http_listener, metrics_listener
from scheduler.replica.reload import Source

if TYPE_CHECKING:
    from scheduler.service import Services

_BACKLOG = 2048


class Listener(Protocol):
    """`name`, `address` (with the bound port) and `callers` (who may call) are for the log. `sources`: the files it
    reads again when they change."""

    name: str
    address: str
    callers: str
    sources: tuple[Source, ...]

    async def start(self) -> None: ...

    async def drain(self) -> None:
        """Report not ready to probes, and keep answering."""

    async def stop(self, grace_seconds: float) -> None:
        """Accept nothing new; requests in flight have `grace_seconds`, then they are cut off."""


def open_listeners(services: Services, settings: Settings) -> tuple[list[Listener], list[Source]]:
    """Every configured listener, bound and not yet started, and the files they read. Call it on the running loop.

    Raises ConfigurationError, with nothing left bound, when a port cannot be bound or the API keys cannot be read."""
    listeners: list[Listener] = []
    query_only = settings.replica.query_only
    limits = port_limits(settings)
    with contextlib.ExitStack() as opened:
        keys = KeyRing(settings.http.api_keys_file, clock=None) if settings.http.api_keys_file else None
        if not query_only:
            sock = opened.enter_context(bind(settings.http.listen, "http.port"))
            listeners.append(http_listener(services, settings.http, _http_access(settings, keys), (sock, limits.http)))
        if settings.metrics.enabled:
            sock = opened.enter_context(bind(settings.metrics.listen, "metrics_listen_addr"))
            listeners.append(metrics_listener(services, _metrics_access(settings), (sock, limits.metrics)))
        if settings.grpc.enabled:
            # gRPC reports a port in use with a screen of text; this bind reports it in one line.
            bind(settings.grpc.listen, "grpc_listen_addr").close()
            listeners.append(
                grpc_listener(services, settings, _grpc_access(settings, keys), limits.grpc_connections_max)
            )
        opened.pop_all()
    sources = [source for listener in listeners for source in listener.sources]
    if keys is not None:
        sources.append(Source("api_keys", (keys.path,), keys.reload))
    return listeners, sources


def _http_access(settings: Settings, keys: KeyRing | None) -> AccessPolicy:
    http = settings.http
    return AccessPolicy(
        keys, http.listen.is_loopback, _by_certificate(http.tls), http.insecure, frozenset(http.allowed_hosts)
    )


def _metrics_access(settings: Settings) -> AccessPolicy:
    """Open without a key, as Prometheus needs; browsers are checked as on the API, because the page names nodes."""
    listen = settings.metrics.listen
    return AccessPolicy(None, listen.is_loopback, insecure=True, hosts=frozenset(settings.http.allowed_hosts))


def _grpc_access(settings: Settings, keys: KeyRing | None) -> AccessPolicy:
    grpc = settings.grpc
    return AccessPolicy(keys, grpc.listen.is_loopback, _by_certificate(grpc.tls), settings.http.insecure)


def _by_certificate(tls: TlsSettings | None) -> bool:
    return tls is not None and tls.client_ca_file is not None


def bind(listen: ListenAddress, key: str) -> socket.socket:
    """A listening socket. Raises ConfigurationError with the key, the address and the system's reason."""
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
