"""`inspect repair`: makes anew what `check` finds wrong, from the reservations and what nodes reported.

What a script that was stopped half-way leaves behind is derived: rows, lists, names, groups, indexes. Open
reservations and what nodes said are what it is derived from, and are not changed; nor are records of sandboxes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.inspection.finding import Finding
from scheduler.inspection.key_table import explain_key
from scheduler.inspection.recount import BINDINGS_AT_ONCE, RESERVATIONS_AT_ONCE, check
from scheduler.inspection.walks import SLICE, in_slices, members_of
from scheduler.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Repair:
    """What was wrong, and what still is: by itself for nothing that a report will not bring."""

    found: tuple[Finding, ...]
    left: tuple[Finding, ...]


async def repair(ledger: Ledger, *, apply: bool) -> Repair:
    """Without `apply` nothing is written, and all that was found is left."""
    found = (await check(ledger)).violations
    if not apply or not found:
        return Repair(found, found)
    for _ in range(2):  # what the first pass mends may show what was hidden behind it
        await _mend(ledger, (await check(ledger)).violations)
    return Repair(found, (await check(ledger)).violations)


async def _mend(ledger: Ledger, findings: Iterable[Finding]) -> None:
    subjects: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        kind, _, identity = finding.subject.partition(" ")
        subjects[kind].add(identity)
    clusters = [about.removeprefix("templates of cluster ") for about in subjects["CPU"]]
    run = ledger.runner.run
    for key in subjects["key"]:
        known = explain_key(ledger.keys, key)
        if known is not None and known.kind.name == "reservation:{}":
            subjects["reservation"].add(known.identity)
        elif known is not None and known.kind.name.startswith("node:"):
            subjects["node"].add(known.identity)
        elif known is not None and known.kind.name == "sandbox:{}":
            carrier = await ledger.client.command("GET", key)
            subjects["reservation"].update([carrier.decode()] if carrier else [])
    # A node's findings may be about the reservations that it lists.
    for node_id in subjects["node"]:
        listed = await ledger.client.command("ZRANGE", ledger.keys.node_reservations(node_id), 0, -1)
        subjects["reservation"].update(part.decode() for part in listed)
    for some in in_slices(sorted(subjects["reservation"]), RESERVATIONS_AT_ONCE):
        await run("repair_reservations", *some)
    for node_id in sorted(subjects["node"]):
        await run("repair_node", node_id)
    for cluster_id in sorted(clusters):
        await run("repair_cpu_configs", cluster_id)
    for group_key in sorted(subjects["group"]):
        await ledger.client.pipeline(
            [("HDEL", ledger.keys.groups, group_key), ("ZREM", ledger.keys.groups_recent, group_key)]
        )
    for some in in_slices(sorted(subjects["sandbox"]), BINDINGS_AT_ONCE):
        await _repair_bindings(ledger, some)
    if subjects["shape"] or subjects["node"]:
        shapes = await ledger.client.command("HKEYS", ledger.keys.shapes)
        await ledger.client.pipeline(
            [("UNLINK", *(ledger.keys.shape(name.decode()) for name in shapes), ledger.keys.shapes)]
        )


async def _repair_bindings(ledger: Ledger, sandbox_ids: Sequence[str]) -> None:
    """Which node awaits a sandbox without a record only that node's list knows."""
    _, without = await ledger.runner.run("repair_bindings", *sandbox_ids)
    if not without:
        return
    nodes = [node_id async for node_id in members_of(ledger, "ZSCAN", ledger.keys.nodes)]
    for some in in_slices(nodes, SLICE):
        await ledger.client.pipeline([("ZREM", ledger.keys.node_assigned(node_id), *without) for node_id in some])
