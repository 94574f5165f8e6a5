"""Applies a changed roster: only the difference to the installed one, with the report or in slices after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

SLICE = 100
WHOLE_MOST = 250
SCAN_COUNT = 1000


@dataclass(frozen=True, slots=True)
class RosterChange:
    """The ids that a roster adds to the installed one, and those it no longer lists."""

    added: Sequence[str] = ()
    removed: Sequence[str] = ()


def fits_one_call(change: RosterChange) -> bool:
    """Whether the change can be applied in the same call as the report."""
    return len(change.added) <= SLICE and len(change.added) + len(change.removed) <= WHOLE_MOST


async def difference_to(runner: Runner, node_id: str, roster: Sequence[str]) -> RosterChange:
    """The change from the node's installed roster to this one."""
    listed = await _installed_roster(runner, node_id)
    added = [sandbox_id for sandbox_id in roster if sandbox_id not in listed]
    return RosterChange(added, list(listed.difference(roster)))


async def apply_roster(
    runner: Runner, node_id: str, digest: str, generation: int, edits: str, change: RosterChange
) -> list[bytes | str]:
    """Apply a large change in slices; the roster of a newer report supersedes it silently. Returns the listed ids
    that another node keeps."""
    slices: list[tuple[Sequence[str], Sequence[str]]] = [
        (change.added[first : first + SLICE], ()) for first in range(0, len(change.added), SLICE)
    ]
    slices += [((), change.removed[first : first + SLICE]) for first in range(0, len(change.removed), SLICE)]
    contested: list[bytes | str] = []
    for number, (joined, left) in enumerate(slices, start=1):
        final_digest = digest if number == len(slices) else ""
        status, reply = await runner.run(
            "apply_roster", node_id, generation, edits, final_digest, len(contested), len(joined), *joined, *left
        )
        if status == "superseded":
            return contested
        edits = codec.text(reply[0])
        runner.memory.remember_changes(reply[2])
        contested += reply[3:]
    if int(reply[1]) == 1:
        await finish_report(runner, node_id, digest, generation, edits)
    return contested


async def finish_report(runner: Runner, node_id: str, digest: str, generation: int, edits: str) -> None:
    """Apply what a report has proven and settled, in further calls when it is too much for one."""
    while True:
        status, reply = await runner.run("apply_roster", node_id, generation, edits, digest, 0, 0)
        if status == "superseded":
            return
        runner.memory.remember_changes(reply[2])
        if int(reply[1]) == 0:
            return
        edits = codec.text(reply[0])


async def _installed_roster(runner: Runner, node_id: str) -> set[str]:
    """The node's roster in the ledger, read in slices so that a large one does not block the server."""
    key = runner.keys.node_sandboxes(node_id)
    listed: set[str] = set()
    cursor = b"0"
    while True:
        cursor, page = await runner.client.command("SSCAN", key, cursor, "COUNT", SCAN_COUNT)
        listed.update(map(codec.text, page))
        if int(cursor) == 0:
            return listed
