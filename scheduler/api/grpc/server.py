"""The gRPC port: AgentENV's service, our own, and health on one `grpc.aio` server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from scheduler.api.grpc import reservations_v1alpha, scheduler_v1
from scheduler.api.grpc.answering import Answering
from scheduler.api.grpc.health import Health
from scheduler.api.grpc.options import GrpcOptions, TlsFiles
from scheduler.api.grpc.sockets import cut_connections
from scheduler.errors import ConfigurationError
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.service import Services

log = get_logger(__name__)

STOP_GRACE_SECONDS = 10.0
METADATA_BYTES_MAX = 16 * 1024
# grpc-go's clients ping every ten seconds at most, without calls every five minutes.
PING_INTERVAL_MS_MIN = 10_000

# Beside `readiness`; the empty name is what grpc_health_probe asks without options.
_HEALTH_NAMES = ("", scheduler_v1.SERVICE)


class GrpcServer:
    """A `grpc.aio.Server` that knows its port and reports NOT_SERVING before it stops."""

    def __init__(
        self,
        server: grpc.aio.Server,
        port: int,
        answering: Answering,
        health: Health,
        certificates: _Certificates | None,
    ) -> None:
        self.server = server
        self.port = port
        self._answering = answering
        self._health = health
        self._certificates = certificates
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    async def start(self) -> None:
        await self._health.serve(*_HEALTH_NAMES)
        await self.server.start()

    async def set_not_serving(self) -> None:
        """Health checks fail from now on, so that balancers switch; calls are still answered."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace: float | None = STOP_GRACE_SECONDS) -> None:
        """Report NOT_SERVING, accept no new calls, and give those in progress `grace` seconds.

        A caller that is refused meanwhile or cut off at the end gets UNAVAILABLE."""
        await self.set_not_serving()
        await self._answering.leave(grace or 0)
        # Where connections cannot be cut, calls that grpc has not yet passed on are reset.
        cut_connections(self.port)
        await self.server.stop(None)

    def renew_certificates(self, files: TlsFiles) -> None:
        """Use new certificates for later connections. Check the files before: the port cannot report that they are
        invalid."""
        if self._certificates is None:
            raise ConfigurationError("this port was opened without TLS")
        self._certificates.files = files

    async def wait_for_termination(self) -> None:
        await self.server.wait_for_termination()


def create_server(services: Services, options: GrpcOptions | None = None) -> GrpcServer:
    """A server bound to its address but not started; call it on the running event loop.

    Raises ConfigurationError when the address cannot be bound."""
    options = options or GrpcOptions()
    server = grpc.aio.server(options=_channel_arguments(options))
    answering = Answering(options)
    scheduler = scheduler_v1.SchedulerV1(services)
    methods = scheduler.methods(query_only=options.query_only)
    handlers = [answering.generic_handler(scheduler_v1.SERVICE, methods, options.upstream_access)]
    if not options.query_only and options.access.serves_own_api:
        reservations = reservations_v1alpha.ReservationsV1Alpha(services)
        handlers.append(
            answering.generic_handler(
                reservations_v1alpha.SERVICE, reservations.methods(), options.access, reservations_v1alpha.translate
            )
        )
    server.add_generic_rpc_handlers(handlers)
    if options.reflection:
        ours = [reservations_v1alpha.SERVICE] if len(handlers) > 1 else []
        _reflect(server, [scheduler_v1.SERVICE, *ours])
    certificates = None if options.tls is None else _Certificates(options.tls)
    port = _bind(server, options, certificates)
    return GrpcServer(server, port, answering, Health(services.readiness.check), certificates)


def _reflect(server: grpc.aio.Server, names: list[str]) -> None:
    """Raises ConfigurationError when the package for it is not installed."""
    try:
        from grpc_reflection.v1alpha import reflection
    except ImportError:
        raise ConfigurationError("grpc.reflection: install agentenv-scheduler[reflection] for it") from None
    served = [*names, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(served, server)


def _channel_arguments(options: GrpcOptions) -> list[tuple[str, int]]:
    arguments = {
        "grpc.max_receive_message_length": options.message_bytes_max,
        # A list of 10,000 observed nodes with their CPU templates exceeds the limit for received messages.
        "grpc.max_send_message_length": -1,
        # More than are answered at once, so that a caller with one connection is refused at once too.
        "grpc.max_concurrent_streams": 2 * options.in_flight_max,
        # AgentENV's clients send no metadata; what a proxy or a tracer adds is small.
        "grpc.max_metadata_size": METADATA_BYTES_MAX,
        "grpc.absolute_max_metadata_size": METADATA_BYTES_MAX,
        "grpc.server_handshake_timeout_ms": round(options.handshake_seconds * 1000),
        "grpc.max_connection_idle_ms": round(options.idle_seconds * 1000),
        # Closes connections of peers that have vanished, or that ping too often.
        "grpc.keepalive_time_ms": round(options.idle_seconds * 1000),
        "grpc.keepalive_timeout_ms": round(options.handshake_seconds * 1000),
        "grpc.http2.min_ping_interval_without_data_ms": PING_INTERVAL_MS_MIN,
        "grpc.http2.max_ping_strikes": 2,
        # A second process on the port is a mistake that must be reported, not load balancing.
        "grpc.so_reuseport": 0,
    }
    if options.connections_max is not None:
        arguments["grpc.max_allowed_incoming_connections"] = options.connections_max
    return list(arguments.items())


def _bind(server: grpc.aio.Server, options: GrpcOptions, certificates: _Certificates | None) -> int:
    address = options.listen_address
    try:
        if certificates is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, certificates.credentials())
    except RuntimeError as error:
        raise ConfigurationError(f"grpc_listen_addr is {options.address!r}; it cannot be bound: {error}") from error
    return port


class _Certificates:
    """The port's certificates. gRPC's threads read them for each connection, so they are replaced in one assignment."""

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._handed_out = files

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(self.files),
            self._fetch,  # type: ignore[arg-type]  # grpc documents None, the stubs do not
            require_client_authentication=self.files.client_ca is not None,
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """None: unchanged. Two connections at once may both get the new ones, which is harmless."""
        files = self.files
        if files is self._handed_out:
            return None
        self._handed_out = files
        return self._configuration(files)

    @staticmethod
    def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(files.private_key, files.certificate)], root_certificates=files.client_ca
        )
