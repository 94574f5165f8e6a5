"""Checks of every value that enters the ledger, the same for HTTP and gRPC.

The functions return the cleaned value, or raise `InvalidRequest` naming the field, what was found and what is
allowed. Where AgentENV's clients compare an error text, the error has exactly that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler.domain import address, text
from scheduler.domain.duration import format_duration
from scheduler.domain.labels import LABEL_FORM, LABEL_VALUES_MAX, LABELS_MAX, is_label
from scheduler.domain.limits import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_MAX,
    RESERVATION_TTL_MAX_MS,
    SAFE_INTEGER_MAX,
    TEXT_BYTES_MAX,
    UINT32_MAX,
)
from scheduler.domain.placement import Spread
from scheduler.domain.resources import RESOURCES_MAX
from scheduler.domain.text import ID_FORM as ID_FORM
from scheduler.domain.text import trim as trim
from scheduler.errors import Blank, FieldError, InvalidRequest

_VISIBLE_ASCII = re.compile(rf"[!-~]{{1,{IDEMPOTENCY_KEY_MAX}}}")

_SHOWN_CHARACTERS = 200


def shown(value: Any) -> Any:
    """The value in a form that an error may show: JSON, short, and encodable."""
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, int) or abs(value) < 2**63 else f"{str(value)[:40]}…"
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, str):
        words = value
    elif isinstance(value, Mapping):
        words = f"an object with {len(value)} members"
    elif isinstance(value, list | tuple):
        words = f"a list of {len(value)}"
    else:
        words = type(value).__name__
    short = words if len(words) <= _SHOWN_CHARACTERS else f"{words[:_SHOWN_CHARACTERS]}…"
    return short.encode("utf-8", "replace").decode("utf-8")


def refuse(field: str, found: Any, allowed: str) -> InvalidRequest:
    """The error for exactly one broken field."""
    return InvalidRequest.field(field, shown(found), allowed)


def required(detail: str, **values: str) -> None:
    """Raises `Blank` with `detail`, a text that clients compare, if one of the values is blank."""
    blank = [FieldError(field, shown(value), ID_FORM) for field, value in values.items() if not trim(value)]
    if blank:
        raise Blank(detail, blank)


def clean_id(field: str, value: str, most_bytes: int = ID_BYTES_MAX) -> str:
    """The trimmed id; any Unicode but control characters is fine."""
    cleaned = text.clean_id(value, most_bytes)
    if cleaned is None:
        raise refuse(field, value, f"1 to {most_bytes} bytes of text without control characters")
    return cleaned


def clean_optional_id(field: str, value: str) -> str:
    """Like `clean_id`, but "" for a blank value."""
    return clean_id(field, value) if trim(value) else ""


def clean_roster(sandbox_ids: Iterable[str]) -> tuple[str, ...]:
    """The trimmed roster in its order, without duplicates. Drops invalid sandbox ids and keeps the rest, because
    those sandboxes run."""
    given = tuple(sandbox_ids)
    if text.are_plain_ids(given):
        return given if len(set(given)) == len(given) else tuple(dict.fromkeys(given))
    kept = dict.fromkeys(text.clean_id(value) for value in given)
    kept.pop(None, None)
    return tuple(kept)  # type: ignore[arg-type]  # None is gone


def encodable(field: str, value: str) -> int:
    """The text's size in UTF-8. Refuses text that cannot be encoded (half a surrogate pair)."""
    try:
        return len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise refuse(field, value, "text that can be written as UTF-8") from None


def clean_text(field: str, value: str, most_bytes: int = TEXT_BYTES_MAX) -> str:
    """Free text that is stored and shown, never looked up; only its size and encoding are checked."""
    if encodable(field, value) > most_bytes:
        raise refuse(field, value, f"at most {most_bytes} bytes")
    return value


def clean_endpoint(field: str, value: str) -> str:
    """The trimmed endpoint: a URL with scheme and host, because a gateway proxies to it; a path is a prefix."""
    cleaned = address.clean_endpoint(value)
    if cleaned is None:
        raise refuse(field, value, address.ENDPOINT_FORM)
    return cleaned


def whole_number(field: str, value: int, most: int, least: int = 0) -> int:
    """An integer within bounds; booleans and fractions are refused."""
    if type(value) is not int or not least <= value <= most:
        raise refuse(field, value, f"a whole number from {least} to {most}")
    return value


def uint32(field: str, value: int) -> int:
    return whole_number(field, value, UINT32_MAX)


def byte_count(field: str, value: int) -> int:
    """Bytes and counters, up to what a double holds exactly."""
    return whole_number(field, value, SAFE_INTEGER_MAX)


def clean_labels(field: str, labels: Mapping[str, str]) -> dict[str, str]:
    """At most 16 labels of a node, by name."""
    if len(labels) > LABELS_MAX:
        raise refuse(field, labels, f"at most {LABELS_MAX} labels")
    for name, value in labels.items():
        if not is_label(name):
            raise refuse(field, name, f"named by {LABEL_FORM}")
        if not is_label(value):
            raise refuse(f"{field}.{name}", value, LABEL_FORM)
    return dict(sorted(labels.items()))


def clean_require(field: str, require: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """At most 16 labels, each with 1 to 16 values; the node must have one of them. Order and repetition are ignored."""
    if len(require) > LABELS_MAX:
        raise refuse(field, require, f"at most {LABELS_MAX} labels")
    for name, values in require.items():
        if not is_label(name):
            raise refuse(field, name, f"named by {LABEL_FORM}")
        if not 1 <= len(values) <= LABEL_VALUES_MAX:
            raise refuse(f"{field}.{name}", values, f"1 to {LABEL_VALUES_MAX} values")
        for value in values:
            if not is_label(value):
                raise refuse(f"{field}.{name}", value, LABEL_FORM)
    return {name: tuple(sorted(set(values))) for name, values in sorted(require.items())}


def clean_resources(field: str, resources: Mapping[str, Any], most: int = RESOURCES_MAX) -> None:
    """At most so many names, as labels have them; which ones may be asked for the ledger's settings say."""
    if len(resources) > most:
        raise refuse(field, resources, f"at most {most} resources")
    for name in resources:
        if not is_label(name):
            raise refuse(field, name, f"named by {LABEL_FORM}")


def clean_spread(field: str, spread: Spread) -> Spread:
    """A key, nodes or a label to spread it over, and one bound."""
    key = clean_id(f"{field}.key", spread.key)
    if not is_label(spread.over):
        raise refuse(f"{field}.over", spread.over, f'"node", or the name of a label: {LABEL_FORM}')
    bounds = {name: most for name, most in (("max", spread.max), ("skew", spread.skew)) if most is not None}
    if len(bounds) != 1:
        raise refuse(field, "both" if bounds else "neither", "exactly one of max and skew")
    for name, most in bounds.items():
        whole_number(f"{field}.{name}", most, UINT32_MAX, least=1)
    return replace(spread, key=key)


def clean_ttl_ms(field: str, value: int) -> int:
    """A reservation's lifetime: above zero, at most a day."""
    if type(value) is not int or not 0 < value <= RESERVATION_TTL_MAX_MS:
        found = format_duration(value) if type(value) is int else value
        raise refuse(field, found, "a duration above 0 and at most 24h")
    return value


def clean_idempotency_key(field: str, value: str) -> str:
    if not _VISIBLE_ASCII.fullmatch(value):
        raise refuse(field, value, f"1 to {IDEMPOTENCY_KEY_MAX} visible ASCII characters")
    return value
