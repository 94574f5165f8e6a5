"""The domain's figures as Prometheus metrics, from one reading of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.domain.fleet import FleetTally
from scheduler.domain.node import PendingTotals
from scheduler.domain.reservation import OpenReservations, ReservationState
from scheduler.domain.resources import Amounts

_STATES = frozenset(ReservationState)
ACTIVE_STATES = (ReservationState.PENDING, ReservationState.CONFIRMED)
OBSERVED_STATUSES = ("ready", "connecting", "unhealthy", "lingering", "unspecified")

# How full the fleet is in further resources: part → what it is.
RESOURCE_PARTS = {
    "capacity": "that nodes report",
    "allocated": "reported as allocated",
    "reserved": "held by reservations until they end",
    "free": "left by capacity",
}

# Nodes with a series of their own; the others are summed under `_other`, so the number of series is bounded.
NODES_SHOWN = 200
OTHER_NODES = "_other"


@dataclass(frozen=True, slots=True)
class LedgerFigures:
    """One reading. `resources`: sums of further ones, by part (RESOURCE_PARTS). `stats` are the domain's counters; the
    rest is its present state."""

    fleet: FleetTally = field(default_factory=FleetTally)
    resources: Mapping[str, Amounts] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)
    open_reservations: Sequence[OpenReservations] = ()
    open_groups: int = 0
    settings_revision: int | None = None
    clock_skew_ms: int = 0


class LedgerCollector(Collector):
    """Exports the latest reading, and nothing without one: an unknown figure must not look like a known one."""

    def __init__(self) -> None:
        self.figures: LedgerFigures | None = None

    def collect(self) -> Iterator[Metric]:
        figures = self.figures
        if figures is None:
            return
        yield _observed_nodes(figures.fleet)
        yield from _fullness(figures.fleet)
        yield from _resources(figures.resources)
        yield from _pending_by_node(figures.fleet.pending)
        yield from _open_reservations(figures.open_reservations)
        yield from _counters(figures.stats)
        yield GaugeMetricFamily(
            "agentenv_scheduler_open_groups", "Open placement groups of the domain", value=figures.open_groups
        )
        yield GaugeMetricFamily(
            "agentenv_scheduler_clock_skew_seconds",
            "How far ledger time is ahead of the Redis server's clock, because that was stepped back",
            value=figures.clock_skew_ms / 1000,
        )
        if figures.settings_revision is not None:
            yield GaugeMetricFamily(
                "agentenv_scheduler_settings_revision",
                "Revision of the settings in force",
                value=figures.settings_revision,
            )

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before the ledger was read, so nothing is declared at registration."""
        return ()


def _observed_nodes(fleet: FleetTally) -> Metric:
    gauge = GaugeMetricFamily("agentenv_scheduler_observed_nodes", "Nodes that have reported", labels=["status"])
    for status in OBSERVED_STATUSES:
        gauge.add_metric([status], fleet.observed.get(status, 0))
    return gauge


def _fullness(fleet: FleetTally) -> Iterator[Metric]:
    """How full the nodes that take creations are."""
    parts = {
        "capacity": "with overcommit",
        "allocated": "reported as allocated, to paused sandboxes as well",
        "reserved": "held by reservations and not yet reported",
        "free": "left by capacity and limits",
        "largest_free": "left on the node that has the most",
    }
    for part, what in parts.items():
        yield GaugeMetricFamily(
            f"agentenv_scheduler_fleet_{part}_cpu_count", f"CPUs {what}", value=getattr(fleet.cpu_count, part)
        )
        yield GaugeMetricFamily(
            f"agentenv_scheduler_fleet_{part}_memory_bytes", f"Memory {what}", value=getattr(fleet.memory_bytes, part)
        )
    yield GaugeMetricFamily(
        "agentenv_scheduler_fleet_unknown_capacity_nodes",
        "Nodes that take creations and do not report how many CPUs or how much memory they have",
        value=fleet.unknown_capacity,
    )


def _resources(sums: Mapping[str, Amounts]) -> Iterator[Metric]:
    for part, what in RESOURCE_PARTS.items():
        gauge = GaugeMetricFamily(
            f"agentenv_scheduler_fleet_{part}_resource", f"Further resources {what}", labels=["resource"]
        )
        for name, amount in sorted(sums.get(part, {}).items()):
            gauge.add_metric([name], amount)
        yield gauge


def _pending_by_node(pending: Mapping[str, PendingTotals]) -> Iterator[Metric]:
    kinds = {
        "sandbox_count": ("agentenv_scheduler_pending_sandboxes", "Sandboxes reserved and not yet reported"),
        "cpu_count": ("agentenv_scheduler_pending_cpu_count", "CPUs reserved and not yet reported"),
        "memory_bytes": ("agentenv_scheduler_pending_memory_bytes", "Memory reserved and not yet reported"),
    }
    # The nodes with the most pending sandboxes are listed first.
    by_load = sorted(pending, key=lambda node_id: (-pending[node_id].sandbox_count, node_id))
    alone, together = by_load[:NODES_SHOWN], by_load[NODES_SHOWN:]
    for part, (name, what) in kinds.items():
        gauge = GaugeMetricFamily(name, what, labels=["node"])
        for node_id in alone:
            gauge.add_metric([node_id], getattr(pending[node_id], part))
        if together:
            gauge.add_metric([OTHER_NODES], sum(getattr(pending[node_id], part) for node_id in together))
        yield gauge


def _open_reservations(tally: Sequence[OpenReservations]) -> Iterator[Metric]:
    """Reservations that hold capacity, by node and state, and the age of the oldest."""
    active = GaugeMetricFamily(
        "agentenv_scheduler_active_reservations", "Reservations that hold capacity", labels=["node", "state"]
    )
    age = GaugeMetricFamily(
        "agentenv_scheduler_oldest_reservation_seconds", "Age of the oldest reservation in that state", labels=["state"]
    )
    for state in ACTIVE_STATES:
        by_count = sorted((each for each in tally if each.state is state), key=lambda each: (-each.count, each.node_id))
        for each in by_count[:NODES_SHOWN]:
            active.add_metric([each.node_id, state.value], each.count)
        if together := by_count[NODES_SHOWN:]:
            active.add_metric([OTHER_NODES, state.value], sum(each.count for each in together))
        age.add_metric([state.value], max((each.oldest_ms for each in by_count), default=0) / 1000)
    yield from (active, age)


def _counters(stats: Mapping[str, int]) -> Iterator[Metric]:
    """The ledger's counters: reservations by the state they reached, groups by why they closed, placements by
    what their node held, the rest by name."""
    reached = CounterMetricFamily(
        "agentenv_scheduler_reservations", "Reservations by the state they reached", labels=["state"]
    )
    closed = CounterMetricFamily("agentenv_scheduler_groups_closed", "Groups closed, by reason", labels=["reason"])
    placed = CounterMetricFamily(
        "agentenv_scheduler_affinity_placements",
        "Placements with an image or template while affinity is on, by whether the node held it",
        labels=["found"],
    )
    others = CounterMetricFamily("agentenv_scheduler_ledger_events", "Other counters of the domain", labels=["event"])
    for name, count in sorted(stats.items()):
        if name.removeprefix("reservations_") in _STATES:
            reached.add_metric([name.removeprefix("reservations_")], count)
        elif name.startswith("groups_closed_"):
            closed.add_metric([name.removeprefix("groups_closed_")], count)
        elif name.startswith("affinity_"):
            placed.add_metric([name.removeprefix("affinity_")], count)
        else:
            others.add_metric([name], count)
    yield from (reached, closed, placed, others)
