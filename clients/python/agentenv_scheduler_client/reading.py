"""Answers to frozen dataclasses, and dataclasses to request bodies, by their annotations.

An answer of a later server is read as far as this version knows it: further members are left out, and a text that
an enumeration does not know becomes a member of it all the same. An answer of an earlier server may lack members
that have a default.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]


class Unreadable(ValueError):
    """The content is not what the contract says; something else may have answered."""


class OpenEnum(StrEnum):
    """Texts that a later server may know more of: `NodeStatus("new")` is a member that has that value and no name."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = ""
        member._value_ = value
        return member


def read(kind: type[T], content: Any) -> T:
    """The content as `kind`. Raises Unreadable."""
    reader: Callable[[Any], T] = _reader(kind)  # type: ignore[arg-type]  # a class is hashable
    return reader(content)


def body_of(value: Any) -> dict[str, Any]:
    """A dataclass as JSON. Members that have their default are left out, which means the same to every server and
    spares earlier ones the members that they do not know; so are those that only answers have."""
    return {
        each.name: _plain(given)
        for each in fields(value)
        if (given := getattr(value, each.name)) != _default(each) and each.metadata != ANSWERED
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return body_of(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(each) for each in value]
    return value


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


# Marks a member that only answers have.
ANSWERED = {"answered": True}
# Marks the member that has whatever stands beside the others, by name.
OTHERS = {"others": True}


@cache
def _reader(kind: Any) -> Reader:
    origin = get_origin(kind)
    if kind is Any:
        return lambda value: value
    if origin in (types.UnionType, typing.Union):
        (known,) = (each for each in get_args(kind) if each is not types.NoneType)
        reader = _reader(known)
        return lambda value: None if value is None else reader(value)
    if origin is tuple:
        item = _reader(get_args(kind)[0])
        return lambda value: tuple(item(each) for each in _of(list, value))
    if origin is Mapping:
        item = _reader(get_args(kind)[1])
        return lambda value: {name: item(each) for name, each in _of(dict, value).items()}
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if issubclass(kind, OpenEnum):
        return lambda value: kind(_of(str, value))
    return _number if kind in (int, float) else lambda value: _of(kind, value)


def _dataclass_reader(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    others = next((each.name for each in fields(kind) if each.metadata == OTHERS), None)
    members = [(each.name, _reader(hints[each.name]), _default(each) is MISSING) for each in fields(kind)]
    names = {name for name, _, _ in members}

    def read_members(value: Any) -> Any:
        content = _of(dict, value)
        if others:
            content = {**content, others: {name: each for name, each in content.items() if name not in names}}
        known = {name: reader(content[name]) for name, reader, _ in members if name in content}
        lacking = [name for name, _, required in members if required and name not in known]
        if lacking:
            raise Unreadable(f"{kind.__name__} without {', '.join(lacking)}")
        return kind(**known)

    return read_members


def _of(kind: type[T], value: Any) -> T:
    if isinstance(value, kind):
        return value
    raise Unreadable(f"{type(value).__name__} where {kind.__name__} was expected")


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise Unreadable(f"{type(value).__name__} where a number was expected")
