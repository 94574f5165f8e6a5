"""How long the present call may still take.

The edge that took a request in opens a scope with `within(seconds)`; whatever waits further down asks
`remaining_ms`. Scopes nest and only ever tighten: an inner one cannot outlive the outer. The scope travels
with the task (a context variable), on a monotonic clock, so a corrected wall clock moves no deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from scheduler.errors import DeadlineExceeded

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Scope:
    ends_at: float
    clock: Clock

    def left_ms(self) -> float:
        return (self.ends_at - self.clock()) * 1000


# Outermost first. Scopes may run on different clocks (tests hand one in), so the tightest is found by asking each.
_scopes: ContextVar[tuple[_Scope, ...]] = ContextVar("deadline_scopes", default=())


@contextmanager
def within(seconds: float, clock: Clock = time.monotonic) -> Iterator[None]:
    """The block has `seconds` from now, or less when a scope around it ends sooner.

    Nothing is interrupted: whoever waits inside asks `remaining_ms` and keeps to it.
    """
    token = _scopes.set((*_scopes.get(), _Scope(clock() + seconds, clock)))
    try:
        yield
    finally:
        _scopes.reset(token)


def left_ms() -> float | None:
    """Milliseconds until the tightest scope ends, negative once it has; None outside of any scope."""
    return min((scope.left_ms() for scope in _scopes.get()), default=None)


def remaining_ms(default: float) -> float:
    """Milliseconds one may still spend: the scope's rest, at most `default`.

    Raises DeadlineExceeded when the scope is over.
    """
    left = left_ms()
    if left is None:
        return default
    if left <= 0:
        raise DeadlineExceeded("the request's deadline has passed")
    return min(left, default)
