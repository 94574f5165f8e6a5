"""`inspect repair`: makes anew what `check` finds wrong, from the reservations and what nodes reported.

What a script that was stopped half-way leaves behind is derived: rows, lists, names, groups, indexes. Open
reservations and what nodes said are what it is derived from, and are not changed; nor are records of sandboxes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.inspection.finding import Finding
from scheduler.inspection.key_table import Bound, explain_key
from scheduler.inspection.recount import ARTIFACTS_AT_ONCE, BINDINGS_AT_ONCE, RESERVATIONS_AT_ONCE, check
from scheduler.inspection.spreads import SpreadWalk
from scheduler.inspection.walks import SLICE, in_slices, members_of
from scheduler.ledger.ledger import Ledger

COUNTED_AT_MOST = 5
# What is to end by itself and has no end gets this one.
ENDS_IN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Repair:
    """What was wrong, and what still is: by itself for nothing that a report will not bring."""

    found: tuple[Finding, ...]
    left: tuple[Finding, ...]


async def repair(ledger: Ledger, *, apply: bool) -> Repair:
    """Without `apply` nothing is written, and all that was found is left."""
    found = (await check(ledger)).violations
    left = found
    for _ in range(2):  # what the first pass repairs may show what was hidden behind it
        if not apply or not left:
            break
        await _mend(ledger, left)
        left = (await check(ledger)).violations
    return Repair(found, left)


async def _mend(ledger: Ledger, findings: Iterable[Finding]) -> None:
    subjects: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        kind, _, identity = finding.subject.partition(" ")
        subjects[kind].add(identity)
        if kind == "class" and (chunk := re.search(r"rows from (\d+)", finding.detail)):
            subjects["row"].add(f"{identity}:{chunk[1]}")
    clusters = [about.removeprefix("templates of cluster ") for about in subjects["CPU"]]
    run = ledger.runner.run
    for key in subjects["key"]:
        known = explain_key(ledger.keys, key)
        if known is not None and known.kind.name == "reservation:{}":
            subjects["reservation"].add(known.identity)
        elif known is not None and known.kind.name.startswith("node:"):
            subjects["node"].add(known.identity)
        elif known is not None and known.kind.name == "row:{}":
            subjects["row"].add(known.identity)
        elif known is not None and known.kind.name == "sandbox:{}":
            carrier = await ledger.client.command("GET", key)
            subjects["reservation"].update([carrier.decode()] if carrier else [])
        elif known is not None and known.kind.bound is Bound.TTL:
            await ledger.client.command("PEXPIRE", key, ENDS_IN_MS)
    if subjects["capacities"]:
        subjects["node"].update(await _nodes_of_two_capacities(ledger))
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
    await _repair_artifacts(ledger, sorted(subjects["artifact"]))
    await _repair_warm_keys(ledger, sorted(subjects["warm"]))
    for name in sorted(subjects["resource"]):
        nodes = [node_id async for node_id in members_of(ledger, "ZSCAN", ledger.keys.named(f"resource:{name}"))]
        for some in in_slices(nodes, SLICE):
            await run("repair_resource", name, *some)
    if subjects["artifact_scopes"] or subjects["capacities"]:
        await _repair_totals(ledger)
    if subjects["tallies"]:
        await ledger.client.command("HDEL", ledger.keys.tallies, "counted")
        await run("count_tallies")
    for group_key in sorted(subjects["group"]):
        await ledger.client.pipeline(
            [("HDEL", ledger.keys.groups, group_key), ("ZREM", ledger.keys.groups_recent, group_key)]
        )
    if subjects["spread"]:
        walk = SpreadWalk(ledger)
        await walk.read()
        for spread_key in sorted(subjects["spread"]):
            await walk.judge("repair_spread", spread_key)
    if subjects["template"]:
        await ledger.client.command("ZREM", ledger.keys.templates, *sorted(subjects["template"]))
    for some in in_slices(sorted(subjects["sandbox"]), BINDINGS_AT_ONCE):
        await _repair_bindings(ledger, some)
    await _repair_index(ledger, subjects)


async def _repair_index(ledger: Ledger, subjects: Mapping[str, set[str]]) -> None:
    """What stands where it does not belong goes; repair_node has put every node where it does belong."""
    names = subjects["row"] | subjects["unknown"]
    for class_name in subjects["class"]:
        field = ledger.keys.heads
        names |= {
            f"{class_name}:{16 * int(chunk.rpartition(':')[2]) + row}"
            async for chunk in members_of(ledger, "HSCAN", field)
            if chunk.rpartition(":")[0] == class_name
            for row in range(16)
        }
    for name in sorted(names):
        first = 0
        while True:
            _, (taken, met) = await ledger.runner.run("repair_index", name, first)
            if not int(met):
                break
            first += SLICE - int(taken)


async def _repair_bindings(ledger: Ledger, sandbox_ids: Sequence[str]) -> None:
    """Which node awaits or lists a sandbox without a record only that node knows. What is off its roster is new to its
    next report, which then records it."""
    _, without = await ledger.runner.run("repair_bindings", *sandbox_ids)
    if not without:
        return
    keys, client = ledger.keys, ledger.client
    async for some in _nodes_in_slices(ledger):
        await client.pipeline([("ZREM", keys.node_assigned(node_id), *without) for node_id in some])
        taken = await client.pipeline([("SREM", keys.node_sandboxes(node_id), *without) for node_id in some])
        changed = [node_id for node_id, count in zip(some, taken, strict=True) if int(count)]
        if changed:
            await client.pipeline([("HDEL", keys.node(node_id), "roster_digest") for node_id in changed])


async def _repair_artifacts(ledger: Ledger, artifacts: Sequence[str]) -> None:
    """Who offers an artifact without providing it only that node knows."""
    keys, client = ledger.keys, ledger.client
    pairs = [("", artifact) for artifact in artifacts]
    for artifact in artifacts:
        async for some in _nodes_in_slices(ledger):
            offers = await client.pipeline([("SISMEMBER", keys.node_artifacts(node_id), artifact) for node_id in some])
            pairs += [(node_id, artifact) for node_id, is_member in zip(some, offers, strict=True) if int(is_member)]
    for slice_ in in_slices(pairs, ARTIFACTS_AT_ONCE):
        await ledger.runner.run("repair_artifacts", *(part for pair in slice_ for part in pair))


async def _repair_warm_keys(ledger: Ledger, origins: Sequence[str]) -> None:
    """Both who is kept for an image or template, and who was given it according to the nodes' own lists."""
    keys, client = ledger.keys, ledger.client
    for origin in origins:
        pairs = [(node_id, origin) async for node_id in members_of(ledger, "ZSCAN", keys.warm(origin))]
        async for some in _nodes_in_slices(ledger):
            given = await client.pipeline([("ZSCORE", keys.node_warm(node_id), origin) for node_id in some])
            pairs += [(node_id, origin) for node_id, at in zip(some, given, strict=True) if at is not None]
        for slice_ in in_slices(pairs, ARTIFACTS_AT_ONCE):
            await ledger.runner.run("repair_warm", *(part for pair in slice_ for part in pair))


