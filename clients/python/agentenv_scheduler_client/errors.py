"""What may go wrong, as one tree. Decide by class or by `code`; the texts are for people.

Exception
├── NodeRefused                     raised by the caller: this node created nothing, try another
└── SchedulerError                  every other one; an answer with a code of a later server is this class itself
    ├── InvalidRequest              invalid_request    `errors` says which member, what was found, what is allowed
    │   └── Malformed               malformed
    ├── UnsupportedMediaType        unsupported_media_type
    ├── PayloadTooLarge             payload_too_large
    ├── HeadTooLarge                head_too_large
    │   └── UriTooLong              uri_too_long
    ├── Unauthorized                unauthorized       no API key, or one that nobody knows
    ├── Forbidden                   forbidden          the key's role does not reach this call
    ├── NotFound                    not_found
    ├── MethodNotAllowed            method_not_allowed
    ├── Conflict                    conflict           another truth is recorded; `reservation` shows it
    ├── NoNodes                     no_nodes           no node may be chosen; `reasons` counts why
    ├── OutcomeUnknown              outcome_unknown    a sandbox may run, and nobody could be asked
    └── Unavailable                                    ask again: it is not known whether the call took effect
        ├── Overloaded              overloaded
        ├── StoreUnavailable        store_unavailable
        ├── NotRebuilt              not_rebuilt
        ├── HeadTimeout             head_timeout
        ├── DeadlineExceeded        deadline_exceeded  told by the server, or the client's own time is over
        ├── InternalError           internal
        └── Unreachable             unreachable        no answer of a scheduler: a network, a balancer, another server
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentenv_scheduler_client.nodes import NodeAddress
from agentenv_scheduler_client.placements import OverLimit
from agentenv_scheduler_client.reading import Unreadable, read
from agentenv_scheduler_client.reservations import Reservation


class NodeRefused(Exception):
    """Raise it where a sandbox is started to say: this node created nothing and will not, try another one.

    Only raise it when that is certain. A node that did not answer may be creating the sandbox."""


class SchedulerError(Exception):
    """`facts` are the answer's further members, as they came.

    `answered`: the scheduler gave a definite answer. `unanswered`: how many attempts may have taken effect unheard.
    `node`, `reservation`, `sandbox_id` and `idempotency_key` are what the call was about, as far as it is known."""

    code: str = "internal"

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        facts: Mapping[str, Any] | None = None,
        retry_after_seconds: float = 0.0,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.facts = dict(facts or {})
        self.retry_after_seconds = retry_after_seconds
        self.answered = False
        self.unanswered = 0
        self.idempotency_key: str | None = None
        self.node: NodeAddress | None = None
        self.reservation: Reservation | None = None
        self.sandbox_id: str | None = None


@dataclass(frozen=True, slots=True)
class FieldError:
    """One member that breaks the contract."""

    field: str
    found: Any
    allowed: str


class InvalidRequest(SchedulerError):
    code = "invalid_request"

    @property
    def errors(self) -> tuple[FieldError, ...]:
        told = self.facts.get("errors")
        return tuple(
            FieldError(str(each.get("field", "")), each.get("found"), str(each.get("allowed", "")))
            for each in (told if isinstance(told, list) else ())
            if isinstance(each, dict)
        )


class Malformed(InvalidRequest):
    code = "malformed"


class UnsupportedMediaType(SchedulerError):
    code = "unsupported_media_type"


class PayloadTooLarge(SchedulerError):
    code = "payload_too_large"


class HeadTooLarge(SchedulerError):
    code = "head_too_large"


class UriTooLong(HeadTooLarge):
    code = "uri_too_long"


class Unauthorized(SchedulerError):
    code = "unauthorized"


class Forbidden(SchedulerError):
    code = "forbidden"


class NotFound(SchedulerError):
    code = "not_found"


class MethodNotAllowed(SchedulerError):
    code = "method_not_allowed"


class Conflict(SchedulerError):
    """`reservation` is the recorded truth, when the answer told it. `stopped`, once `stop` of a confirm was called:
    whether the sandbox that the ledger does not accept was stopped."""

    code = "conflict"
    stopped: bool | None = None


class NoNodes(SchedulerError):
    code = "no_nodes"

    @property
    def candidates(self) -> int:
        told = self.facts.get("candidates")
        return told if isinstance(told, int) else 0

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many nodes are out for which reason; each node counts once. Later servers know further reasons."""
        told = self.facts.get("reasons")
        return dict(told) if isinstance(told, dict) else {}

    @property
    def over_limit(self) -> OverLimit | None:
        """The commonest limit with the figures of one node, when limits are among the reasons."""
        told = self.facts.get("over_limit")
        try:
            return None if told is None else read(OverLimit, told)
        except Unreadable:
            return None


class OutcomeUnknown(SchedulerError):
    """A sandbox may be running (`sandbox_id` None) or is running, and the ledger was not heard to know it.

    Its reservation was not cancelled, because capacity in use would be given to somebody else. It holds the
    capacity until it is confirmed or its deadline passes."""

    code = "outcome_unknown"
    node: NodeAddress
    reservation: Reservation

    def __init__(self, detail: str, node: NodeAddress, reservation: Reservation, sandbox_id: str | None = None) -> None:
        super().__init__(detail)
        self.node = node
        self.reservation = reservation
        self.sandbox_id = sandbox_id


class Unavailable(SchedulerError):
    """Ask again: every call is idempotent by its key or its ids. Also what an unknown code with a status of 500 or
    more is told as."""


class Overloaded(Unavailable):
    code = "overloaded"


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class NotRebuilt(Unavailable):
    code = "not_rebuilt"


class HeadTimeout(Unavailable):
    code = "head_timeout"


class DeadlineExceeded(Unavailable):
    code = "deadline_exceeded"


class InternalError(Unavailable):
    code = "internal"


class Unreachable(Unavailable):
    code = "unreachable"


_ANSWERED: tuple[type[SchedulerError], ...] = (
    InvalidRequest, Malformed, UnsupportedMediaType, PayloadTooLarge, HeadTooLarge, UriTooLong, Unauthorized,
    Forbidden, NotFound, MethodNotAllowed, Conflict, NoNodes, Overloaded, StoreUnavailable, NotRebuilt, HeadTimeout,
    DeadlineExceeded, InternalError,
)  # fmt: skip
ERROR_BY_CODE: Mapping[str, type[SchedulerError]] = {error.code: error for error in _ANSWERED}

_FIXED_MEMBERS = frozenset({"type", "title", "status", "detail", "code"})


def error_of(problem: Mapping[str, Any], status: int, retry_after_seconds: float = 0.0) -> SchedulerError:
    """The error that a problem document tells of."""
    code = str(problem["code"])
    kind = ERROR_BY_CODE.get(code, Unavailable if status >= 500 else SchedulerError)
    facts = {name: value for name, value in problem.items() if name not in _FIXED_MEMBERS}
    detail = str(problem.get("detail", "no detail"))
    error = kind(detail, status=status, facts=facts, retry_after_seconds=retry_after_seconds)
    error.code = code
    if "reservation" in facts:
        try:
            error.reservation = read(Reservation, facts["reservation"])
        except Unreadable:
            error.reservation = None
    return error
