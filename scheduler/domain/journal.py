"""What the journals of a domain contain: its last decisions, and who did what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """`at_ms` in the ledger's time; `strategy`: the one in force then. `facts` as they were appended."""

    number: int
    at_ms: int
    strategy: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """Which decisions; "" is any."""

    reason: str = ""
    node_id: str = ""
    caller: str = ""

    def wants(self, entry: Entry) -> bool:
        facts = entry.facts
        return (
            (not self.reason or self.reason in (facts.get("reasons") or {}))
            and (not self.node_id or self.node_id == facts.get("node_id"))
            and (not self.caller or self.caller == facts.get("caller"))
        )
