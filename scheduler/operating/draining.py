"""Waiting until a draining node is empty."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from scheduler.domain.wording import counted
from scheduler.errors import Conflict, DeadlineExceeded, NotRebuilt, Overloaded, StoreUnavailable
from scheduler.operating.source import Row, Source

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What a node still has. `reported`: a report of it arrived since it drains (or it never reported at all)."""

    running: int
    starting: int
    paused: int
    pending: int
    silent: bool
    reported: bool

    @property
    def empty(self) -> bool:
        return self.reported and not (self.running or self.starting or self.paused or self.pending)

    def __str__(self) -> str:
        what = (
            f"{self.running} running, {self.starting} starting, {self.paused} paused, "
            f"{counted(self.pending, 'reservation')} pending"
        )
        if self.silent:
            return f"{what}, as last reported: the node is silent"
        return what if self.reported else f"{what}, waiting for its next report"


def occupancy(node: Row, generation_before: int) -> Occupancy:
    """`generation_before`: of the last report before it drained. What that said is too old to tell that it is empty."""
    snapshot = node["snapshot"]
    return Occupancy(
        snapshot["sandbox_count"],
        snapshot["sandbox_starting_count"],
        snapshot["paused_sandbox_count"],
        node["pending"]["sandbox_count"],
        silent=node["status"] == "unhealthy",
        reported=node["last_seen_ms"] is None or node["generation"] > generation_before,
    )


@dataclass(frozen=True, slots=True)
class Patience:
    """`seconds` in all, a look every `interval_seconds`."""

    seconds: float
    interval_seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic


async def wait_until_empty(source: Source, node: Row, patience: Patience, say: Say) -> bool:
    """Whether it is empty before the time is over. `node` as it was before it drained.

    A ledger that was lost knows nothing of the node until its next report. Each change is said once. While nobody can
    be asked it goes on asking. Raises Conflict when somebody else puts the
    node to use again, NotFound when it is taken off the list."""
    node_id, told = node["node_id"], ""
    epoch = None
    until = patience.clock() + patience.seconds
    while True:
        try:
            settings, now = await source.settings(), await source.node(node_id)
        except (StoreUnavailable, Overloaded, NotRebuilt, DeadlineExceeded) as error:
            state, empty = error.detail, False
        else:
            if now["discovery"] != "lingering":
                raise Conflict(f"node {node_id} is in use again: somebody ended its draining")
            epoch = epoch or settings["epoch"]
            lost = settings["epoch"] != epoch  # generations began anew with the ledger
            found = occupancy(now, -1 if lost else node["generation"])
            if (lost or settings["rebuilding"]) and now["last_seen_ms"] is None:
                found = replace(found, reported=False)
            state, empty = str(found), found.empty
        if empty:
            return True
        if state != told:
            told = state
            say(state)
        left = until - patience.clock()
        if left <= 0:
            return False
        await patience.sleep(min(patience.interval_seconds, left))