async def _nodes_of_two_capacities(ledger: Ledger) -> list[str]:
    found = Counter[str]()
    for capacity in await ledger.client.command("ZRANGE", ledger.keys.named("capacities"), 0, -1):
        key = ledger.keys.named(f"capacity:{capacity.decode()}")
        found.update({node_id async for node_id in members_of(ledger, "ZSCAN", key)})
    return [node_id for node_id, times in found.items() if times > 1]


async def _repair_totals(ledger: Ledger) -> None:
    """Counted while artifacts come and go, so a few times if need be."""
    for _ in range(COUNTED_AT_MOST):
        artifacts = {artifact async for artifact in members_of(ledger, "ZSCAN", ledger.keys.named("artifacts"))}
        scopes = Counter(map(scope_of, artifacts))
        counted = [part for scope, count in scopes.items() for part in (scope, count)]
        status, _ = await ledger.runner.run("repair_totals", len(artifacts), *counted)
        if status == "repaired":
            return


def scope_of(artifact: str) -> str:
    """The cluster and backend of an artifact's name (lua/include/artifacts)."""
    name = artifact.encode()
    end = 0
    for _ in range(2):
        length, _, _ = name[end:].partition(b":")
        end += len(length) + 1 + int(length) + 1
    return name[: end - 1].decode()


async def _nodes_in_slices(ledger: Ledger) -> AsyncIterator[Sequence[str]]:
    nodes = [node_id async for node_id in members_of(ledger, "ZSCAN", ledger.keys.nodes)]
    for some in in_slices(nodes, SLICE):
        yield some
