"""Reads JSON as Go's encoding/json reads it into a struct, which hints must match exactly.

It differs from Python's reading in this: member names match in any case, every occurrence of a repeated member is
read in order, whole numbers are recognised by their spelling (`2.0` and `1e1` are none), NaN is not JSON, and half a
surrogate pair becomes U+FFFD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

_WHOLE = re.compile(r"[0-9]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# The only characters beyond ASCII that fold to an ASCII letter: the long s and the Kelvin sign.
_FOLDED = str.maketrans({"\u017f": "s", "\u212a": "k"})


class Members(list[tuple[str, Any]]):
    """An object's members in their order, repetitions included."""


class Number(str):
    """A number exactly as it was written."""

    __slots__ = ()


Value: TypeAlias = "Members | list[Any] | Number | str | bool | None"


class MalformedBody(Exception):
    """The text is not exactly one JSON value."""


class NotThatType(Exception):
    """A member's value has the wrong type for its field."""

    def __init__(self, field: str, value: Value, wanted: str) -> None:
        super().__init__(f"{field} must be {wanted}, found {_named(value)}")
        self.field = field


def parse(text: str) -> Value:
    """The one JSON value in the text. Raises MalformedBody, also for input nested too deep."""
    try:
        value: Value = json.loads(
            text, object_pairs_hook=_members, parse_int=Number, parse_float=Number, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise MalformedBody("nested too deep") from None
    except ValueError as error:
        raise MalformedBody(f"not JSON ({error})") from None
    return value


def each_member(members: Members, readers: Mapping[str, Callable[[Value], None]]) -> None:
    """Calls the reader of each member's name; other members are skipped."""
    for name, value in members:
        reader = readers.get(name.translate(_FOLDED).lower())
        if reader is not None:
            reader(value)


def read_text(field: str, value: Value, kept: str) -> str:
    """A text; null keeps the earlier value."""
    if value is None:
        return kept
    if not isinstance(value, str) or isinstance(value, Number):
        raise NotThatType(field, value, "a text")
    return scrubbed(value)


def read_uint(field: str, value: Value, kept: int, bits: int) -> int:
    """A whole number of that many bits, without sign, fraction or exponent; null keeps the earlier value."""
    if value is None:
        return kept
    most = 2**bits - 1
    # The length is checked first, so that a number of a thousand digits is never converted.
    if isinstance(value, Number) and _WHOLE.fullmatch(value) and len(value) <= 20 and int(value) <= most:
        return int(value)
    raise NotThatType(field, value, f"a whole number from 0 to {most}")


def read_object(field: str, value: Value) -> Members:
    """An object's members; null has none."""
    if value is None:
        return Members()
    if not isinstance(value, Members):
        raise NotThatType(field, value, "an object")
    return value


def read_list(field: str, value: Value) -> list[Any]:
    if not isinstance(value, list) or isinstance(value, Members):
        raise NotThatType(field, value, "a list")
    return value


def scrubbed(text: str) -> str:
    """The text with half surrogate pairs replaced, as Go replaces them."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _members(pairs: list[tuple[str, Any]]) -> Members:
    return Members((scrubbed(name), value) for name, value in pairs)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _named(value: Value) -> str:
    if isinstance(value, Number):
        return value if len(value) <= 40 else f"a number of {len(value)} digits"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Members):
        return "an object"
    return "null" if value is None else "a list"
