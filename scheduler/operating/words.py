"""Ages, sizes, instants and bars as people read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from scheduler.domain.duration import format_duration
from scheduler.domain.resources import DISK

NONE = "–"
BAR_CELLS = 10
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


# Control characters; and what turns the direction of the text around it.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with escapes in place of what would command a terminal: callers' texts are shown to operators."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def bar(used: int, budget: int) -> str:
    """`████░░░░░░ 4 of 10`; without a budget only what is used."""
    if budget == 0:
        return f"{used}"
    cells = min(BAR_CELLS, round(BAR_CELLS * used / budget))
    return f"{'█' * cells}{'░' * (BAR_CELLS - cells)} {used} of {budget}"


def age(ms: int) -> str:
    """Whole seconds from one second on: `12s`, `1h30m`."""
    return format_duration(ms if abs(ms) < 1000 else ms - ms % 1000)


def size(count: int) -> str:
    """`512 MiB`, `1.5 GiB`."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def instant(at_ms: int) -> str:
    """`2026-01-31 12:00:00.125 UTC`."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d} UTC"


def resource_amount(name: str, amount: int) -> str:
    """An amount of a resource beside CPUs and memory, in words: disks are in bytes."""
    return size(amount) if name == DISK else f"{amount:,}"


def amounts(resources: Mapping[str, int]) -> list[str]:
    """What is asked of resources beside CPUs and memory, by name."""
    return [f"{resource_amount(name, amount)} {name}" for name, amount in sorted(resources.items())]


def label_list(labels: Mapping[str, str | Sequence[str]]) -> str:
    """Labels in words: `zone=east`, several values as `zone=east|west`."""
    told = (f"{name}={value if isinstance(value, str) else '|'.join(value)}" for name, value in sorted(labels.items()))
    return ", ".join(told)


def known(amount: int | None, shown: Callable[[int], str] = str) -> str:
    return "?" if amount is None else shown(amount)


def status_word(status: str) -> str:
    """`lingering`, the wire's word, is `draining` to people."""
    return "draining" if status == "lingering" else status
