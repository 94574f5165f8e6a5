"""The whole ledger on one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.domain.placement import Strategy


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of each resource; None: not known. `resources`: of further ones, by name."""

    cpu_count: int | None = 0
    memory_bytes: int | None = 0
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, over the last minute; refusals by the reason that kept most nodes out."""

    placed: float
    refused: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """The fleet at one moment. `nodes` by status and `reservations` by state, those that there are; capacity and what
    is made of it are of the nodes that take creations and say what they have. `largest_free`: the most CPUs, and the
    most memory, that one node of each class has free. `oldest_pending_ms`: when the oldest pending reservation was
    made."""

    domain: str
    strategy: Strategy
    settings_revision: int
    epoch: str
    rebuilding: bool
    clock_skew_ms: int
    now_ms: int
    replicas: tuple[str, ...]
    nodes: Mapping[str, int]
    capacity: Amount
    allocated: Amount
    reserved: Amount
    free: Amount
    largest_free: Mapping[str, Amount]
    reservations: Mapping[str, int]
    oldest_pending_ms: int | None
    rates: Rates
