"""How long the tests wait for a ledger.

A machine with much else to do is slow, and what is called is answered, however late: a test judges what is answered,
and one that is about time limits names those that it means. So in the processes of the tests StoreOptions has its own
values for all but these.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from scheduler.connection.options import StoreOptions

PATIENCE: dict[str, Any] = {"connect_timeout_ms": 30_000, "operation_timeout_ms": 60_000, "attempt_timeout_ms": 30_000}


def be_patient() -> None:
    """Whoever names no time limit of StoreOptions gets those of PATIENCE from here on."""
    values = tuple(PATIENCE.get(field.name, field.default) for field in fields(StoreOptions))
    StoreOptions.__init__.__defaults__ = values
