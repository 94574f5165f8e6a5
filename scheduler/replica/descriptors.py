"""How many connections each HTTP port may hold, by what the process may have open at all."""

from __future__ import annotations

from scheduler.config import Settings
from scheduler.observability.logging import get_logger
from scheduler.replica.connections import ConnectionLimits

log = get_logger(__name__)

_DEFAULT_MAX = 10_000
_METRICS_MAX = 64
_LEAST = 32
# Files, the event loop's own, the gRPC port, and what is open for a moment.
_RESERVED = 64


def connection_limits(settings: Settings) -> tuple[ConnectionLimits, ConnectionLimits]:
    """Of the API's port and of the metrics' port. Descriptors for the ledger come first, then the metrics' few."""
    left = _descriptors() - _RESERVED - (0 if settings.store.is_embedded else settings.store.pool_size)
    metrics_max = max(_LEAST, min(_METRICS_MAX, left // 4)) if settings.metrics.enabled else 0
    fits = max(_LEAST, left - metrics_max)
    wanted = settings.http.connections_max
    if wanted is not None and wanted > fits:
        log.warning("the limit of descriptors leaves room for fewer connections", connections_max=wanted, room=fits)
    return (
        _limits(settings, min(_DEFAULT_MAX if wanted is None else wanted, fits)),
        _limits(settings, metrics_max),
    )


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
