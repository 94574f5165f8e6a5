"""Durations as AgentENV writes them, in Go's form: `30s`, `1m30s`, `500ms`, `1.5h`.

Inside the scheduler a duration is whole milliseconds, rounded up, so a positive one never becomes 0.
"""

from __future__ import annotations

import re

from scheduler.domain.limits import SAFE_INTEGER_MAX

_UNIT_NS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,  # U+00B5, the micro sign
    "μs": 1000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
LENGTH_MAX = 64
# Durations are read exactly, as whole numbers of parts: no text is long enough for a smaller one.
_PARTS_PER_MS: int = 10**LENGTH_MAX * 1_000_000
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+")

DURATION_FORM = "a duration such as 30s, 1m30s or 500ms"


def parse_duration(text: str) -> float:
    """Milliseconds of a Go duration. Raises ValueError for any other text.

    The sign is kept: the caller decides whether zero or a negative duration makes sense."""
    return _parts_of(text) / _PARTS_PER_MS


def parse_duration_ms(text: str) -> int:
    """The duration in whole milliseconds, rounded away from zero."""
    parts = _parts_of(text)
    whole_ms = -(-abs(parts) // _PARTS_PER_MS)
    return -whole_ms if parts < 0 else whole_ms


def _parts_of(text: str) -> int:
    stripped = text.strip()
    if stripped in {"0", "+0", "-0"}:
        return 0
    if len(stripped) > LENGTH_MAX or not _WHOLE.fullmatch(stripped):
        raise ValueError(DURATION_FORM)
    parts = 0
    for amount, unit in _PART.findall(stripped):
        whole, _, decimals = amount.partition(".")
        parts += int(whole + decimals) * 10 ** (LENGTH_MAX - len(decimals)) * _UNIT_NS[unit]
    if parts > SAFE_INTEGER_MAX * _PARTS_PER_MS:
        raise ValueError(DURATION_FORM)
    return -parts if stripped.startswith("-") else parts


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
