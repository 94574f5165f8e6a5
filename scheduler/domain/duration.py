"""Durations as AgentENV writes them, in Go's form: `30s`, `1m30s`, `500ms`, `1.5h`.

Inside the scheduler a duration is whole milliseconds, rounded up, so a positive one never becomes 0.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from scheduler.domain.limits import SAFE_INTEGER_MAX

_UNIT_MS = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1000),
    "µs": Fraction(1, 1000),  # U+00B5, the micro sign
    "μs": Fraction(1, 1000),  # U+03BC, the Greek letter
    "ms": Fraction(1),
    "s": Fraction(1000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+")

DURATION_FORM = "a duration such as 30s, 1m30s or 500ms"


def parse_duration(text: str) -> Fraction:
    """Exact milliseconds of a Go duration. Raises ValueError for any other text.

    The sign is kept: the caller decides whether zero or a negative duration makes sense."""
    stripped = text.strip()
    if stripped in {"0", "+0", "-0"}:
        return Fraction(0)
    if len(stripped) > 64 or not _WHOLE.fullmatch(stripped):
        raise ValueError(DURATION_FORM)
    exact = sum((Fraction(amount) * _UNIT_MS[unit] for amount, unit in _PART.findall(stripped)), Fraction(0))
    if exact > SAFE_INTEGER_MAX:
        raise ValueError(DURATION_FORM)
    return -exact if stripped.startswith("-") else exact


def parse_duration_ms(text: str) -> int:
    """The same in whole milliseconds, rounded away from zero."""
    exact = parse_duration(text)
    whole_ms = math.ceil(abs(exact))
    return -whole_ms if exact < 0 else whole_ms


def format_duration(duration_ms: int) -> str:
    """The shortest Go form of exactly this duration: 90000 → `1m30s`, 1500 → `1.5s`, 5 → `5ms`."""
    if duration_ms < 0:
        return "-" + format_duration(-duration_ms)
    if duration_ms == 0:
        return "0s"
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    hours, rest = divmod(duration_ms, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if rest:
        seconds, milliseconds = divmod(rest, 1000)
        fraction = f".{milliseconds:03d}".rstrip("0") if milliseconds else ""
        parts.append(f"{seconds}{fraction}s")
    return "".join(parts)
