"""Reservations: what was promised, to whom, and how it ended.

pending ──confirm──▶ confirmed ──────┐
   │ │ └──listed / counters──────────┴──▶ settled
   │ └──cancel──▶ cancelled
   └──deadline──▶ expired ──late confirm──▶ confirmed (orphaned)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReservationState(StrEnum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    SETTLED = "settled"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class CancelCause(StrEnum):
    """`node_refused`: the node answered that it would not create the sandbox, which counts against the node.
    `caller`: the caller gave it up; for all it knows, the create may still go on."""

    CALLER = "caller"
    NODE_REFUSED = "node_refused"


class Lifecycle(StrEnum):
    """`explicit`: the caller confirms or cancels. `heartbeat`: the node's counters tell."""

    EXPLICIT = "explicit"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class Reservation:
    """One promise. `cpu_count` and `memory_bytes` are what was asked (0: not stated); `held_*`
    is what still counts in the node's pending totals. `sandbox_told` tells a sandbox id that a
    caller gave from one that an event only suggested. `reason` says why it ended, when it did."""

    reservation_id: str
    node_id: str
    state: ReservationState
    lifecycle: Lifecycle
    cpu_count: int
    memory_bytes: int
    created_at_ms: int
    expires_at_ms: int
    sandbox_id: str | None = None
    sandbox_told: bool = False
    reason: str | None = None
    held_cpu_count: int = 0
    held_memory_bytes: int = 0
    held_sandbox_count: int = 0
    group_key: str | None = None
    request_id: str | None = None
    caller: str | None = None
    confirmed_at_ms: int | None = None
    finished_at_ms: int | None = None
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class OpenReservations:
    """Those of one node in one state; `oldest_ms` is the age of the oldest."""

    node_id: str
    state: ReservationState
    count: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class ReservationResult:
    """`replayed`: the call had already taken effect. `orphaned`: confirmed after it expired."""

    reservation: Reservation
    replayed: bool = False
    orphaned: bool = False
