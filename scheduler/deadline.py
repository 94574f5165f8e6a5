"""The deadline of the present call.

The edge that receives a request opens a scope with `within(seconds)`; code further down asks `remaining_ms`. Scopes
nest, and an inner one can only shorten the time. The scope follows the task (a context variable) on a monotonic
clock, so a changed wall clock moves no deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar

from scheduler.errors import DeadlineExceeded

Clock = Callable[[], float]


# When each scope ends, and on which clock (tests pass one); the outermost first.
_scopes: ContextVar[tuple[tuple[float, Clock], ...]] = ContextVar("deadline_scopes", default=())


class within:  # noqa: N801 - used like a function: `with within(2): …`
    """The block has `seconds` from now, or less when an outer scope ends sooner.

    Nothing is interrupted: code inside must ask `remaining_ms` and keep to it."""

    __slots__ = ("_clock", "_seconds", "_token")

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock

    def __enter__(self) -> None:
        self._token = _scopes.set((*_scopes.get(), (self._clock() + self._seconds, self._clock)))

    def __exit__(self, *error: object) -> None:
        _scopes.reset(self._token)


def left_ms() -> float | None:
    """Milliseconds until the first scope ends, negative once it has; None outside of any scope."""
    least: float | None = None
    for ends_at, clock in _scopes.get():
        left = (ends_at - clock()) * 1000
        if least is None or left < least:
            least = left
    return least


def remaining_ms(default: float) -> float:
    """Milliseconds until the first scope ends, at most `default`.

    Raises DeadlineExceeded when that scope has ended."""
    left = left_ms()
    if left is None:
        return default
    if left <= 0:
        raise DeadlineExceeded("the request's deadline has passed")
    return min(left, default)
