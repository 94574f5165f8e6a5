"""The replicas, and what they have agreed on."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.domain.settings import LedgerSettings


@dataclass(frozen=True, slots=True)
class LiveReplica:
    """A replica, and until when its last keepalive counts."""

    replica_id: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """`rebuilding`: the ledger was lost, and what is missing may still come back. `clock_skew_ms`: how far ledger time
    is ahead of the server's clock."""

    domain: str
    epoch: str
    rebuilding: bool
    clock_skew_ms: int
    settings: LedgerSettings
