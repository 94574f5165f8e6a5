"""All services of one replica, built once and shared by HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from scheduler import __version__
from scheduler.observability.call_log import CALLS_PER_SECOND, CallLog
from scheduler.observability.metrics import Metrics
from scheduler.service.artifacts import ArtifactService
from scheduler.service.audit import AuditService
from scheduler.service.bindings import BindingService
from scheduler.service.cpu_configs import CpuConfigs
from scheduler.service.decisions import DecisionService
from scheduler.service.hints import HintService
from scheduler.service.nodes import NodeService
from scheduler.service.overview import OverviewService
from scheduler.service.placement import PlacementService
from scheduler.service.readiness import ReadinessService
from scheduler.service.reservations import ReservationService
from scheduler.service.unlisted import UnlistedResources

if TYPE_CHECKING:
    from scheduler.domain.replica import OwnSettings
    from scheduler.ledger.groups import GroupStore
    from scheduler.ledger.ledger import Ledger
    from scheduler.ledger.templates import TemplateStore

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a replica can do. A service has the names of the ledger's methods and checks, counts and logs around
    them. Templates and groups are the ledger's own: what is asked of them is one call, whose parameters the edge that
    offers it has checked."""

    ledger: Ledger
    placement: PlacementService
    decisions: DecisionService
    audit: AuditService
    nodes: NodeService
    reservations: ReservationService
    bindings: BindingService
    templates: TemplateStore
    groups: GroupStore
    artifacts: ArtifactService
    hints: HintService
    readiness: ReadinessService
    overview: OverviewService
    metrics: Metrics
    own_settings: OwnSettings | None = None

    async def measured(self, operation: str, call: Awaitable[Reply]) -> Reply:
        """The reply of one call of the ledger that no service makes, measured under this name."""
        with self.metrics.ledger_call(operation):
            return await call


def build_services(
    ledger: Ledger,
    *,
    metrics: Metrics | None = None,
    lenient_hints: bool = True,
    calls_logged_per_second: int = CALLS_PER_SECOND,
    decisions_logged: bool = False,
    own_settings: OwnSettings | None = None,
) -> Services:
    """The services over one ledger. `lenient_hints`: how a request's body is read unless the caller sets `strict`.
    `decisions_logged`: each decision is a line of the log. `own_settings`: what this replica is configured with."""
    calls = CallLog(calls_logged_per_second)
    metrics = metrics if metrics is not None else Metrics()
    metrics.set_build(__version__)
    metrics.watch_store("ledger", ledger.client.statistics)
    metrics.watch_replicas(ledger.client.replicas)
    if ledger.client.reader is not ledger.client:
        metrics.watch_store("reader", ledger.client.reader.statistics)
    readiness = ReadinessService(ledger, metrics)
    decisions = DecisionService(ledger.journals, logged=decisions_logged)
    return Services(
        ledger=ledger,
        placement=PlacementService(ledger.placements, metrics, calls, decisions),
        decisions=decisions,
        audit=AuditService(ledger.journals),
        nodes=NodeService(
            ledger.nodes, metrics, CpuConfigs(ledger.cpu_configs), calls, UnlistedResources(ledger.settings)
        ),
        reservations=ReservationService(ledger.reservations, metrics, calls),
        bindings=BindingService(ledger.bindings, metrics, calls),
        templates=ledger.templates,
        groups=ledger.groups,
        artifacts=ArtifactService(ledger.artifacts, metrics),
        hints=HintService(lenient=lenient_hints),
        readiness=readiness,
        overview=OverviewService(ledger, metrics, readiness),
        metrics=metrics,
        own_settings=own_settings,
    )
