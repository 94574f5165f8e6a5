"""The exact commands the stores would send, without sending them.

A benchmark that built its own EVALSHA lines would measure what it believes the product does. Here the
product's stores build them; the recorder stands where the connection would be and keeps what arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from scheduler.connection.client import Argument
from scheduler.domain.node import Heartbeat
from scheduler.domain.placement import BatchRequest, ScheduleRequest
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.nodes import NodeStore
from scheduler.ledger.placements import PlacementStore
from scheduler.ledger.runner import Runner

Command = tuple[Argument, ...]


class CallRecorder:
    """Commands for one ledger, as its stores would send them to its server."""

    def __init__(self, ledger: Ledger) -> None:
        runner = _RecordingRunner(ledger.client, ledger.keys, ledger.clock)
        self._placements = PlacementStore(runner)
        self._nodes = NodeStore(runner)

    async def schedule(self, request: ScheduleRequest) -> Command:
        try:
            await self._placements.schedule(request)
        except _Recorded as recorded:
            return recorded.command
        raise AssertionError("a placement is one script")

    async def batch(self, requests: Sequence[ScheduleRequest]) -> Command:
        try:
            await self._placements.schedule_batch(BatchRequest(tuple(requests)))
        except _Recorded as recorded:
            return recorded.command
        raise AssertionError("a batch is one script")

    async def heartbeat(self, heartbeat: Heartbeat) -> Command:
        try:
            await self._nodes.heartbeat(heartbeat)
        except _Recorded as recorded:
            return recorded.command
        raise AssertionError("a report begins with one script")


def without_effect(sha: str, commands: Sequence[Command]) -> list[Command]:
    """The same keys and arguments for another script: what calling alone costs."""
    return [(command[0], sha, *command[2:]) for command in commands]


class _Recorded(Exception):
    def __init__(self, command: Command) -> None:
        super().__init__()
        self.command = command


class _RecordingRunner(Runner):
    async def run(self, script: str, *args: Argument, **how: Any) -> NoReturn:
        now_ms: Any = self.clock()
        sha = self.client.scripts.get(script).sha
        raise _Recorded(("EVALSHA", sha, 1, self.keys.settings, "" if now_ms is None else now_ms, *args))
