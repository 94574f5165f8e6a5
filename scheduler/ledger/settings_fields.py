"""The settings as fields of the ledger's hash, readable with redis-cli.

Names and forms follow from the fields of `LedgerSettings`: a switch is 1 or 0, a choice its name, and None is
`unlimited` or `off`, or for a limit no field at all. A new setting needs no line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from scheduler.domain.settings import AffinitySettings, GroupSettings, LedgerSettings, Limits, NodeResourceLimit
from scheduler.ledger.format import FORMAT
from scheduler.ledger.runner import not_understood

# The revision is stored beside the content, templates under keys of their own.
_NOT_CONTENT = frozenset({"revision", "templates"})

# What None is, where it is not `unlimited`.
_NONE: Mapping[type, str | None] = {NodeResourceLimit: None, AffinitySettings: "off"}


@dataclass(frozen=True, slots=True)
class _Stored:
    """One setting: where it is in `LedgerSettings`, its name in the hash, its type, whether it may be None, and what
    then stands in the hash; nothing where `none` is None too."""

    path: str
    name: str
    type: type
    optional: bool
    none: str | None = "unlimited"

    def encode(self, value: Any) -> str | None:
        if value is None:
            return self.none
        if self.type is tuple:
            return ",".join(value)
        return str(int(value)) if self.type is bool else str(value)

    def decode(self, found: Mapping[str, str]) -> Any:
        """Raises KeyError and ValueError for what this version does not understand."""
        if self.none is None and not found.get(self.name):
            return None
        raw = found[self.name]
        if self.type is tuple:
            return tuple(part for part in raw.split(",") if part)
        if self.optional and raw == self.none:
            return None
        return raw == "1" if self.type is bool else self.type(raw)


@cache
def _hints(group: type) -> dict[str, Any]:
    """Its annotations are texts, and reading one takes as long as a call of the ledger."""
    return get_type_hints(group)


def _stored(group: type, path: str, named: Callable[[str], str]) -> Iterator[_Stored]:
    hints = _hints(group)
    for each in fields(group):
        found = hints[each.name]
        if isinstance(found, type) and is_dataclass(found):
            yield from _stored(found, f"{path}{each.name}.", _naming(found, each.name))
        elif path or each.name not in _NOT_CONTENT:
            types = (tuple,) if get_origin(found) is tuple else get_args(found) or (found,)
            none = _NONE.get(group, "unlimited")
            yield _Stored(path + each.name, named(each.name), types[0], NoneType in types, none)


def _naming(group: type, place: str) -> Callable[[str], str]:
    """How the fields of a group are named in the hash: with the group's name before them, unless they say it."""
    if group is NodeResourceLimit:
        return str
    if group is GroupSettings:
        return lambda name: name if "group" in name else f"group_{name}"
    return lambda name: f"{place}_{name}"


STORED = tuple(_stored(LedgerSettings, "", str))


def encode(settings: LedgerSettings) -> dict[str, str]:
    """The fields of the `settings` hash. `limited` is for placements: whether a limit counts what is pending."""
    content = {"limited": str(int(settings.limits is Limits.PENDING and settings.node_resource_limit.counts))}
    for each in STORED:
        value = each.encode(attrgetter(each.path)(settings))
        if value is not None:
            content[each.name] = value
    return content


def decode(found: Mapping[str, str]) -> LedgerSettings:
    """Raises StoreUnusable for settings of another version: an unknown format, name or value."""
    if found.get("format") != str(FORMAT):
        raise not_understood("format", found.get("format", ""))
    for each in STORED:
        if issubclass(each.type, StrEnum) and found.get(each.name) not in list(each.type):
            raise not_understood(each.name, found.get(each.name, ""))
    try:
        values = {each.path: each.decode(found) for each in STORED}
        built: LedgerSettings = _built(LedgerSettings, "", {**values, "revision": int(found["revision"])})
    except (KeyError, ValueError) as error:
        raise not_understood("settings", str(error)) from error
    return built


def _built(group: type, path: str, values: Mapping[str, Any]) -> Any:
    """The group, and those inside it, from values by path."""
    hints = _hints(group)
    taken: dict[str, Any] = {}
    for each in fields(group):
        if is_dataclass(hints[each.name]):
            taken[each.name] = _built(hints[each.name], f"{path}{each.name}.", values)
        elif path + each.name in values:
            taken[each.name] = values[path + each.name]
    return group(**taken)
