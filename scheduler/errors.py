"""Every error the scheduler raises on purpose, each with a stable `code`.

    SchedulerError
    ├── ConfigurationError        configuration      the process does not start
    ├── InvalidRequest            invalid_request    the request is not valid
    │   ├── Blank                 invalid_request    something that is required is blank
    │   ├── Malformed             malformed          not JSON or MessagePack at all
    │   ├── AssignmentRefused     invalid_request    discovery does not list that node with that endpoint
    │   └── SizeOutOfBounds       invalid_request    more CPUs or memory than any sandbox may have
    ├── UnsupportedMediaType      unsupported_media_type
    ├── PayloadTooLarge           payload_too_large
    ├── HeadTooLarge              head_too_large     too many bytes or headers before the body
    │   └── UriTooLong            uri_too_long       the request line alone is too long
    ├── HeadTimeout               head_timeout       the head was not complete in time
    ├── Unauthorized              unauthorized       no API key, or an unknown one
    ├── Forbidden                 forbidden          the key's role may not make this call
    ├── NotFound                  not_found
    │   └── NodeNotListed         not_found          a report from a node outside discovery
    ├── Conflict                  conflict           another state is already recorded
    │   └── InstanceMismatch      conflict           another instance reports now
    ├── NoNodes                   no_nodes           no node may be chosen; says why, per node
    ├── Overloaded                overloaded         a backlog must be processed first; retry
    ├── StoreUnavailable          store_unavailable  the ledger cannot be reached or used
    │   ├── WritesRefused         store_unavailable  reached, but refuses writes: maxmemory, too few replicas
    │   └── StoreUnusable         store_unavailable  reached, but not fit: too old, read-only, no password
    │       └── CommandsWithheld  store_unavailable  its ACL withholds a command that scripts need
    ├── NotRebuilt                not_rebuilt        the ledger was lost and is being rebuilt
    │   └── PuttingBack           not_rebuilt        replicas are still restoring it; nothing is decided
    ├── DeadlineExceeded          deadline_exceeded
    └── ScriptError               internal           a script and its caller disagree: a defect of the scheduler

`detail` is safe to show to a caller: ids, limits and what was found, never a secret or the ledger's address.
`scheduler.api.status` alone maps codes to HTTP and gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


class SchedulerError(Exception):
    """Base of the tree. `facts` are extra members for machine readers (JSON types only)."""

    code: ClassVar[str] = "internal"

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts: dict[str, Any] = facts
        self.where = ""

    def at(self, where: str) -> Self:
        """The same error with the ledger's address, which only operators are shown."""
        self.where = where
        return self

    def again(self) -> Self:
        """A new error like this one, to raise again."""
        return type(self)(self.detail).at(self.where)

    @property
    def full_detail(self) -> str:
        """The detail with the ledger's address: for the log, the command line, and callers of role admin."""
        return self.detail.replace("the ledger", f"the ledger at {self.where}", 1) if self.where else self.detail


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that was answered, and of what caused it. They hold the frames of its call, with
    the whole request, and a frame that still names the error would keep all of it until the collector of circles runs.
    """
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)


class ConfigurationError(SchedulerError):
    code = "configuration"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field: its name, what was found, what is allowed."""

    field: str
    found: Any
    allowed: str

    def as_dict(self) -> dict[str, Any]:
        return {"field": self.field, "found": self.found, "allowed": self.allowed}


class InvalidRequest(SchedulerError):
    code = "invalid_request"

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), **facts: Any) -> None:
        super().__init__(detail, errors=[error.as_dict() for error in errors], **facts)

    @classmethod
    def field(cls, field: str, found: Any, allowed: str) -> InvalidRequest:
        """The error for exactly one invalid field."""
        return cls(f"{field} must be {allowed}", [FieldError(field, found, allowed)])


class Blank(InvalidRequest):
    """Something that is required is blank. `detail` is AgentENV's text, which its clients compare."""


class Malformed(InvalidRequest):
    code = "malformed"


class AssignmentRefused(InvalidRequest):
    """A binding names a (node, endpoint) pair that discovery does not list."""


class SizeOutOfBounds(InvalidRequest):
    """More CPUs or memory than any sandbox may have. A class of its own, because AgentENV's gateway turns
    INVALID_ARGUMENT into a 502."""


class UnsupportedMediaType(SchedulerError):
    code = "unsupported_media_type"


class PayloadTooLarge(SchedulerError):
    code = "payload_too_large"


class HeadTooLarge(SchedulerError):
    """The head exceeds its limit; the request has not been looked at."""

    code = "head_too_large"


class UriTooLong(HeadTooLarge):
    code = "uri_too_long"


class HeadTimeout(SchedulerError):
    code = "head_timeout"


class Unauthorized(SchedulerError):
    code = "unauthorized"


class Forbidden(SchedulerError):
    code = "forbidden"


class NotFound(SchedulerError):
    code = "not_found"


class NodeNotListed(NotFound):
    """A heartbeat from a node that discovery does not list."""


class Conflict(SchedulerError):
    """Another state is recorded. `reservation`, when given, is the recorded one in its public shape."""

    code = "conflict"


class InstanceMismatch(Conflict):
    """An unregister by an instance that another one has replaced."""


class NoNodes(SchedulerError):
    """No node may be chosen. `reasons` counts every discovered node under its first reason; `over_limit` is what
    keeps most of them out, in figures: its name as `limit`, then `current`, `pending`, `requested`, `maximum`."""

    code = "no_nodes"

    def __init__(
        self, candidates: int, reasons: Mapping[str, int], over_limit: Mapping[str, Any] | None = None
    ) -> None:
        exceeded = {} if over_limit is None else {"over_limit": dict(over_limit)}
        super().__init__("no nodes available", candidates=candidates, reasons=dict(reasons), **exceeded)
        self.candidates = candidates
        self.reasons = dict(reasons)


class Overloaded(SchedulerError):
    code = "overloaded"


class StoreUnavailable(SchedulerError):
    code = "store_unavailable"


class StoreUnusable(StoreUnavailable):
    """The server answers but cannot hold the ledger; waiting does not help."""


class WritesRefused(StoreUnavailable):
    """The server answers but refuses every write, until it has memory, replicas or disk space again."""


class CommandsWithheld(StoreUnusable):
    """The server's ACL withholds a command; no script runs until it is allowed."""


class NotRebuilt(SchedulerError):
    code = "not_rebuilt"


class PuttingBack(NotRebuilt):
    """Replicas are still restoring what they remember; nothing is decided before that."""


class DeadlineExceeded(SchedulerError):
    code = "deadline_exceeded"


class ScriptError(SchedulerError):
    code = "internal"
