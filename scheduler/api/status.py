"""The one table from an error to its HTTP status, gRPC status and texts.

The row of the error's class applies, or of the nearest class above it, so every error has an answer; a test requires
a row for every class of `scheduler.errors`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from scheduler import errors


@dataclass(frozen=True, slots=True)
class Status:
    """How errors of one class are answered.

    `grpc_text` is the exact status message; None uses the error's detail. `retry_after_seconds`, the least time to
    wait, is set when a retry can help; `shows_detail` False hides detail and facts of internal errors, which only
    the log shows."""

    http: int
    grpc: grpc.StatusCode
    title: str
    grpc_text: str | None = None
    retry_after_seconds: int | None = None
    shows_detail: bool = True


def _internal(title: str) -> Status:
    return Status(500, grpc.StatusCode.INTERNAL, title, grpc_text="internal error", shows_detail=False)


def _store(title: str, retry_after_seconds: int) -> Status:
    text = "binding store unavailable"  # AgentENV's word for all of them
    return Status(503, grpc.StatusCode.UNAVAILABLE, title, grpc_text=text, retry_after_seconds=retry_after_seconds)


STATUS_BY_ERROR: dict[type[errors.SchedulerError], Status] = {
    errors.SchedulerError: _internal("Internal error"),
    errors.ConfigurationError: _internal("Not configured"),
    errors.ScriptError: _internal("Internal error"),
    errors.InvalidRequest: Status(422, grpc.StatusCode.INVALID_ARGUMENT, "Invalid request"),
    errors.Blank: Status(422, grpc.StatusCode.INVALID_ARGUMENT, "Invalid request"),
    errors.Malformed: Status(400, grpc.StatusCode.INVALID_ARGUMENT, "Malformed request"),
    errors.AssignmentRefused: Status(
        422, grpc.StatusCode.INVALID_ARGUMENT, "Assignment refused", grpc_text="node is not in scheduler node list"
    ),
    errors.SizeOutOfBounds: Status(422, grpc.StatusCode.INVALID_ARGUMENT, "Invalid request"),
    errors.UnsupportedMediaType: Status(415, grpc.StatusCode.INVALID_ARGUMENT, "Unsupported media type"),
    errors.PayloadTooLarge: Status(413, grpc.StatusCode.RESOURCE_EXHAUSTED, "Payload too large"),
    errors.HeadTooLarge: Status(431, grpc.StatusCode.RESOURCE_EXHAUSTED, "Head too large"),
    errors.UriTooLong: Status(414, grpc.StatusCode.RESOURCE_EXHAUSTED, "URI too long"),
    errors.HeadTimeout: Status(408, grpc.StatusCode.DEADLINE_EXCEEDED, "Head too late"),
    errors.Unauthorized: Status(401, grpc.StatusCode.UNAUTHENTICATED, "Unauthorized"),
    errors.Forbidden: Status(403, grpc.StatusCode.PERMISSION_DENIED, "Forbidden"),
    errors.NotFound: Status(404, grpc.StatusCode.NOT_FOUND, "Not found"),
    errors.NodeNotListed: Status(
        404, grpc.StatusCode.INVALID_ARGUMENT, "Node not listed", grpc_text="node is not in scheduler node list"
    ),
    errors.Conflict: Status(409, grpc.StatusCode.FAILED_PRECONDITION, "Conflict"),
    errors.InstanceMismatch: Status(
        409, grpc.StatusCode.FAILED_PRECONDITION, "Instance mismatch", grpc_text="service instance mismatch"
    ),
    errors.NoNodes: Status(
        503, grpc.StatusCode.UNAVAILABLE, "No nodes available", grpc_text="no nodes available", retry_after_seconds=1
    ),
    errors.Overloaded: Status(503, grpc.StatusCode.UNAVAILABLE, "Overloaded", retry_after_seconds=1),
    errors.StoreUnavailable: _store("Store unavailable", retry_after_seconds=1),
    errors.StoreUnusable: _store("Store unusable", retry_after_seconds=30),
    errors.WritesRefused: _store("Store refuses writes", retry_after_seconds=5),
    errors.CommandsWithheld: _store("Store withholds commands", retry_after_seconds=5),
    errors.NotRebuilt: Status(503, grpc.StatusCode.UNAVAILABLE, "Not rebuilt yet", retry_after_seconds=5),
    errors.PuttingBack: Status(503, grpc.StatusCode.UNAVAILABLE, "Not rebuilt yet", retry_after_seconds=1),
    errors.DeadlineExceeded: Status(504, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded"),
}


def status_of(error: errors.SchedulerError) -> Status:
    """The row of this error's class, or of the nearest class above it."""
    for ancestor in type(error).__mro__:
        if ancestor in STATUS_BY_ERROR:
            return STATUS_BY_ERROR[ancestor]
    return STATUS_BY_ERROR[errors.SchedulerError]


# Callers wait at most this much longer than the least, or twice the least.
# Of its own, so that whoever seeds the shared generator is not disturbed.
_RANDOM = random.Random()
SPREAD_SECONDS_MIN = 3


def retry_after_seconds(error: errors.SchedulerError, draw: Callable[[], float] = _RANDOM.random) -> float | None:
    """How long this caller is asked to wait; None when a retry does not help.

    Drawn at random for every answer, so that callers refused together do not return together. `draw` returns 0 ≤ x <
    1."""
    least = status_of(error).retry_after_seconds
    return None if least is None else least + draw() * (max(SPREAD_SECONDS_MIN, least) + 1)


def grpc_status(error: errors.SchedulerError) -> tuple[grpc.StatusCode, str]:
    """The gRPC status code and its message; AgentENV's gateway passes the texts on to HTTP clients."""
    status = status_of(error)
    return status.grpc, error.detail if status.grpc_text is None else status.grpc_text


def problem(error: errors.SchedulerError, *, to_operator: bool = False) -> dict[str, Any]:
    """The members of the `application/problem+json` answer (RFC 9457): the fixed ones, then the error's facts."""
    status = status_of(error)
    shown = error.full_detail if to_operator else error.detail
    members: dict[str, Any] = {
        "type": f"urn:agentenv-scheduler:problem:{error.code}",
        "title": status.title,
        "status": status.http,
        "detail": shown if status.shows_detail else "something went wrong on our side; the log has the details",
        "code": error.code,
    }
    if status.shows_detail:
        members |= {name: value for name, value in error.facts.items() if name not in members}
    return members
