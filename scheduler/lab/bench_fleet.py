"""The fleet a benchmark loads, and what it asks for: many large nodes, each with a load of its own."""

from __future__ import annotations

from dataclasses import replace

from scheduler.domain.limits import MIB
from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest

NODE_CPU_COUNT = 1024
NODE_MEMORY_MB = 4 * 1024 * 1024
RESERVATION_TTL_MS = 24 * 3_600_000


def node_id_of(number: int) -> str:
    return f"node-{number:06}"


def endpoint_of(number: int) -> str:
    return f"http://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:8000"


def snapshot_of(number: int, version: int) -> NodeSnapshot:
    """A load of its own for every node and version: between 10 and 30 percent, memory the tighter dimension."""
    memory_mb = NODE_MEMORY_MB // 10 + (number * 7_919 + version * 104_729) % (NODE_MEMORY_MB // 5)
    cpu_count = memory_mb // 8192
    return NodeSnapshot(
        status=NodeStatus.READY,
        cpu_count=NODE_CPU_COUNT,
        memory_total_bytes=NODE_MEMORY_MB * MIB,
        allocated_cpu=cpu_count,
        allocated_memory_bytes=memory_mb * MIB,
        cpu_percent=number % 100,
        memory_used_bytes=memory_mb * MIB // 2,
        sandbox_count=cpu_count // 2,
    )


# What a node may say instead of its own load: nothing runs, or nothing more fits.
IDLE = replace(snapshot_of(0, 0), allocated_cpu=0, allocated_memory_bytes=0, sandbox_count=0)
FULL = replace(snapshot_of(0, 0), allocated_cpu=NODE_CPU_COUNT, allocated_memory_bytes=NODE_MEMORY_MB * MIB)


def request_of(shape: int) -> ScheduleRequest:
    """The request of one shape; the reservation outlives the benchmark, so that none expires within it."""
    hint = Hint(HintKind.COLD_SANDBOX, 1 + shape % 4, 1024 + 64 * shape, images=("registry.invalid/app:1",))
    return ScheduleRequest(hint=hint, reservation_ttl_ms=RESERVATION_TTL_MS)
