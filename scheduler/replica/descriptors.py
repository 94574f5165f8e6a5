"""How many connections each port may hold, derived from the process' limit of open files."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.config import Settings
from scheduler.observability.logging import get_logger
from scheduler.replica.connections import ConnectionLimits

log = get_logger(__name__)

_DEFAULT_MAX = 10_000
_METRICS_MAX = 64
_LEAST = 32
# For files, the event loop and short-lived descriptors.
_RESERVED = 64


@dataclass(frozen=True, slots=True)
class PortLimits:
    """The limits of each port. gRPC manages its own connections, so it needs only a number."""

    http: ConnectionLimits
    metrics: ConnectionLimits
    grpc_connections_max: int


def port_limits(settings: Settings, descriptors: int | None = None) -> PortLimits:
    """Ledger connections come first, then the few of the metrics port; HTTP and gRPC share the rest, each at least
    half when both want more."""
    left = (_descriptors() if descriptors is None else descriptors) - _RESERVED
    left -= 0 if settings.store.is_embedded else settings.store.pool_size
    metrics = max(_LEAST, min(_METRICS_MAX, left // 4)) if settings.metrics.enabled else 0
    left -= metrics
    wants_http = 0 if settings.replica.query_only else settings.http.connections_max or _DEFAULT_MAX
    wants_grpc = (settings.grpc.connections_max or _DEFAULT_MAX) if settings.grpc.enabled else 0
    http = min(wants_http, max(_LEAST, left // 2, left - wants_grpc))
    grpc = min(wants_grpc, max(_LEAST, left - http))
    _warn_of("http.connections_max", settings.http.connections_max, http)
    _warn_of("grpc.connections_max", settings.grpc.connections_max, grpc)
    return PortLimits(_limits(settings, http), _limits(settings, metrics), grpc)


def _warn_of(key: str, wanted: int | None, allowed: int) -> None:
    if wanted is not None and wanted > allowed:
        log.warning("the limit of open files allows fewer connections", key=key, wanted=wanted, allowed=allowed)


def _limits(settings: Settings, connections_max: int) -> ConnectionLimits:
    http = settings.http
    return ConnectionLimits(
        connections_max=connections_max,
        head_bytes_max=http.head_bytes_max,
        head_seconds=http.head_timeout_ms / 1000,
        idle_seconds=http.idle_timeout_ms / 1000,
    )


def _descriptors() -> int:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2**31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft
