"""The fleet as a whole: how many nodes there are, and how full they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.domain.node import PendingTotals


@dataclass(frozen=True, slots=True)
class Fullness:
    """Of one resource, over the nodes that take creations and say their capacity.

    `allocated`: what nodes reported, paused sandboxes included. `reserved`: promised and not yet reported. `free`:
    what limits and capacity leave. `largest_free`: of that, the most on one node."""

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
    """`observed`: nodes that have reported, by status. `unknown_capacity`: nodes that take creations and do not say
    how many CPUs or how much memory they have. `pending`: node → what is promised on it; not all nodes without any."""

    observed: Mapping[str, int] = field(default_factory=dict)
    unknown_capacity: int = 0
    cpu_count: Fullness = field(default_factory=Fullness)
    memory_bytes: Fullness = field(default_factory=Fullness)
    pending: Mapping[str, PendingTotals] = field(default_factory=dict)
