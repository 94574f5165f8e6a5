"""The metrics of a replica: AgentENV's own under their names, and the ledger's.

One `Metrics` belongs to one process and has its own registry; nothing is global. Calls are observed as they happen.
Figures of the whole domain (nodes, pending totals, groups, counters) are read from the ledger at intervals and set
by `show`; see `scheduler.service.overview`. docs/metrics.md lists every family, and a test compares it with this
module.
"""

from __future__ import annotations

import asyncio
import platform
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from scheduler.errors import NoNodes, SchedulerError
from scheduler.observability.ledger_calls import Labelled, LedgerCall, TracedLedgerCall
from scheduler.observability.ledger_figures import LedgerCollector, LedgerFigures
from scheduler.observability.page import PAGE_CONTENT_TYPE, page_of
from scheduler.observability.store_figures import ReplicaFigures, StoreCollector, StoreFigures
from scheduler.observability.timings import TimingCollector, Timings

if TYPE_CHECKING:
    from scheduler.observability.tracing import Tracing

__all__ = ["BUCKETS_SECONDS", "PAGE_CONTENT_TYPE", "Metrics", "refusal_reason", "status_label"]

# AgentENV's buckets: the longest creates take minutes.
BUCKETS_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0),
)

# The gRPC status under which AgentENV counts an outcome; a test holds this to `scheduler.api.status`.
_STATUS_LABEL_BY_CODE = {
    "configuration": "internal",
    "internal": "internal",
    "malformed": "invalid_argument",
    "invalid_request": "invalid_argument",
    "unsupported_media_type": "invalid_argument",
    "not_found": "not_found",
    "conflict": "failed_precondition",
    "no_nodes": "unavailable",
    "overloaded": "unavailable",
    "store_unavailable": "unavailable",
    "not_rebuilt": "unavailable",
    "deadline_exceeded": "deadline_exceeded",
    "head_timeout": "deadline_exceeded",
}


def status_label(error: BaseException | None) -> str:
    """AgentENV's `status` label: ok, canceled, invalid_argument, not_found, failed_precondition,
    unavailable, deadline_exceeded, internal or other."""
    if error is None:
        return "ok"
    if isinstance(error, asyncio.CancelledError):
        return "canceled"
    if not isinstance(error, SchedulerError):
        return "internal"
    # AgentENV answers a report from an unlisted node with INVALID_ARGUMENT, not NOT_FOUND.
    if type(error).__name__ == "NodeNotListed":
        return "invalid_argument"
    return _STATUS_LABEL_BY_CODE.get(error.code, "other")


def refusal_reason(error: NoNodes) -> str:
    """The reason that excluded the most nodes, so that refusals add up; `no_candidates` without any node."""
    if not error.reasons:
        return "no_candidates"
    return min(error.reasons, key=lambda reason: (-error.reasons[reason], reason))


