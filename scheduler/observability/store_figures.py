"""What a replica's ledger clients count: attempts, retries, connections; and what they know of Redis replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class StoreFigures(Protocol):
    """`scheduler.connection.client.StoreStatistics`."""

    attempts: int
    retries: int
    failures: int
    scripts_reloaded: int
    relocations: int
    backlog_slices: int
    connections_in_use: int
    waiting_for_connection: int
    sharing_connection: int


class ReplicaFigures(Protocol):
    """`scheduler.connection.replicas.RedisReplicas`."""

    wanted: int
    online: int | None


_COUNTERS = (
    ("attempts", "store_attempts", "Attempts to exchange commands with the ledger's server"),
    ("retries", "store_retries", "Attempts that failed and were repeated"),
    ("failures", "store_failures", "Calls that failed for good, expected refusals of scripts not among them"),
    ("scripts_reloaded", "store_scripts_reloaded", "Scripts sent again because the server did not have them"),
    ("relocations", "store_relocations", "Times the client looked up the ledger's server again: a failover"),
    ("backlog_slices", "store_backlog_slices", "Slices of backlog that calls of this replica processed"),
)
_GAUGES = (
    ("connections_in_use", "store_connections_in_use", "Connections of the pool that carry a call"),
    ("waiting_for_connection", "store_connections_awaited", "Calls that wait for a connection of the pool"),
    ("sharing_connection", "store_calls_in_flight", "Calls that wait for their reply on the connection they share"),
)


_REPLICA_GAUGES = (
    ("online", "redis_replicas", "Redis replicas that are online, when the server was last asked"),
    ("wanted", "redis_replicas_wanted", "Redis replicas without which nothing is placed"),
)


class StoreCollector(Collector):
    """`clients`: name → its counts; `ledger` writes and decides, `reader` reads what may lag. `replicas`: shown once
    the server has told of them, where placements wait for any."""

    def __init__(self) -> None:
        self.clients: dict[str, StoreFigures] = {}
        self.replicas: ReplicaFigures | None = None

    def collect(self) -> Iterator[Metric]:
        for kind, families in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for attribute, name, what in families:
                family = kind(f"agentenv_scheduler_{name}", what, labels=["client"])
                for client, figures in self.clients.items():
                    family.add_metric([client], getattr(figures, attribute))
                yield family
        replicas = self.replicas
        for attribute, name, what in _REPLICA_GAUGES:
            gauge = GaugeMetricFamily(f"agentenv_scheduler_{name}", what)
            if replicas is not None and replicas.wanted and replicas.online is not None:
                gauge.add_metric([], getattr(replicas, attribute))
            yield gauge
