"""Times calls of the ledger, and counts those in which it was at fault."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from prometheus_client import Counter

from scheduler.errors import SchedulerError
from scheduler.observability.timings import Timings

if TYPE_CHECKING:
    from scheduler.observability.tracing import RequestSpan

_STORE_ERROR_CODES = frozenset({"store_unavailable", "not_rebuilt", "overloaded", "deadline_exceeded", "internal"})


class Labelled(dict[tuple[str, ...], Counter]):
    """A counter's children by their labels: `calls["confirm", "done"]`. Cached, because on the hot path the library's
    look-up costs more than counting."""

    def __init__(self, metric: Counter) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, labels: tuple[str, ...]) -> Counter:
        child: Counter = self._metric.labels(*labels)
        self[labels] = child
        return child


def fault_of_ledger(error: BaseException | None) -> str | None:
    """The code of an error that the ledger caused; None when the request caused it, or there is none."""
    return error.code if isinstance(error, SchedulerError) and error.code in _STORE_ERROR_CODES else None


class LedgerCall:
    """Times one ledger call, and counts it as an error when the ledger, not the request, was at fault."""

    __slots__ = ("_errors", "_operation", "_seconds", "_started")

    def __init__(self, seconds: Timings, errors: Labelled, operation: str) -> None:
        self._seconds = seconds
        self._errors = errors
        self._operation = operation
        self._started = 0.0

    def __enter__(self) -> LedgerCall:
        self._started = asyncio.get_running_loop().time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        elapsed = asyncio.get_running_loop().time() - self._started
        self._seconds[(self._operation,)].observe(elapsed)
        code = fault_of_ledger(error)
        if code is not None:
            self._errors[self._operation, code].inc()


class TracedLedgerCall:
    """A LedgerCall inside a tracing span."""

    def __init__(self, call: LedgerCall, span: AbstractContextManager[RequestSpan]) -> None:
        self._call = call
        self._around = span

    def __enter__(self) -> TracedLedgerCall:
        self._span = self._around.__enter__()
        self._call.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call.__exit__(kind, error, traceback)
        code = fault_of_ledger(error)
        if code is not None:
            self._span.fail(code)
        self._around.__exit__(kind, error, traceback)
