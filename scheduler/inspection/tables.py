"""Listings of what only the ledger tells: groups and ranking indexes. Programs get the same by `--json`."""

from __future__ import annotations

from scheduler.domain.sandbox import PlacementGroup
from scheduler.inspection.shapes import ShapeLook
from scheduler.operating.listing import Column, Listing
from scheduler.operating.words import age, bar

GROUPS: Listing[PlacementGroup] = Listing(
    "no open groups",
    (
        Column("group", lambda group, _: group.key, lambda group: group.key),
        Column("node", lambda group, _: group.node_id, lambda group: group.node_id),
        Column(
            "sandboxes",
            lambda group, _: bar(group.sandbox_count, group.max_sandbox_count),
            lambda group: group.sandbox_count,
        ),
        Column(
            "cpus", lambda group, _: bar(group.cpu_count, group.max_cpu_count), lambda group: group.cpu_count, "CPUs"
        ),
        Column("mib", lambda group, _: bar(group.memory_mb, group.max_memory_mb), lambda group: group.memory_mb, "MiB"),
        Column("age", lambda group, now_ms: age(now_ms - group.opened_at_ms), lambda group: -group.opened_at_ms),
    ),
)


def _state(shape: ShapeLook, _: int) -> str:
    if shape.outrun:
        return "outrun by the journal: built anew at its next use"
    return "complete" if shape.complete else f"building, at node {shape.built_to or '(the first)'}"


SHAPES: Listing[ShapeLook] = Listing(
    "no shapes",
    (
        Column("shape", lambda shape, _: shape.name, lambda shape: shape.name),
        Column("entries", lambda shape, _: f"{shape.entries:,}", lambda shape: shape.entries),
        Column("behind", lambda shape, _: f"{shape.lag:,}", lambda shape: shape.lag),
        Column(
            "used", lambda shape, now_ms: age(now_ms - shape.last_use_ms) + " ago", lambda shape: -shape.last_use_ms
        ),
        Column("state", _state, lambda shape: shape.complete),
    ),
)
