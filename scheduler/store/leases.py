"""Leases: who does what only one replica should do at a time."""

from __future__ import annotations

from scheduler.store.runner import Runner


class LeaseStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def hold(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Takes or renews it; False while another holds it. hold_lease.lua"""
        status, _ = await self._runner.run("hold_lease", name, holder, ttl_ms)
        return status == "held"

    async def release(self, name: str, holder: str) -> None:
        """Lets go of it, so that nobody need wait for it to run out; nothing to let go of is fine."""
        await self._runner.run("hold_lease", name, holder, 0)
