"""The gRPC port of a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.access.policy import AccessPolicy
from scheduler.config import GrpcSettings, ListenAddress, Settings, TlsSettings
from scheduler.errors import ConfigurationError
from scheduler.observability.logging import get_logger
from scheduler.replica.reload import Source, server_context, tls_files

if TYPE_CHECKING:
    from scheduler.api.grpc import GrpcOptions, TlsFiles
    from scheduler.api.grpc.server import GrpcServer
    from scheduler.service import Services

log = get_logger(__name__)


class GrpcListener:
    """The gRPC port."""

    name = "gRPC"

    def __init__(self, server: GrpcServer, settings: GrpcSettings, access: AccessPolicy) -> None:
        self._server = server
        self._tls = settings.tls
        self.sources: tuple[Source, ...] = (
            () if settings.tls is None else (Source("grpc_tls", tls_files(settings.tls), self._renew_certificates),)
        )
        self.address = str(ListenAddress(settings.listen.host, server.port))
        self.callers = access.callers

    async def start(self) -> None:
        await self._server.start()

    def _renew_certificates(self) -> None:
        """Use the certificates now in the files for later connections."""
        assert self._tls is not None  # noqa: S101  without TLS there is no such source
        self._server.renew_certificates(_read_tls(self._tls))

    async def drain(self) -> None:
        await self._server.set_not_serving()

    async def stop(self, grace_seconds: float) -> None:
        await self._server.stop(grace_seconds)


def grpc_listener(
    services: Services, all_settings: Settings, access: AccessPolicy, connections_max: int
) -> GrpcListener:
    """A listener that is bound to its port."""
    from scheduler.api.grpc import GrpcOptions, create_server

    settings, http = all_settings.grpc, all_settings.http
    options = GrpcOptions(
        address=str(settings.listen),
        tls=None if settings.tls is None else _read_tls(settings.tls),
        access=access,
        keys_for_upstream=settings.api_keys,
        reflection=settings.reflection,
        query_only=all_settings.replica.query_only,
        metrics=services.metrics,
        tracing=services.metrics.tracing,
        message_bytes_max=settings.message_bytes_max,
        in_flight_max=settings.in_flight_max,
        connections_max=connections_max,
        handshake_seconds=http.head_timeout_ms / 1000,
        idle_seconds=http.idle_timeout_ms / 1000,
    )
    listener = GrpcListener(create_server(services, options), settings, options.upstream_access)
    _warn_of_open_services(settings, options)
    return listener


def _read_tls(tls: TlsSettings) -> TlsFiles:
    """Raises ConfigurationError for files that cannot be used together."""
    from scheduler.api.grpc import TlsFiles

    server_context("grpc", tls)
    try:
        client_ca = None if tls.client_ca_file is None else tls.client_ca_file.read_bytes()
        return TlsFiles(tls.cert_file.read_bytes(), tls.key_file.read_bytes(), client_ca)
    except OSError as error:
        raise ConfigurationError(f"grpc.tls: {error.strerror or error}") from None


def _warn_of_open_services(settings: GrpcSettings, options: GrpcOptions) -> None:
    listen = str(settings.listen)
    if not options.access.serves_own_api:
        log.warning(
            "agentenv.scheduler.v1alpha is not served: gRPC listens beyond loopback, without API keys and without "
            "client certificates",
            grpc_listen_addr=listen,
        )
    open_to_all = options.upstream_access.keys is None and not options.access.certificates
    if open_to_all and not settings.listen.is_loopback:
        log.warning(
            "scheduler.v1 needs neither API key nor certificate; only the network guards it", grpc_listen_addr=listen
        )
