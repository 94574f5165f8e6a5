"""One call without its network: what is asked, how often, and what an answer means.

Nothing here waits or sends. The two flavours of the client do, and ask this module what comes next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from agentenv_scheduler_client.errors import (
    DeadlineExceeded,
    InvalidRequest,
    SchedulerError,
    Unavailable,
    Unreachable,
    error_of,
)
from agentenv_scheduler_client.reading import Unreadable

T = TypeVar("T")
Read = Callable[[Any], T]

# The request never left, so it had no effect.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

# Of its own, so that whoever seeds the shared generator is not disturbed.
_RANDOM = random.Random()
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
# A replica that went silent costs at most this; the rest of the time is for another one.
_ATTEMPT_SECONDS_MAX = 5.0
_ATTEMPT_SECONDS_MIN = 1.0
_LAST_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is worth: attempts and pauses together take at most `seconds`.

    `attempts` None: as many as fit."""

    seconds: float
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One call, the same in every attempt."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that brought nothing. `definite`: the scheduler said no. Otherwise asking again may help, and
    `may_have_arrived` says that the call may have taken effect."""

    error: SchedulerError
    definite: bool = False
    may_have_arrived: bool = True


class Attempts:
    """Counts the attempts of one call against its patience. `now` is a clock in seconds."""

    def __init__(self, patience: Patience, now: Callable[[], float]) -> None:
        self._patience = patience
        self._now = now
        self._until = now() + patience.seconds
        self._begun = 0
        self._unanswered = 0

    def begin(self) -> float:
        """How long the attempt that begins now may take. Raises DeadlineExceeded when no time was given at all."""
        if self._patience.seconds <= 0:
            raise DeadlineExceeded("the time for this call was over before it began")
        self._begun += 1
        left = self._until - self._now()
        if self._patience.attempts == self._begun:
            return max(0.001, left)
        return max(0.001, min(left, max(left / 2, _ATTEMPT_SECONDS_MIN), _ATTEMPT_SECONDS_MAX))

    def failed(self, failure: Failure) -> float:
        """How long to pause before the next attempt. Raises the failure's error when there is none."""
        error = failure.error
        self._unanswered += failure.may_have_arrived
        left = self._until - self._now()
        pause = _jittered(max(_backoff(self._begun), error.retry_after_seconds))
        if self._patience.attempts is None:
            # Worth asking to the very end, so the last pauses shrink.
            pause = min(pause, left / 2)
            over = left < _LAST_PAUSE_SECONDS
        else:
            over = self._begun >= self._patience.attempts or pause >= left
        if over or failure.definite:
            error.answered, error.unanswered = failure.definite, self._unanswered
            raise error
        return pause


def timeout_header(seconds: float) -> str:
    """How long the caller will listen to one attempt; a replica stops a little before."""
    return f"{max(1, int(seconds * 900))}ms"


def outcome(answer: httpx.Response | Exception, read: Read[T], seconds: float) -> T | Failure:
    """What came of an attempt of so many seconds."""
    if isinstance(answer, TimeoutError | httpx.TimeoutException):
        silent = DeadlineExceeded(f"the scheduler did not answer within {seconds:.1f} s")
        return Failure(silent, may_have_arrived=not isinstance(answer, _NOT_SENT))
    if isinstance(answer, Exception):
        gone = Unreachable(f"the scheduler was not reached ({type(answer).__name__}): {answer}")
        return Failure(gone, may_have_arrived=not isinstance(answer, _NOT_SENT))
    if not answer.is_success:
        return _refusal(answer)
    try:
        return read(answer.json())
    except (Unreadable, ValueError) as error:
        return Failure(Unreachable(f"an answer that cannot be read ({error}); something else may have given it"))


def _refusal(answer: httpx.Response) -> Failure:
    pause = _asked_pause(answer)
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not (isinstance(problem, dict) and "code" in problem):
        # Not from the scheduler: a balancer without a healthy replica, most likely.
        text = f"an answer with status {answer.status_code} that is no problem document"
        return Failure(Unreachable(text, status=answer.status_code, retry_after_seconds=pause))
    error = error_of(problem, answer.status_code, pause)
    unknown = isinstance(error, Unavailable)
    return Failure(error, definite=not unknown, may_have_arrived=unknown)


def _backoff(attempt: int) -> float:
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(attempt - 1, 10), _LONGEST_PAUSE_SECONDS)


def _jittered(pause: float) -> float:
    """Callers that failed together come back apart; none sooner than it was asked to."""
    return pause * _RANDOM.uniform(1, 2)


def _asked_pause(answer: httpx.Response) -> float:
    asked: str = answer.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else 0.0


def path(*segments: str) -> str:
    """A path under /v1; a segment is an id, whatever it holds."""
    return "/".join(["/v1", *map(segment, segments)])


def segment(identity: str) -> str:
    """An id as one segment of a path, whatever it holds: `.` and `..` would be taken for steps of the path."""
    try:
        return identity.replace(".", "%2E") if identity in (".", "..") else quote(identity, safe="")
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"it cannot be sent: {error}") from error


def given(**members: Any) -> dict[str, Any]:
    """The values that say something (not None), as members of a body or as parameters."""
    return {name: value for name, value in members.items() if value not in (None, "")}


def nothing(answer: Any) -> None:
    """Reads nothing of an answer that only repeats what was asked."""
