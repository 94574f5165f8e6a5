"""Totals over the whole fleet: how many nodes there are, and how full they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.domain.node import PendingTotals


@dataclass(frozen=True, slots=True)
class Fullness:
    """Totals of one resource over the nodes that take creations and report their capacity.

    `allocated`: reported by nodes, paused sandboxes included. `reserved`: held by reservations beyond the reports.
    `free`: what limits and capacity leave. `largest_free`: the most free on one node."""

    capacity: int = 0
    allocated: int = 0
    reserved: int = 0
    free: int = 0
    largest_free: int = 0

    def __add__(self, other: Fullness) -> Fullness:
        return Fullness(
            self.capacity + other.capacity,
            self.allocated + other.allocated,
            self.reserved + other.reserved,
            self.free + other.free,
            max(self.largest_free, other.largest_free),
        )


@dataclass(frozen=True, slots=True)
class FleetTally:
    """`observed`: nodes that have reported, by status. `unknown_capacity`: nodes that take creations and do not
    report their CPUs or memory. `pending`: node → what reservations hold on it; nodes without any may be left out."""

    observed: Mapping[str, int] = field(default_factory=dict)
    unknown_capacity: int = 0
    cpu_count: Fullness = field(default_factory=Fullness)
    memory_bytes: Fullness = field(default_factory=Fullness)
    pending: Mapping[str, PendingTotals] = field(default_factory=dict)
