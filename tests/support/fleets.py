"""Hypothesis strategies for fleets: small numbers on purpose, so that ties, full nodes, exact
fits and restarts come up in almost every run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from scheduler.domain.limits import MIB
from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import Admission, GroupPlacement, GroupSettings, LedgerSettings, NodeResourceLimit

GIB = 1024 * MIB
# Byte order differs from what people sort by: upper case first, digits as text, beyond ASCII last.
NODE_IDS = ("B", "a", "b", "n10", "n9", "é")
SANDBOX_IDS = tuple(f"s{number}" for number in range(8))

node_ids = st.sampled_from(NODE_IDS)
statuses = st.sampled_from([NodeStatus.READY] * 6 + [NodeStatus.CONNECTING, NodeStatus.UNHEALTHY])
# Around both default deadlines: one report_ttl, and the end of a reservation.
waits_ms = st.sampled_from([1, 700, 5_000, 29_999, 30_000, 30_001, 60_000, 600_000])


@st.composite
def first_snapshots(draw: st.DrawFn) -> NodeSnapshot:
    """A report that stands alone."""
    return NodeSnapshot(
        status=draw(statuses),
        cpu_count=draw(st.sampled_from([0, 2, 4, 4, 8])),
        memory_total_bytes=draw(st.sampled_from([0, 4, 8, 8, 16])) * GIB,
        allocated_cpu=draw(st.integers(0, 4)),
        allocated_memory_bytes=draw(st.integers(0, 4)) * GIB,
        paused_allocated_cpu=draw(st.sampled_from([0, 0, 0, 1, 2])),
        paused_allocated_memory_bytes=draw(st.sampled_from([0, 0, 0, 1])) * GIB,
        cpu_percent=draw(st.sampled_from([0, 50, 90])),
        sandbox_count=draw(st.integers(0, 3)),
        sandbox_starting_count=draw(st.sampled_from([0, 0, 1])),
        paused_sandbox_count=draw(st.sampled_from([0, 0, 1])),
        create_successes=draw(st.integers(0, 3)),
        reported_at_unix_ms=1,
    )


@st.composite
def changes(draw: st.DrawFn) -> NodeSnapshot:
    """What a later report adds; `after` applies it. Now and then a counter falls: a restart."""
    return NodeSnapshot(
        status=draw(statuses),
        allocated_cpu=draw(st.integers(-1, 4)),
        allocated_memory_bytes=draw(st.integers(-1, 3)) * GIB,
        sandbox_count=draw(st.integers(-1, 2)),
        create_successes=draw(st.sampled_from([0, 0, 1, 1, 2, 3, -1])),
    )


def after(snapshot: NodeSnapshot, change: NodeSnapshot) -> NodeSnapshot:
    """The next report of a node whose last one was `snapshot`."""
    return replace(
        snapshot,
        status=change.status,
        allocated_cpu=max(0, snapshot.allocated_cpu + change.allocated_cpu),
        allocated_memory_bytes=max(0, snapshot.allocated_memory_bytes + change.allocated_memory_bytes),
        sandbox_count=max(0, snapshot.sandbox_count + change.sandbox_count),
        create_successes=max(0, snapshot.create_successes + change.create_successes),
    )


@st.composite
def hints(draw: st.DrawFn) -> Hint | None:
    kind = draw(st.sampled_from(["cold", "cold", "cold", "template", "ordinary"]))
    if kind == "ordinary":
        return None
    if kind == "template":
        return Hint(HintKind.SANDBOX, template_id=draw(st.sampled_from(["", "known", "unknown"])))
    return Hint(
        HintKind.COLD_SANDBOX,
        cpu_count=draw(st.integers(0, 4)),
        memory_mb=draw(st.sampled_from([0, 512, 1024, 3072])),
        images=draw(st.sampled_from([(), ("app",), ("app",), (" app ", "other"), ("db",)])),
    )


@st.composite
def requests(draw: st.DrawFn, lifecycles: tuple[Lifecycle, ...] = tuple(Lifecycle)) -> ScheduleRequest:
    return ScheduleRequest(
        hint=draw(hints()),
        lifecycle=draw(st.sampled_from(lifecycles)),
        reservation_ttl_ms=draw(st.sampled_from([None, None, None, 10_000])),
        exclude_nodes=tuple(draw(st.sets(node_ids, max_size=2))) if draw(st.integers(0, 4)) == 0 else (),
    )


@st.composite
def limits(draw: st.DrawFn) -> NodeResourceLimit:
    if draw(st.booleans()):
        return NodeResourceLimit()
    name, bound = draw(
        st.sampled_from(
            [
                ("max_sandbox_count", 2),
                ("max_cpu_used_percent", 60),
                ("max_cpu_allocated_percent", 80),
                ("max_memory_allocated_percent", 80),
                ("max_allocated_cpu_including_paused", 5),
                ("max_allocated_memory_bytes_including_paused", 6 * GIB),
            ]
        )
    )
    return NodeResourceLimit(**{name: bound})


@st.composite
def ledger_settings(draw: st.DrawFn, strategies: tuple[Strategy, ...] = tuple(Strategy)) -> LedgerSettings:
    per_mille = st.sampled_from([1000, 1000, 1500, 750, None])
    return LedgerSettings(
        strategy=draw(st.sampled_from(strategies)),
        admission=draw(st.sampled_from(Admission)),
        overcommit_cpu=draw(per_mille),
        overcommit_memory=draw(per_mille),
        node_resource_limit=draw(limits()),
        groups=GroupSettings(
            max_sandbox_count=draw(st.integers(1, 4)),
            max_cpu_count=draw(st.sampled_from([0, 0, 6])),
            max_memory_mb=draw(st.sampled_from([0, 0, 4096])),
            group_placement=draw(st.sampled_from(GroupPlacement)),
            max_open_groups=draw(st.sampled_from([1, 2, 10_000])),
        ),
        cold_default_cpu_count=draw(st.sampled_from([0, 0, 1])),
        cold_default_memory_mb=draw(st.sampled_from([0, 0, 256])),
    )
