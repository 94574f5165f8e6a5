"""What a trace asks for at its peak, beside what its machines have: whether refusals tell about the strategy at all."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scheduler.lab.trace import Trace


@dataclass(frozen=True, slots=True)
class PeakDemand:
    """The most CPUs and the most MiB that are wanted at one instant (not always the same one) if all of it is placed.
    A capacity is None when a machine does not tell its own."""

    cpu_count: int
    memory_mb: int
    cpu_capacity: int | None
    memory_capacity_mb: int | None

    @property
    def is_beyond(self) -> bool:
        """Whether the fleet could not hold it, however it were placed."""
        pairs = ((self.cpu_count, self.cpu_capacity), (self.memory_mb, self.memory_capacity_mb))
        return any(capacity is not None and wanted > capacity for wanted, capacity in pairs)

    def sentences(self) -> str:
        cpus = _of(self.cpu_count, self.cpu_capacity, 1, "CPUs")
        told = f"At its peak the trace asks for {cpus} and {_of(self.memory_mb, self.memory_capacity_mb, 1024, 'GiB')}."
        if self.is_beyond:
            told += (
                " That is more than the fleet has: refusals and pressure above 1 are for want of machines, whatever the"
                " strategy. Take more nodes, fewer requests or a smaller --time-scale."
            )
        return told

    def as_dict(self) -> dict[str, Any]:
        return {
            "peak_cpu_count": self.cpu_count,
            "fleet_cpu_count": self.cpu_capacity,
            "peak_memory_mb": self.memory_mb,
            "fleet_memory_mb": self.memory_capacity_mb,
        }


def peak_demand(trace: Trace) -> PeakDemand:
    peak_cpu_count = peak_memory_mb = 0
    for cpu_count, memory_mb in _wanted_over_time(trace):
        peak_cpu_count, peak_memory_mb = max(peak_cpu_count, cpu_count), max(peak_memory_mb, memory_mb)
    cpus = [node.cpu_count for node in trace.nodes]
    memory = [node.memory_mb for node in trace.nodes]
    return PeakDemand(
        peak_cpu_count, peak_memory_mb, sum(cpus) if all(cpus) else None, sum(memory) if all(memory) else None
    )


def _wanted_over_time(trace: Trace) -> Iterator[tuple[int, int]]:
    """(CPUs, MiB) after each arrival; what ends in the same instant has gone before."""
    cpu_count = memory_mb = 0
    ends: list[tuple[int, int, int]] = []
    for request in trace.requests:
        while ends and ends[0][0] <= request.arrival_ms:
            _, ended_cpu_count, ended_memory_mb = heapq.heappop(ends)
            cpu_count, memory_mb = cpu_count - ended_cpu_count, memory_mb - ended_memory_mb
        cpu_count, memory_mb = cpu_count + request.cpu_count, memory_mb + request.memory_mb
        if request.duration_ms is not None:
            heapq.heappush(ends, (request.arrival_ms + request.duration_ms, request.cpu_count, request.memory_mb))
        yield cpu_count, memory_mb


def _of(wanted: int, capacity: int | None, unit_size: int, unit: str) -> str:
    if capacity is None:
        return f"{wanted / unit_size:,.0f} {unit} (the fleet's are not known)"
    return f"{wanted / unit_size:,.0f} of {capacity / unit_size:,.0f} {unit} ({wanted / capacity:.0%})"
