"""Reservations: capacity that is held on a node for a sandbox that is being created there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentenv_scheduler_client.reading import OpenEnum

# So much of a cancel's reason is told.
REASON_BYTES_MAX = 1024


class ReservationState(OpenEnum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    SETTLED = "settled"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class CancelCause(OpenEnum):
    """`node_refused`: the node answered that it would not create the sandbox. It may be avoided for a while."""

    CALLER = "caller"
    NODE_REFUSED = "node_refused"


class Lifecycle(OpenEnum):
    """`explicit`: the caller confirms or cancels. `heartbeat`: nobody will; the node's reports tell what came of it."""

    EXPLICIT = "explicit"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class Reservation:
    """`cpu_count` and `memory_bytes` are what was asked, 0 where nothing was stated. `*_ms` are Unix milliseconds of
    the server's clock. `reason` says why it ended, when it did. `resources` are those beside CPUs and memory."""

    reservation_id: str
    node_id: str
    state: ReservationState
    lifecycle: Lifecycle
    cpu_count: int
    memory_bytes: int
    created_at_ms: int
    expires_at_ms: int
    sandbox_id: str | None = None
    confirmed_at_ms: int | None = None
    finished_at_ms: int | None = None
    reason: str | None = None
    group_key: str | None = None
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReservationResult:
    """`replayed`: the call had already taken effect. `orphaned`: confirmed after it expired."""

    reservation: Reservation
    replayed: bool = False
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class KeyResult:
    """What a cancel by key answers. `reservation` is None or without a node when its schedule has not arrived, which is
    then refused."""

    reservation: Reservation | None = None
    replayed: bool = False
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class ReservationPage:
    """`cursor` None: this is the last page."""

    reservations: tuple[Reservation, ...]
    cursor: str | None = None
