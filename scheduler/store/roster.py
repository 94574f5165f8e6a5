"""Applying a changed roster: the difference to the last one, in slices that carry the report's generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.store import codec
from scheduler.store.runner import Runner

SLICE = 250
SCAN_COUNT = 1000


@dataclass(frozen=True, slots=True)
class RosterChange:
    """What a roster lists that the last one did not, and what it leaves out."""

    added: Sequence[str] = ()
    removed: Sequence[str] = ()


async def apply_roster(
    runner: Runner, node_id: str, roster: Sequence[str], generation: int, edits: str
) -> RosterChange:
    """Bring the node's bindings to its roster. A newer report's roster supersedes this one silently."""
    listed = await _last_roster(runner, node_id)
    added = [sandbox_id for sandbox_id in roster if sandbox_id not in listed]
    removed = list(listed.difference(roster))
    slices: list[tuple[list[str], list[str]]] = [
        (added[first : first + SLICE], []) for first in range(0, len(added), SLICE)
    ]
    slices += [([], removed[first : first + SLICE]) for first in range(0, len(removed), SLICE)]
    slices = slices or [([], [])]
    for number, (joined, left) in enumerate(slices, start=1):
        digest = codec.roster_digest(roster) if number == len(slices) else ""
        status, _ = await runner.run("apply_roster", node_id, generation, edits, digest, len(joined), *joined, *left)
        if status == "superseded":
            break
    return RosterChange(added, removed)


async def _last_roster(runner: Runner, node_id: str) -> set[str]:
    """What the node's last roster listed, read in slices: a large one must not hold the server."""
    key = runner.keys.node_sandboxes(node_id)
    listed: set[str] = set()
    cursor = b"0"
    while True:
        cursor, page = await runner.client.command("SSCAN", key, cursor, "COUNT", SCAN_COUNT)
        listed.update(map(codec.text, page))
        if int(cursor) == 0:
            return listed
