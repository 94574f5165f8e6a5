"""Random fleets, reports and requests: small numbers on purpose, so that ties, full nodes, exact
fits and restarts come up in almost every run. Everything comes from the `random.Random` handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from scheduler.domain.limits import MIB
from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Spread, Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.settings import (
    Admission,
    AffinitySettings,
    GroupPlacement,
    GroupSettings,
    LedgerSettings,
    Limits,
    NodeResourceLimit,
)

T = TypeVar("T")
GIB = 1024 * MIB
# Byte order differs from what people sort by: upper case first, digits as text, beyond ASCII last.
NODE_IDS = ("B", "a", "b", "n10", "n9", "é")
# Around both default deadlines: one report_ttl, and the end of a reservation.
WAITS_MS = (1, 700, 5_000, 5_000, 29_999, 30_000, 30_001, 60_000, 600_000)

_MOSTLY_READY = (*[NodeStatus.READY] * 7, NodeStatus.CONNECTING, NodeStatus.UNHEALTHY, NodeStatus.LINGERING)
_LIMITS = (
    {"max_sandbox_count": 2},
    {"max_sandbox_starting_count": 0},
    {"max_cpu_used_percent": 60},
    {"max_cpu_allocated_percent": 75},
    {"max_memory_allocated_percent": 75},
    {"max_allocated_cpu_including_paused": 4},
    {"max_allocated_memory_bytes_including_paused": 4 * GIB},
    {"max_sandbox_count_including_paused": 4},
    {"max_sandbox_starting_count": 2, "max_cpu_allocated_percent": 120},
)


def some(random: Random, choices: Sequence[T], least: int, most: int) -> list[T]:
    """A few of them, each at most once, in any order."""
    return random.sample(choices, random.randint(least, min(most, len(choices))))


def first_snapshot(random: Random) -> NodeSnapshot:
    """A report that stands alone."""
    return NodeSnapshot(
        status=random.choice(_MOSTLY_READY),
        cpu_count=random.choice([0, 2, 4, 4, 8, 8]),
        memory_total_bytes=random.choice([0, 4, 8, 8, 16, 16]) * GIB,
        allocated_cpu=random.choice([0, 0, 1, 2, 3, 4]),
        allocated_memory_bytes=random.choice([0, 0, 1, 2, 3, 4]) * GIB,
        paused_allocated_cpu=random.choice([0, 0, 0, 1, 2]),
        paused_allocated_memory_bytes=random.choice([0, 0, 0, 1]) * GIB,
        cpu_percent=random.choice([0, 60, 61]),
        sandbox_count=random.choice([0, 1, 2, 3]),
        sandbox_starting_count=random.choice([0, 0, 1]),
        paused_sandbox_count=random.choice([0, 0, 1]),
        create_successes=random.randint(0, 3),
        reported_at_unix_ms=1,
    )


def next_snapshot(random: Random, before: NodeSnapshot) -> NodeSnapshot:
    """The next report of a node whose last one was `before`. Now and then a counter falls: a restart."""

    def moved(value: int, *changes: int) -> int:
        return max(0, value + random.choice(changes))

    return replace(
        before,
        status=random.choice(_MOSTLY_READY),
        allocated_cpu=moved(before.allocated_cpu, -2, -1, 0, 0, 1, 1, 2, 3),
        allocated_memory_bytes=moved(before.allocated_memory_bytes, -GIB, 0, 0, GIB // 2, GIB, 3 * GIB),
        sandbox_count=moved(before.sandbox_count, -1, 0, 0, 1),
        create_successes=moved(before.create_successes, 0, 0, 1, 1, 2, 3, -1),
    )


def hint(random: Random) -> Hint | None:
    kind = random.choice(["cold", "cold", "cold", "template", "ordinary"])
    if kind == "ordinary":
        return None
    if kind == "template":
        return Hint(HintKind.SANDBOX, template_id=random.choice(["", "known", "unknown"]))
    return Hint(
        HintKind.COLD_SANDBOX,
        cpu_count=random.choice([0, 1, 1, 2, 2, 3, 3, 5, 9]),
        memory_mb=random.choice([0, 512, 512, 1024, 1024, 3072, 3072, 6144, 20 * 1024]),
        images=random.choice([(), ("app",), ("app",), (" app ", "other"), ("db",)]),
    )


def demanding(random: Random, wanted: Hint) -> Hint:
    """Half of all creations ask for more than CPUs and memory."""
    if random.random() < 0.5:
        return wanted
    return replace(
        wanted,
        require=random.choice([{}, {}, {}, {"zone": ("a",)}, {"zone": ("a", "b")}, {"model": ("h100",)}]),
        resources=random.choice([{}, {}, {"gpu": 1}, {"gpu": 2}, {"disk": 4}, {"disk": 1, "gpu": 1}]),
        spread=Spread(
            random.choice(["k1", "k1", "k2"]),
            over=random.choice(["node", "node", "zone", "model"]),
            **random.choice([{"max": 1}, {"max": 2}, {"skew": 1}, {"skew": 2}]),
        )
        if random.random() < 0.6
        else None,
    )


def labels(random: Random, reported: bool) -> dict[str, str]:
    """What a node reports, and what the API tells of it, differ in names and agree on few values."""
    zones = random.choice([{}, {"zone": "a"}, {"zone": "a"}, {"zone": "b"}])
    return {**zones, **random.choice([{}, {"model": "h100"}, {"model": "l4"}])} if reported else zones


def resources(random: Random) -> dict[str, ResourceLoad]:
    """A node that tells no disk has enough of it; one that tells no GPU has none."""
    disk = random.choice([None, None, ResourceLoad(8), ResourceLoad(8, 6), ResourceLoad(0)])
    gpu = random.choice([None, None, ResourceLoad(1), ResourceLoad(2, 1), ResourceLoad(4)])
    return {name: load for name, load in (("disk", disk), ("gpu", gpu)) if load is not None}


def request(random: Random, lifecycles: Sequence[Lifecycle] = tuple(Lifecycle)) -> ScheduleRequest:
    wanted = hint(random)
    return ScheduleRequest(
        hint=wanted and demanding(random, wanted),
        lifecycle=random.choice(lifecycles),
        reservation_ttl_ms=random.choice([None, None, None, 10_000]),
        exclude_nodes=tuple(some(random, NODE_IDS, 1, 2)) if random.random() < 0.15 else (),
    )


def ledger_settings(random: Random, strategies: Sequence[Strategy] = tuple(Strategy)) -> LedgerSettings:
    per_mille = (1000, 1000, 1500, 750, None)
    return LedgerSettings(
        strategy=random.choice(strategies),
        admission=random.choice(list(Admission)),
        fill_to=random.choice([0, 0, 500, 1000]),
        affinity=AffinitySettings(random.choice([None, 0, 200, 1000]), random.choice([1, 2, 8])),
        overcommit_cpu=random.choice(per_mille),
        overcommit_memory=random.choice(per_mille),
        node_resource_limit=NodeResourceLimit(**random.choice(_LIMITS))
        if random.random() < 0.5
        else NodeResourceLimit(),
        limits=random.choice([Limits.PENDING, Limits.PENDING, Limits.REPORTED]),
        groups=GroupSettings(
            max_sandbox_count=random.randint(1, 4),
            max_cpu_count=random.choice([0, 0, 6]),
            max_memory_mb=random.choice([0, 0, 4096]),
            group_placement=random.choice(list(GroupPlacement)),
            max_open_groups=random.choice([1, 2, 10_000]),
        ),
        cold_default_cpu_count=random.choice([0, 0, 1]),
        cold_default_memory_mb=random.choice([0, 0, 256]),
        resources=("gpu",),
        scarce=random.choice([(), (), ("gpu",), ("disk", "model"), ("model",)]),
    )
