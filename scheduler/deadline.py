"""The deadline of the present call.

The edge that receives a request opens a scope with `within(seconds)`; code further down asks `remaining_ms`. Scopes
nest, and an inner one can only shorten the time. The scope follows the task (a context variable) on a monotonic
clock, so a changed wall clock moves no deadline.
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


# Outermost first. Scopes may have different clocks (tests pass one), so each is asked for the time left.
_scopes: ContextVar[tuple[_Scope, ...]] = ContextVar("deadline_scopes", default=())


@contextmanager
def within(seconds: float, clock: Clock = time.monotonic) -> Iterator[None]:
    """The block has `seconds` from now, or less when an outer scope ends sooner.

    Nothing is interrupted: code inside must ask `remaining_ms` and keep to it."""
    token = _scopes.set((*_scopes.get(), _Scope(clock() + seconds, clock)))
    try:
        yield
    finally:
        _scopes.reset(token)


def left_ms() -> float | None:
    """Milliseconds until the first scope ends, negative once it has; None outside of any scope."""
    return min((scope.left_ms() for scope in _scopes.get()), default=None)


def remaining_ms(default: float) -> float:
    """Milliseconds until the first scope ends, at most `default`.

    Raises DeadlineExceeded when that scope has ended."""
    left = left_ms()
    if left is None:
        return default
    if left <= 0:
        raise DeadlineExceeded("the request's deadline has passed")
    return min(left, default)
