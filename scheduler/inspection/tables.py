"""Listings of what only the ledger tells: groups and ranking indexes. Programs get the same by `--json`."""

from __future__ import annotations

from scheduler.domain.sandbox import PlacementGroup
from scheduler.inspection.index import FREE, ClassLook
from scheduler.operating.listing import Column, Listing
from scheduler.operating.words import age, bar, known, size

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


def _of_class(each: ClassLook, text: str) -> str:
    """Nodes that are found by what is free on them are of any size."""
    return "" if each.kind == FREE else text


def _memory(each: ClassLook) -> str:
    least, most = known(each.least_memory_bytes, size), known(each.most_memory_bytes, size)
    return least if least == most else f"{least} to {most}"


INDEX: Listing[ClassLook] = Listing(
    "no node is ranked",
    (
        Column("class", lambda each, _: each.name, lambda each: each.name),
        Column("nodes", lambda each, _: f"{each.nodes:,}", lambda each: each.nodes),
        Column(
            "cpus", lambda each, _: _of_class(each, known(each.cpu_capacity)), lambda each: each.cpu_capacity, "CPUs"
        ),
        Column("memory", lambda each, _: _of_class(each, _memory(each)), lambda each: each.most_memory_bytes),
        Column("rows", lambda each, _: f"{each.rows:,}", lambda each: each.rows),
        Column("from", lambda each, _: str(each.lowest), lambda each: each.lowest),
        Column("to", lambda each, _: str(each.highest), lambda each: each.highest),
    ),
)
