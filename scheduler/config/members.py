"""Finds members of tables: names match in any case, and one that is given twice is a fault."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.config.kinds import Unacceptable

_REPEATED_NAME = "a member that is given once"


class JsonTable(dict[str, Any]):
    """A JSON object. `repeated`: the names that it gives more than once, of which a plain dict keeps the last."""

    repeated: frozenset[str] = frozenset()


def load_json(text: str) -> Any:
    """As `json.loads`, with a JsonTable for each object."""
    return json.loads(text, object_pairs_hook=_table)


def _table(pairs: list[tuple[str, Any]]) -> JsonTable:
    table = JsonTable(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        table.repeated = frozenset(name for name in table if names.count(name) > 1)
    return table


def member(table: Mapping[str, Any], name: str, at: str = "") -> Any:
    """The member of that name in any case, as Go's JSON reader matches; None without one.

    Raises Unacceptable, with the member's place after `at`, when it is given more than once."""
    found = [each for each in table if each.casefold() == name.casefold()]
    if not found:
        return None
    again = [each for each in found if each in repeated_names(table)]
    if len(found) > 1 or again:
        raise Unacceptable(_REPEATED_NAME, f"{at}.{name}", ", ".join([*found, *again]))
    return table[found[0]]


def repeated_names(table: Mapping[str, Any]) -> Iterable[str]:
    """The names that a JSON object gives more than once; TOML has none."""
    return table.repeated if isinstance(table, JsonTable) else ()
