"""Which nodes may be chosen, and in which order: classes, limits, admission, pressure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.settings import LedgerSettings, Limits, NodeResourceLimit
from tests.support.index_oracle import alike
from tests.support.model.facts import ModelNode, Totals


@dataclass(frozen=True)
class Request:
    """A request after templates and defaults were looked up. Memory is in bytes; 0: not stated."""

    creation: bool
    cpu: int
    memory: int


class Rank(IntEnum):
    """The classes of `least_loaded`, best first. Those that are full are chosen only where admission does
    not look: then the least overfull node is. One that would be above a limit or lacks a resource never is."""

    KNOWN = 0
    UNKNOWN = 1
    AVOIDED = 2
    AVOIDED_UNKNOWN = 3
    NO_CPU = 4
    NO_MEMORY = 5
    OVER_LIMIT = 6
    LACKING = 7


def over_limit(limit: NodeResourceLimit, snapshot: NodeSnapshot | None) -> bool:
    """Strictly above any stated limit. A node that never reported passes."""
    if snapshot is None:
        return False

    def percent(part: int, whole: int) -> int:
        return part * 100 // whole if whole > 0 else 0

    figures = {
        "max_sandbox_count": snapshot.sandbox_count,
        "max_sandbox_starting_count": snapshot.sandbox_starting_count,
        "max_cpu_used_percent": snapshot.cpu_percent,
        "max_cpu_allocated_percent": percent(snapshot.allocated_cpu, snapshot.cpu_count),
        "max_memory_used_percent": percent(snapshot.memory_used_bytes, snapshot.memory_total_bytes),
        "max_memory_allocated_percent": percent(snapshot.allocated_memory_bytes, snapshot.memory_total_bytes),
        "max_sandbox_count_including_paused": snapshot.sandbox_count + snapshot.paused_sandbox_count,
        "max_allocated_cpu_including_paused": snapshot.allocated_cpu + snapshot.paused_allocated_cpu,
        "max_allocated_memory_bytes_including_paused": (
            snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes
        ),
    }
    stated = {name: getattr(limit, name) for name in figures}
    return any(bound is not None and figures[name] > bound for name, bound in stated.items())


def exceeds_when_created(node: ModelNode, pending: Totals, wanted: Request, settings: LedgerSettings) -> bool:
    """Whether reported + pending + the creation itself is above a limit that counts or sums."""
    if settings.limits is Limits.REPORTED or not wanted.creation:
        return False
    report, limit = node.snapshot or NodeSnapshot(), settings.node_resource_limit
    cpu, memory, count = pending.cpu + wanted.cpu, pending.memory + wanted.memory, pending.count + 1
    running = report.sandbox_count + report.sandbox_starting_count
    projected = NodeSnapshot(
        cpu_count=report.cpu_count,
        memory_total_bytes=report.memory_total_bytes,
        allocated_cpu=report.allocated_cpu + cpu,
        allocated_memory_bytes=report.allocated_memory_bytes + memory,
        paused_allocated_cpu=report.paused_allocated_cpu,
        paused_allocated_memory_bytes=report.paused_allocated_memory_bytes,
        sandbox_count=running + count,
        sandbox_starting_count=report.sandbox_starting_count + count,
        paused_sandbox_count=report.paused_sandbox_count,
    )
    return over_limit(replace(limit, max_cpu_used_percent=None, max_memory_used_percent=None), projected)


def node_class(node: ModelNode, now_ms: int, settings: LedgerSettings) -> str:
    """lingering, unhealthy, over_limit, ready or connecting; the first that applies."""
    if node.lingering or (node.snapshot is not None and node.snapshot.status is NodeStatus.LINGERING):
        return "lingering"
    status = node.status(now_ms, settings.report_ttl_ms)
    if status is NodeStatus.UNHEALTHY:
        return "unhealthy"
    if over_limit(settings.node_resource_limit, node.snapshot):
        return "over_limit"
    return "ready" if status is NodeStatus.READY else "connecting"


@dataclass(frozen=True)
class Dimension:
    """CPU or memory of one node. `capacity` None: not known. `bounded`: admission looks at it."""

    capacity: int | None
    bounded: bool
    load: int
    pending: int
    requested: int

    @property
    def fits(self) -> bool:
        if self.capacity is None or not self.bounded:
            return True
        if self.requested == 0:
            return self.load + self.pending < self.capacity
        return self.load + self.pending + self.requested <= self.capacity

    @property
    def needed_but_unknown(self) -> bool:
        return self.capacity is None and self.requested + self.pending > 0

    @property
    def pressure(self) -> float | None:
        if self.capacity is None:
            return None
        projected = self.load + self.pending + self.requested
        return projected / self.capacity if self.capacity else (float("inf") if projected else 0.0)


def dimensions(
    node: ModelNode, pending: Totals, request: Request, settings: LedgerSettings
) -> tuple[Dimension, Dimension]:
    """CPU first, memory second."""
    report, lowered = node.snapshot or NodeSnapshot(), node.lowered
    return (
        Dimension(
            _effective(report.cpu_count, settings.overcommit_cpu),
            settings.overcommit_cpu is not None,
            max(0, report.allocated_cpu + report.paused_allocated_cpu - lowered.cpu),
            pending.cpu,
            request.cpu,
        ),
        Dimension(
            _effective(report.memory_total_bytes, settings.overcommit_memory),
            settings.overcommit_memory is not None,
            max(0, report.allocated_memory_bytes + report.paused_allocated_memory_bytes - lowered.memory),
            pending.memory,
            request.memory,
        ),
    )


def _effective(advertised: int, per_mille: int | None) -> int | None:
    if advertised <= 0:
        return None
    return advertised if per_mille is None else advertised * per_mille // 1000


def insufficient(cpu: Dimension, memory: Dimension) -> str | None:
    """The first dimension that is full, as refusals name it."""
    if not cpu.fits:
        return "insufficient_cpu"
    return None if memory.fits else "insufficient_memory"


def could_hold(snapshot: NodeSnapshot | None, wanted: Request, settings: LedgerSettings) -> bool:
    """Whether the node could hold the request if nothing else were on it."""
    report = snapshot or NodeSnapshot()
    cpu = _effective(report.cpu_count, settings.overcommit_cpu)
    memory = _effective(report.memory_total_bytes, settings.overcommit_memory)
    most_cpu = cpu if cpu is not None and settings.overcommit_cpu is not None else max(cpu or 0, 65_536)
    most_memory = memory if memory is not None and settings.overcommit_memory is not None else max(memory or 0, 2**44)
    return wanted.cpu <= most_cpu and wanted.memory <= most_memory


def fullness(
    node: ModelNode, pending: Totals, request: Request, settings: LedgerSettings
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Which nodes are alike (the same CPUs, and memory within a 64th of an octave), and among these how full one is:
    its CPUs first, then how little memory is free."""
    cpu, memory = dimensions(node, pending, request, settings)
    free = 0 if memory.capacity is None else memory.capacity - memory.load - memory.pending
    return alike(cpu.capacity or 0, memory.capacity or 0), (cpu.load + cpu.pending if cpu.capacity else 0, -free)


# Class, pressure, starting + pending, running, paused: equal keys are a tie.
RankKey = tuple[Rank, float, int, int, int]


def rank_key(node: ModelNode, connecting: bool, pending: Totals, request: Request, settings: LedgerSettings) -> RankKey:
    """Where a candidate stands for this request. A connecting node ranks as unknown."""
    cpu, memory = dimensions(node, pending, request, settings)
    report = node.snapshot or NodeSnapshot()
    counts = (report.sandbox_starting_count + pending.count, report.sandbox_count, report.paused_sandbox_count)
    pressures = [value for value in (cpu.pressure, memory.pressure) if value is not None]
    shortage = insufficient(cpu, memory) if request.creation else None
    if exceeds_when_created(node, pending, request, settings):
        return (Rank.OVER_LIMIT, max(pressures, default=0.0), *counts)
    if shortage is not None:
        return (Rank.NO_CPU if shortage == "insufficient_cpu" else Rank.NO_MEMORY, max(pressures), *counts)
    if connecting or not pressures or cpu.needed_but_unknown or memory.needed_but_unknown:
        return (Rank.UNKNOWN, 0.0, *counts)
    return (Rank.KNOWN, max(pressures), *counts)