class Metrics:
    """The counters and timers of one process. Methods are named after what happened.

    `tracing`, if any, adds its spans around the same calls."""

    def __init__(self, tracing: Tracing | None = None) -> None:
        self.tracing = tracing
        self.registry = CollectorRegistry()
        registry = self.registry

        def histogram(name: str, what: str, labels: tuple[str, ...]) -> Timings:
            timings = Timings(BUCKETS_SECONDS)
            registry.register(TimingCollector(name, what, labels, timings))
            return timings

        def counters(name: str, what: str, labels: tuple[str, ...]) -> Labelled:
            return Labelled(Counter(name, what, labels, registry=registry))

        def counter(name: str, what: str) -> Counter:
            return Counter(name, what, registry=registry)

        self._rpc = histogram("agentenv_scheduler_rpc_duration_seconds", "gRPC calls", ("rpc", "status"))
        self._schedule = histogram("agentenv_scheduler_schedule_duration_seconds", "Placements", ("strategy", "status"))
        self._assignments = counters(
            "agentenv_scheduler_schedule_assignments_total", "Nodes named for a request", ("strategy",)
        )
        self._http = histogram(
            "agentenv_scheduler_http_request_duration_seconds", "HTTP requests", ("method", "route", "status")
        )
        self._ledger = histogram(
            "agentenv_scheduler_ledger_duration_seconds", "Calls of the ledger, retries included", ("operation",)
        )
        self._store_errors = counters(
            "agentenv_scheduler_store_errors_total", "Ledger calls that failed, by error code", ("operation", "code")
        )
        self._reloads = counters(
            "agentenv_scheduler_reloads_total",
            "Files read again while running: done, or failed and the former content kept",
            ("what", "result"),
        )
        self._refusals = counters(
            "agentenv_scheduler_refusals_total",
            "Placements refused, by the reason that excluded the most nodes",
            ("reason",),
        )
        self._reservation_calls = histogram(
            "agentenv_scheduler_reservation_call_duration_seconds",
            "Confirm, cancel and renew, by result: done, replayed, conflict, not_found or failed",
            ("call", "result"),
        )
        self._replays = counters(
            "agentenv_scheduler_replays_total", "Calls that had already taken effect and were answered again", ("call",)
        )
        self._conflicts = counters(
            "agentenv_scheduler_conflicts_total", "Calls refused because another state is recorded", ("call",)
        )
        self._degraded = counter(
            "agentenv_scheduler_degraded_placements_total", "Last-resort placements on a node that is not fresh"
        )
        self._orphaned = counter(
            "agentenv_scheduler_orphaned_confirmations_total", "Confirmations that came after their reservation expired"
        )
        self._unbound = counter(
            "agentenv_scheduler_unbound_confirmations_total",
            "Confirmations whose node had left discovery, so that no binding could be recorded",
        )
        self._settings_mismatch = Gauge(
            "agentenv_scheduler_settings_mismatch",
            "1 while this replica's settings are not the ledger's",
            registry=registry,
        )
        self._remembered = Gauge(
            "agentenv_scheduler_rebuild_remembered",
            "Reservations this replica remembers, to restore a lost ledger",
            registry=registry,
        )
        self._not_remembered = counters(
            "agentenv_scheduler_rebuild_not_remembered_total",
            "Reservations that this replica does not remember: `full` beyond rebuild.remember, `untold` beyond what "
            "one reply contains",
            ("why",),
        )
        for why in ("full", "untold"):
            self._not_remembered[(why,)].inc(0)
        self._http_in_flight = self._grpc_in_flight = 0
        Gauge("agentenv_scheduler_http_in_flight", "HTTP requests being answered", registry=registry).set_function(
            lambda: self._http_in_flight
        )
        self._http_shed = counter("agentenv_scheduler_http_shed_total", "HTTP requests refused early under load")
        Gauge("agentenv_scheduler_grpc_in_flight", "gRPC calls being answered", registry=registry).set_function(
            lambda: self._grpc_in_flight
        )
        self._grpc_shed = counter("agentenv_scheduler_grpc_shed_total", "gRPC calls refused early under load")
        self._build = Gauge(
            "agentenv_scheduler_build_info",
            "1, with what runs as labels",
            ("version", "python_version"),
            registry=registry,
        )
        self._ready = Gauge(
            "agentenv_scheduler_ready", "1 while this replica may be sent traffic, as /readyz says", registry=registry
        )
        self._ledger_up = Gauge(
            "agentenv_scheduler_ledger_up", "1 while the ledger answers this replica", registry=registry
        )
        self._collector = LedgerCollector()
        self._store = StoreCollector()
        registry.register(self._collector)
        registry.register(self._store)
        ProcessCollector(registry=registry)

    def observe_rpc(self, rpc: str, status: str, seconds: float) -> None:
        """One gRPC call of `scheduler.v1`; `status` is a `status_label`."""
        self._rpc[rpc, status].observe(seconds)

    def observe_schedule(self, strategy: str, status: str, seconds: float) -> None:
        self._schedule[strategy, status].observe(seconds)

    def observe_http(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the path's template, never the path itself."""
        self._http[method, route, str(status)].observe(seconds)

    def observe_reservation_call(self, call: str, result: str, seconds: float) -> None:
        self._reservation_calls[call, result].observe(seconds)

    def count_assignment(self, strategy: str) -> None:
        self._assignments[(strategy,)].inc()

    def count_refusal(self, error: NoNodes) -> None:
        self._refusals[(refusal_reason(error),)].inc()

    def count_replay(self, call: str) -> None:
        self._replays[(call,)].inc()

    def count_conflict(self, call: str) -> None:
        self._conflicts[(call,)].inc()

    def count_reload(self, what: str, result: str) -> None:
        """`what` names the files, `result` is done or failed."""
        self._reloads[what, result].inc()

    def expect_reloads(self, what: str) -> None:
        """Show both results at 0: of a series that begins at 1 Prometheus sees no increase."""
        for result in ("done", "failed"):
            self._reloads[what, result].inc(0)

    def count_degraded(self) -> None:
        self._degraded.inc()

    def count_orphaned(self) -> None:
        self._orphaned.inc()

    def count_unbound(self) -> None:
        self._unbound.inc()

    def count_http_shed(self) -> None:
        self._http_shed.inc()

    def count_grpc_shed(self) -> None:
        self._grpc_shed.inc()

    def show_remembered(self, remembered: int) -> None:
        self._remembered.set(remembered)

    def count_not_remembered(self, why: str, count: int) -> None:
        """`why`: full or untold."""
        self._not_remembered[(why,)].inc(count)

    def set_http_in_flight(self, count: int) -> None:
        self._http_in_flight = count

    def set_grpc_in_flight(self, count: int) -> None:
        self._grpc_in_flight = count

    def set_settings_mismatch(self, mismatch: bool) -> None:
        self._settings_mismatch.set(int(mismatch))

    def set_build(self, version: str) -> None:
        """Call once per process."""
        self._build.labels(version, platform.python_version()).set(1)

    def set_ready(self, ready: bool) -> None:
        self._ready.set(int(ready))

    def set_ledger_up(self, up: bool) -> None:
        self._ledger_up.set(int(up))

    def watch_store(self, name: str, figures: StoreFigures) -> None:
        """Export what this client of the ledger counts; `name` distinguishes the clients of one process."""
        self._store.clients[name] = figures

    def watch_replicas(self, figures: ReplicaFigures) -> None:
        """Export how many Redis replicas there are for the durable writes of this process."""
        self._store.replicas = figures

    def show(self, figures: LedgerFigures | None) -> None:
        """Show the domain's figures until the next call. None: they are unknown, and removed from the page."""
        self._collector.figures = figures

    def ledger_call(self, operation: str) -> AbstractContextManager[object]:
        """`with metrics.ledger_call("confirm"):` around one ledger call."""
        call = LedgerCall(self._ledger, self._store_errors, operation)
        return call if self.tracing is None else TracedLedgerCall(call, self.tracing.ledger_call(operation))

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return page_of(self.registry)
