"""Whether a ledger agrees with a recount of itself."""

from __future__ import annotations

from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import Ledger


async def assert_ledger_is_sound(ledger: Ledger) -> None:
    """What `inspect check` would find: nothing."""
    violations = await recount(ledger)
    assert not violations, "\n".join(violations)
