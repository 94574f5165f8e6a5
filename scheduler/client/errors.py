"""What a gateway meets beyond the errors of `scheduler.errors`."""

from __future__ import annotations

from scheduler.domain.node import NodeAddress
from scheduler.domain.reservation import Reservation
from scheduler.errors import SchedulerError


class NodeRefused(Exception):
    """Raise it where a sandbox is started to say: this node created nothing and will not, try another one.

    Only raise it when that is certain. A node that did not answer may be creating the sandbox."""


class OutcomeUnknown(SchedulerError):
    """A sandbox may be running (`sandbox_id` None) or is running, and the ledger was not heard to know it.

    Its reservation was not cancelled: capacity in use would be given to somebody else. It holds the
    capacity until it is confirmed or its deadline passes."""

    code = "outcome_unknown"

    def __init__(self, detail: str, node: NodeAddress, reservation: Reservation, sandbox_id: str | None = None) -> None:
        super().__init__(detail, node=node, reservation=reservation, sandbox_id=sandbox_id)
        self.node = node
        self.reservation = reservation
        self.sandbox_id = sandbox_id
