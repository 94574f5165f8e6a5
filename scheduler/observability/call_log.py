"""Limits log lines about single calls, which can be thousands a second, and says how many were left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from scheduler.observability.logging import writes_debug

CALLS_PER_SECOND = 20


@dataclass(slots=True)
class _Second:
    began: float
    kept: int = 0
    left_out: int = 0


class CallLog:
    """At most `per_second` lines per second of each kind of event keep their level; the others are logged at debug.

    The next line that keeps its level says in `left_out` how many did not. 0: all of them at debug."""

    def __init__(self, per_second: int = CALLS_PER_SECOND, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._seconds: dict[str, _Second] = {}

    def info(self, log: structlog.stdlib.BoundLogger, event: str, **fields: Any) -> None:
        self._write("info", log, event, fields)

    def warning(self, log: structlog.stdlib.BoundLogger, event: str, **fields: Any) -> None:
        self._write("warning", log, event, fields)

    def _write(self, level: str, log: structlog.stdlib.BoundLogger, event: str, fields: dict[str, Any]) -> None:
        now = self._clock()
        second = self._seconds.get(event)
        if second is None or now - second.began >= 1:
            left_out = second.left_out if second is not None else 0
            second = self._seconds[event] = _Second(now, left_out=left_out)
        if second.kept >= self._per_second:
            second.left_out += 1
            if writes_debug():
                log.debug(event, **fields)
            return
        second.kept += 1
        if second.left_out:
            fields["left_out"], second.left_out = second.left_out, 0
        getattr(log, level)(event, **fields)
