"""Reservations: capacity held on a node, for whom, and how the reservation ended.

pending ──confirm──▶ confirmed ──────┐
   │ │ └──listed / counters──────────┴──▶ settled
   │ └──cancel──▶ cancelled
   └──deadline──▶ expired ──late confirm──▶ confirmed (orphaned)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReservationState(StrEnum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    SETTLED = "settled"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class CancelCause(StrEnum):
    """`node_refused`: the node answered that it would not create the sandbox, which counts against the node.
    `caller`: the caller cancelled; as far as it knows, the creation may still go on."""

    CALLER = "caller"
    NODE_REFUSED = "node_refused"


class Lifecycle(StrEnum):
    """`explicit`: the caller confirms or cancels. `heartbeat`: nobody does; the node's counters show what happened."""

    EXPLICIT = "explicit"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity reserved on a node. `cpu_count` and `memory_bytes` are as requested (0: not stated); `held_*` is what
    still counts in the node's pending totals. `sandbox_told`: a caller named the sandbox id, an event did not only
    suggest it. `reason` says why the reservation ended."""

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
    resources: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class OpenReservations:
    """The open reservations of one node in one state; `oldest_ms` is the age of the oldest."""

    node_id: str
    state: ReservationState
    count: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class ReservationResult:
    """`replayed`: the call had already taken effect. `orphaned`: confirmed after it had expired."""

    reservation: Reservation
    replayed: bool = False
    orphaned: bool = False

    @property
    def cancelled(self) -> bool:
        """Whether this call cancelled it: no call before, and not its deadline."""
        return self.reservation.state is ReservationState.CANCELLED and not self.replayed
