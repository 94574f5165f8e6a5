"""`inspect upgrade`: what a conversion of the ledger would keep, and the conversion."""

from __future__ import annotations

from scheduler.domain.wording import counted
from scheduler.ledger.format import FORMAT
from scheduler.ledger.ledger import Ledger


async def upgrading(ledger: Ledger, *, apply: bool) -> list[str]:
    """Convert when `apply` says so; either way, in lines for people, what was there and what came of it."""
    found = await ledger.conversion.look()
    if found is None:
        return [f"nothing to convert: no older ledger in domain {ledger.domain}"]
    holds = ", ".join((
        counted(found.nodes, "node"),
        counted(found.open_reservations, "open reservation"),
        counted(found.bindings, "binding"),
    ))  # fmt: skip
    lines = [f"domain {ledger.domain}: {'a half-converted ledger' if found.converting else found.made_by}, {holds}"]
    if not apply:
        fences = "fences version 0.1 and " if found.made_by == "version 0.1" else ""
        return [*lines, f"nothing was written; --apply {fences}converts to format {FORMAT}"]
    await ledger.conversion.convert()
    return [*lines, f"converted to format {FORMAT}; replicas of {found.made_by} can no longer write to it"]
