"""Ledger time: the server's clock plus an offset, so that it never runs backwards."""

from __future__ import annotations

from scheduler.ledger import codec
from scheduler.ledger.runner import Runner


class LedgerTime:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def now_ms(self) -> int:
        """The clock that deadlines are on, unless the ledger was handed another."""
        given = self._runner.clock()
        if given is not None:
            return given
        seconds, microseconds = await self._runner.client.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000 + await self.skew_ms()

    async def skew_ms(self) -> int:
        """How far ledger time is ahead of the server's clock, because that clock was set back."""
        return codec.number(await self._runner.client.command("HGET", self._runner.keys.rotations, "offset"))

    async def reset(self) -> int:
        """Follow the server's clock again; returns the milliseconds removed. Open deadlines move later by at most as
        much."""
        taken_back = 0
        while True:
            _, (skew_ms, nodes) = await self._runner.run("reset_clock")
            taken_back += int(skew_ms)
            if int(nodes) == 0:
                return taken_back
