"""All services of one replica, built once and shared by HTTP and gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler import __version__
from scheduler.observability.call_log import CALLS_PER_SECOND, CallLog
from scheduler.observability.metrics import Metrics
from scheduler.service.agreement import AgreementService
from scheduler.service.artifacts import ArtifactService
from scheduler.service.bindings import BindingService
from scheduler.service.cpu_configs import CpuConfigs
from scheduler.service.groups import GroupService
from scheduler.service.hints import HintService
from scheduler.service.nodes import NodeService
from scheduler.service.overview import OverviewService
from scheduler.service.placement import PlacementService
from scheduler.service.readiness import ReadinessService
from scheduler.service.reservations import ReservationService
from scheduler.service.templates import TemplateService

if TYPE_CHECKING:
    from scheduler.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a replica can do. Methods have the names of the ledger's; they check, count and log around them."""

    placement: PlacementService
    nodes: NodeService
    reservations: ReservationService
    bindings: BindingService
    templates: TemplateService
    groups: GroupService
    artifacts: ArtifactService
    hints: HintService
    agreement: AgreementService
    readiness: ReadinessService
    overview: OverviewService
    metrics: Metrics


def build_services(
    ledger: Ledger,
    *,
    metrics: Metrics | None = None,
    lenient_hints: bool = True,
    calls_logged_per_second: int = CALLS_PER_SECOND,
) -> Services:
    """The services over one ledger. `lenient_hints`: how a request's body is read unless the caller sets `strict`."""
    calls = CallLog(calls_logged_per_second)
    metrics = metrics if metrics is not None else Metrics()
    metrics.set_build(__version__)
    metrics.watch_store("ledger", ledger.client.statistics)
    if ledger.client.reader is not ledger.client:
        metrics.watch_store("reader", ledger.client.reader.statistics)
    readiness = ReadinessService(ledger, metrics)
    return Services(
        placement=PlacementService(ledger.placements, metrics, calls),
        nodes=NodeService(ledger.nodes, metrics, CpuConfigs(ledger.cpu_configs), calls),
        reservations=ReservationService(ledger.reservations, metrics, calls),
        bindings=BindingService(ledger.bindings, metrics, calls),
        templates=TemplateService(ledger.templates, metrics),
        groups=GroupService(ledger.groups, metrics),
        artifacts=ArtifactService(ledger.artifacts, metrics),
        hints=HintService(lenient=lenient_hints),
        agreement=AgreementService(ledger, metrics),
        readiness=readiness,
        overview=OverviewService(ledger, metrics, readiness),
        metrics=metrics,
    )
