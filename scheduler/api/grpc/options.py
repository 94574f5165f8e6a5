"""Options of the gRPC port."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scheduler.access.policy import AccessPolicy
from scheduler.observability.metrics import Metrics
from scheduler.observability.tracing import Tracing

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM bytes, not paths: the listener reads the files and notices changes.

    With `client_ca` only callers with a certificate of that authority are answered (mTLS)."""

    certificate: bytes
    private_key: bytes
    client_ca: bytes | None = None


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """`address` is `host:port`; AgentENV's own `:9090` means every interface, port 0 any free one.

    `query_only` leaves LookupNode and health, everything else is UNIMPLEMENTED.
    `access` says who may call our own API, which a port open beyond loopback does not serve; `scheduler.v1` asks for
    keys only with `keys_for_upstream`.
    `reflection`: whether tools may ask which services there are and what they take.
    `message_bytes_max`: AgentENV's nodes need 4 MiB, a roster of 110,000 ids.
    `in_flight_max`: calls in progress at once, over all connections; further ones are answered UNAVAILABLE at once.
    `connections_max` None: as many as the process may open. A connection has `handshake_seconds` until it speaks
    HTTP/2, and may be without a call for `idle_seconds`.
    `default_deadline_seconds` is for callers that send none. `metrics`: where calls are counted and timed. `tracing`:
    spans around them."""

    address: str = "127.0.0.1:9090"
    tls: TlsFiles | None = None
    query_only: bool = False
    access: AccessPolicy = field(default_factory=AccessPolicy)
    keys_for_upstream: bool = False
    reflection: bool = False
    message_bytes_max: int = 4 * MIB
    in_flight_max: int = 1024
    connections_max: int | None = None
    handshake_seconds: float = 10.0
    idle_seconds: float = 75.0
    default_deadline_seconds: float = 10.0
    metrics: Metrics = field(default_factory=Metrics)
    tracing: Tracing | None = None

    @property
    def upstream_access(self) -> AccessPolicy:
        """The access policy of `scheduler.v1`, whose clients usually send no keys."""
        return self.access if self.keys_for_upstream else replace(self.access, keys=None)

    @property
    def listen_address(self) -> str:
        return f"[::]{self.address}" if self.address.startswith(":") else self.address
