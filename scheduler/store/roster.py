"""Applying a changed roster: the difference to the installed one, with the report or in slices after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.store import codec
from scheduler.store.runner import Runner

SLICE = 250
WHOLE_MOST = 500
SCAN_COUNT = 1000


@dataclass(frozen=True, slots=True)
class RosterChange:
    """What a roster lists that the installed one does not, and what it leaves out."""

    added: Sequence[str] = ()
    removed: Sequence[str] = ()


def fits_one_call(change: RosterChange) -> bool:
    """Whether it can be installed together with the report's load."""
    return len(change.added) <= SLICE and len(change.added) + len(change.removed) <= WHOLE_MOST


async def difference_to(runner: Runner, node_id: str, roster: Sequence[str]) -> RosterChange:
    """From the node's installed roster to this one."""
    listed = await _installed_roster(runner, node_id)
    added = [sandbox_id for sandbox_id in roster if sandbox_id not in listed]
    return RosterChange(added, list(listed.difference(roster)))


async def apply_roster(
    runner: Runner, node_id: str, digest: str, generation: int, edits: str, change: RosterChange
) -> list[bytes | str]:
    """Install a large difference. A newer report's roster supersedes this one silently.

    The listed ids that another node keeps."""
    slices: list[tuple[Sequence[str], Sequence[str]]] = [
        (change.added[first : first + SLICE], ()) for first in range(0, len(change.added), SLICE)
    ]
    slices += [((), change.removed[first : first + SLICE]) for first in range(0, len(change.removed), SLICE)]
    contested: list[bytes | str] = []
    for number, (joined, left) in enumerate(slices, start=1):
        told = digest if number == len(slices) else ""
        status, reply = await runner.run(
            "apply_roster", node_id, generation, edits, told, len(contested), len(joined), *joined, *left
        )
        if status == "superseded":
            return contested
        edits = codec.text(reply[0])
        runner.memory.remember_changes(reply[2])
        contested += reply[3:]
    if int(reply[1]) == 1:
        await work_off(runner, node_id, digest, generation, edits)
    return contested


async def work_off(runner: Runner, node_id: str, digest: str, generation: int, edits: str) -> None:
    """What a report has proven and settled, when it is more than one call may do."""
    while True:
        status, reply = await runner.run("apply_roster", node_id, generation, edits, digest, 0, 0)
        if status == "superseded":
            return
        runner.memory.remember_changes(reply[2])
        if int(reply[1]) == 0:
            return
        edits = codec.text(reply[0])


async def _installed_roster(runner: Runner, node_id: str) -> set[str]:
    """What the ledger has of the node's roster, read in slices: a large one must not hold the server."""
    key = runner.keys.node_sandboxes(node_id)
    listed: set[str] = set()
    cursor = b"0"
    while True:
        cursor, page = await runner.client.command("SSCAN", key, cursor, "COUNT", SCAN_COUNT)
        listed.update(map(codec.text, page))
        if int(cursor) == 0:
            return listed
