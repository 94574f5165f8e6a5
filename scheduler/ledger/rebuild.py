"""Restores a lost ledger from what this replica remembers."""

from __future__ import annotations

from typing import Any

from scheduler.ledger.runner import Runner

SLICE = 100


class RebuildStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.memory = runner.memory

    async def put_back(self, replica_id: str, lease_ms: int, rebuild_of: str = "") -> int:
        """Write back all remembered reservations in slices; returns how many were missing or older in the ledger.

        Safe to repeat, and harmless when nothing was lost. Until the last slice is in, the ledger waits for this
        replica, at most `lease_ms`. `rebuild_of`: the loss, as passed with the settings."""
        restored = 0
        slice_: list[Any] = []
        waiting = 0
        for reservation_id, fields in self.memory.all():
            slice_ += (reservation_id, len(fields) // 2, *fields)
            waiting += 1
            if waiting == SLICE:
                restored += await self._restore(replica_id, lease_ms, slice_)
                slice_, waiting = [], 0
        restored += await self._restore(replica_id, 0, slice_)
        self._runner.rebuilt_of = rebuild_of
        return restored

    async def _restore(self, replica_id: str, lease_ms: int, reservations: list[Any]) -> int:
        _, reply = await self._runner.run(
            "restore_reservations", replica_id, lease_ms, self._runner.newest_sequence, *reservations, durable=True
        )
        return int(reply[0])
