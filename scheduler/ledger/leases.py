"""Leases: at most one replica at a time does what a lease names."""

from __future__ import annotations

from scheduler.ledger.runner import Runner


class LeaseStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def hold(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Takes or renews the lease; False while another holds it. hold_lease.lua"""
        status, _ = await self._runner.run("hold_lease", name, holder, ttl_ms)
        return status == "held"

    async def release(self, name: str, holder: str) -> None:
        """Releases the lease before its TTL ends; releasing one that is not held is no error."""
        await self._runner.run("hold_lease", name, holder, 0)
