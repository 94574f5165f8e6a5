"""The gRPC port of a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.access.doors import Door
from scheduler.config import GrpcSettings, ListenAddress, Settings
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.api.grpc import GrpcOptions
    from scheduler.api.grpc.server import GrpcServer
    from scheduler.service import Services

log = get_logger(__name__)


class GrpcListener:
    """The gRPC port."""

    name = "gRPC"

    def __init__(self, server: GrpcServer, settings: GrpcSettings, door: Door) -> None:
        self._server = server
        self.address = str(ListenAddress(settings.listen.host, server.port))
        self.callers = door.callers

    async def start(self) -> None:
        await self._server.start()

    async def drain(self) -> None:
        await self._server.set_not_serving()

    async def stop(self, grace_seconds: float) -> None:
        await self._server.stop(grace_seconds)


def grpc_listener(services: Services, all_settings: Settings, door: Door, connections_max: int) -> GrpcListener:
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
        door=door,
        keys_for_upstream=settings.api_keys,
        query_only=all_settings.replica.query_only,
        observe=services.metrics.observe_rpc,
        tracing=services.metrics.tracing,
        message_bytes_max=settings.message_bytes_max,
        in_flight_max=settings.in_flight_max,
        connections_max=connections_max,
        handshake_seconds=http.head_timeout_ms / 1000,
        idle_seconds=http.idle_timeout_ms / 1000,
    )
    listener = GrpcListener(create_server(services, options), settings, options.upstream_door)
    _warn_of_what_is_open(settings, options)
    return listener


def _warn_of_what_is_open(settings: GrpcSettings, options: GrpcOptions) -> None:
    listen = str(settings.listen)
    if not options.door.is_guarded:
        log.warning(
            "agentenv.scheduler.v1alpha is not served: gRPC listens beyond loopback, and neither API keys nor "
            "certificates guard it",
            grpc_listen_addr=listen,
        )
    open_to_all = options.upstream_door.keys is None and not options.door.certificates
    if open_to_all and not settings.listen.is_loopback:
        log.warning("scheduler.v1 asks nobody who they are; only the network guards it", grpc_listen_addr=listen)
