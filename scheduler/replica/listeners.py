"""The doors of a replica. Each is bound when made, so that a taken port is told before anything starts."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Protocol

from scheduler.access import KeyRing
from scheduler.access.doors import Door
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
    """`name`, `address` (the port resolved) and `callers` (who is let in) are for the log. `sources`: what it reads
    from files that may change."""

    name: str
    address: str
    callers: str
    sources: tuple[Source, ...]

    async def start(self) -> None: ...

    async def drain(self) -> None:
        """Tell probes that this replica is leaving; keep answering."""

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new; what is in flight has `grace_seconds`, then it is cut."""


def open_doors(services: Services, settings: Settings) -> tuple[list[Listener], list[Source]]:
    """Every door the settings ask for, bound and not yet started, and all that they read from files. Must be called on
    the running event loop.

    ConfigurationError, with nothing left bound, when one cannot be had or the file of API keys is broken."""
    doors: list[Listener] = []
    query_only = settings.replica.query_only
    limits = port_limits(settings)
    with contextlib.ExitStack() as opened:
        keys = KeyRing(settings.http.api_keys_file, clock=None) if settings.http.api_keys_file else None
        if not query_only:
            sock = opened.enter_context(bind(settings.http.listen, "http.port"))
            doors.append(http_listener(services, settings.http, _http_door(settings, keys), (sock, limits.http)))
        if settings.metrics.enabled:
            sock = opened.enter_context(bind(settings.metrics.listen, "metrics_listen_addr"))
            doors.append(metrics_listener(services, _metrics_door(settings), (sock, limits.metrics)))
        if settings.grpc.enabled:
            # gRPC's own words for a taken port fill a screen; ours come first.
            bind(settings.grpc.listen, "grpc_listen_addr").close()
            doors.append(grpc_listener(services, settings, _grpc_door(settings, keys), limits.grpc_connections_max))
        opened.pop_all()
    sources = [source for door in doors for source in door.sources]
    if keys is not None:
        sources.append(Source("api_keys", (keys.path,), keys.reload))
    return doors, sources


def _http_door(settings: Settings, keys: KeyRing | None) -> Door:
    http = settings.http
    return Door(keys, http.listen.is_loopback, _by_certificate(http.tls), http.insecure, frozenset(http.allowed_hosts))


def _metrics_door(settings: Settings) -> Door:
    """Prometheus shows no key; what it reads names nodes, so browsers are kept out as from the API."""
    listen = settings.metrics.listen
    return Door(None, listen.is_loopback, insecure=True, hosts=frozenset(settings.http.allowed_hosts))


def _grpc_door(settings: Settings, keys: KeyRing | None) -> Door:
    grpc = settings.grpc
    return Door(keys, grpc.listen.is_loopback, _by_certificate(grpc.tls), settings.http.insecure)


def _by_certificate(tls: TlsSettings | None) -> bool:
    return tls is not None and tls.client_ca_file is not None


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
