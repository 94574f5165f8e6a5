"""Listings for people. Programs get the same by `--json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from rich.table import Table

from scheduler.domain.duration import format_duration
from scheduler.domain.node import Node
from scheduler.domain.reservation import Reservation
from scheduler.domain.sandbox import PlacementGroup
from scheduler.domain.wording import counted
from scheduler.inspection.one_node import Capacity
from scheduler.inspection.shapes import ShapeLook

NONE = "–"
BAR_CELLS = 10
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def nodes_table(nodes: Sequence[Node], capacities: Mapping[str, Capacity], now_ms: int) -> Table:
    """`CPUs` and `memory` are allocated, paused included, of what the node has after overcommit."""
    table = _table("node", "status", "pressure", "running", "CPUs", "memory", "pending", "seen", "not chosen for")
    for node in nodes:
        snapshot, pending, capacity = node.snapshot, node.pending, capacities[node.node_id]
        allocated = snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes
        table.add_row(
            node.node_id,
            node.status.value,
            NONE if node.pressure.highest is None else f"{node.pressure.highest:.4f}",
            str(snapshot.sandbox_count),
            f"{snapshot.allocated_cpu + snapshot.paused_allocated_cpu} of {_known(capacity.cpu_count, str)}",
            f"{size(allocated)} of {_known(capacity.memory_bytes, size)}",
            f"{pending.sandbox_count}: {counted(pending.cpu_count, 'CPU')}, {size(pending.memory_bytes)}",
            "never" if node.last_seen_ms is None else age(now_ms - node.last_seen_ms),
            node.ineligible_reason or "",
        )
    return table


def reservations_table(reservations: Sequence[Reservation], now_ms: int) -> Table:
    table = _table("reservation", "node", "state", "lifecycle", "CPUs", "memory", "age", "left", "sandbox", "why")
    for reservation in reservations:
        over = reservation.finished_at_ms is not None
        told = reservation.sandbox_told or reservation.sandbox_id is None
        table.add_row(
            reservation.reservation_id,
            reservation.node_id,
            reservation.state.value,
            reservation.lifecycle.value,
            str(reservation.cpu_count or "?"),
            size(reservation.memory_bytes) if reservation.memory_bytes else "?",
            age(now_ms - reservation.created_at_ms),
            "" if over else age(reservation.expires_at_ms - now_ms),
            (reservation.sandbox_id or "") + ("" if told else " (by an event)"),
            reservation.reason or "",
        )
    return table


def groups_table(groups: Sequence[PlacementGroup], now_ms: int) -> Table:
    table = _table("group", "node", "sandboxes", "CPUs", "MiB", "age")
    for group in groups:
        table.add_row(
            group.key,
            group.node_id,
            bar(group.sandbox_count, group.max_sandbox_count),
            bar(group.cpu_count, group.max_cpu_count),
            bar(group.memory_mb, group.max_memory_mb),
            age(now_ms - group.opened_at_ms),
        )
    return table


def shapes_table(shapes: Sequence[ShapeLook], now_ms: int) -> Table:
    table = _table("shape", "entries", "behind", "used", "state")
    for shape in shapes:
        state = "complete" if shape.complete else f"building, at node {shape.built_to or '(the first)'}"
        if shape.outrun:
            state = "outrun by the journal: built anew at its next use"
        table.add_row(
            shape.name, f"{shape.entries:,}", f"{shape.lag:,}", age(now_ms - shape.last_use_ms) + " ago", state
        )
    return table


def bar(used: int, budget: int) -> str:
    """`████░░░░░░ 4 of 10`; without a budget only what is used."""
    if budget == 0:
        return f"{used}"
    cells = min(BAR_CELLS, round(BAR_CELLS * used / budget))
    return f"{'█' * cells}{'░' * (BAR_CELLS - cells)} {used} of {budget}"


def age(ms: int) -> str:
    """Whole seconds from one second on: `12s`, `1h30m`."""
    return format_duration(ms if abs(ms) < 1000 else ms - ms % 1000)


def size(count: int) -> str:
    """`512 MiB`, `1.5 GiB`."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def instant(at_ms: int) -> str:
    """`2026-01-31 12:00:00.125 UTC`."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d} UTC"


def _known(capacity: int | None, shown: Callable[[int], str]) -> str:
    return "?" if capacity is None else shown(capacity)


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
