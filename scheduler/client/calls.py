"""One call to the scheduler, asked again until it is answered or its time is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from scheduler.client import wire
from scheduler.errors import DeadlineExceeded, NotRebuilt, Overloaded, SchedulerError, StoreUnavailable

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

# The answer tells nothing of what became of the call. Asking again is safe: every call is idempotent by key or id.
_UNKNOWN = (StoreUnavailable, Overloaded, NotRebuilt, DeadlineExceeded)
# The request never left, so it had no effect.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

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
    attempts: int | None


@dataclass(frozen=True, slots=True)
class Question:
    """One call, the same in every attempt."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Calls:
    """Asks over one HTTP client.

    A raised SchedulerError says in its facts what is known: `unanswered`, how many attempts may have taken
    effect unheard, and `answered`, whether the last one got a definite answer."""

    def __init__(self, http: httpx.AsyncClient, sleep: Sleep = asyncio.sleep) -> None:
        self._http = http
        self._sleep = sleep

    async def ask(self, question: Question, read: Callable[[dict[str, Any]], T], patience: Patience) -> T:
        """What `read` makes of the answer."""
        clock = asyncio.get_running_loop().time
        until = clock() + patience.seconds
        attempt, unanswered = 0, 0
        if patience.seconds <= 0:
            raise DeadlineExceeded("the time for this call was over before it began", answered=False, unanswered=0)
        while True:
            attempt += 1
            outcome = await self._attempt(question, read, until - clock())
            if not isinstance(outcome, _Failure):
                return outcome
            unanswered += outcome.may_have_arrived
            left = until - clock()
            pause = _jittered(max(_backoff(attempt), outcome.asked_pause))
            if patience.attempts is None:
                # Worth asking to the very end, so the last pauses shrink.
                pause = min(pause, left / 2)
                over = left < _LAST_PAUSE_SECONDS
            else:
                over = attempt >= patience.attempts or pause >= left
            if over or outcome.definite:
                outcome.error.facts |= {"answered": outcome.definite, "unanswered": unanswered}
                raise outcome.error
            await self._sleep(pause)

    async def _attempt(self, question: Question, read: Callable[[dict[str, Any]], T], left: float) -> T | _Failure:
        seconds = max(0.001, min(left, max(left / 2, _ATTEMPT_SECONDS_MIN), _ATTEMPT_SECONDS_MAX))
        # A replica stops a little before nobody listens any more.
        headers = {**question.headers, "X-Request-Timeout": f"{max(1, int(seconds * 900))}ms"}
        try:
            async with asyncio.timeout(seconds):
                answer = await self._http.request(
                    question.method, question.path, json=question.body, headers=headers, timeout=seconds
                )
        except (TimeoutError, httpx.TimeoutException) as error:
            silent = DeadlineExceeded(f"the scheduler did not answer within {seconds:.1f} s")
            return _Failure(silent, may_have_arrived=not isinstance(error, _NOT_SENT))
        except httpx.HTTPError as error:
            gone = StoreUnavailable(f"the scheduler was not reached ({type(error).__name__})")
            gone.__cause__ = error
            return _Failure(gone, may_have_arrived=not isinstance(error, _NOT_SENT))
        if not answer.is_success:
            return _told(answer)
        try:
            return read(answer.json())
        except (ValueError, KeyError, TypeError):
            return _Failure(StoreUnavailable("an answer that cannot be read; something else may have given it"))


@dataclass(frozen=True, slots=True)
class _Failure:
    error: SchedulerError
    definite: bool = False
    may_have_arrived: bool = True
    asked_pause: float = 0.0


def _told(answer: httpx.Response) -> _Failure:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not (isinstance(problem, dict) and "code" in problem):
        # Not from the scheduler: a balancer without a healthy replica, most likely.
        error: SchedulerError = StoreUnavailable(
            f"an answer with status {answer.status_code} that is no problem document"
        )
        return _Failure(error, asked_pause=_asked_pause(answer))
    error = wire.error(problem)
    # A replica that failed inside (500) may have done it before.
    unknown = isinstance(error, _UNKNOWN) or (answer.status_code >= 500 and type(error) is SchedulerError)
    return _Failure(error, definite=not unknown, may_have_arrived=unknown, asked_pause=_asked_pause(answer))


def _backoff(attempt: int) -> float:
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(attempt - 1, 10), _LONGEST_PAUSE_SECONDS)


def _jittered(pause: float) -> float:
    """Callers that failed together come back apart; none sooner than it was asked to."""
    return pause * random.uniform(1, 2)


def _asked_pause(answer: httpx.Response) -> float:
    asked = answer.headers.get("retry-after", "")
    return min(float(asked), _LONGEST_PAUSE_SECONDS) if asked.isdecimal() else 0.0
