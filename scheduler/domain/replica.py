"""The live replicas and the settings they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.domain.settings import LedgerSettings


@dataclass(frozen=True, slots=True)
class LiveReplica:
    """A replica, and when its last keepalive expires."""

    replica_id: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """What one replica is configured with, and where from: source by path, as `Settings.ledger_sources`."""

    replica_id: str
    settings: LedgerSettings
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """`rebuilding`: the ledger was lost, and missing entries may still be restored. `clock_skew_ms`: how far ledger
    time is ahead of the server's clock."""

    domain: str
    epoch: str
    rebuilding: bool
    clock_skew_ms: int
    settings: LedgerSettings
