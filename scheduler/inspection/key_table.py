"""What kinds of key a domain has, and what keeps each of them from piling up.

`docs/architecture.md` has the same table for people, with what each key holds. A key that none of these kinds
matches is one that nothing explains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scheduler.connection.keys import Keys


class Bound(Enum):
    """Why keys of a kind cannot pile up. JUDGED: a recount script compares them with their owner."""

    ONE = "one of a kind"
    JUDGED = "judged with what it belongs to"
    TTL = "a TTL"
    NODE = "its node is listed, or it has a TTL"
    RESERVATION = "open and due to expire, or finished with a TTL"
    SANDBOX = "an open reservation carries it, or it has a TTL"
    ROW = "of a class that is listed in classes"
    TEMPLATE = "listed in templates"
    CAPACITY = "listed in capacities"
    PARKED = "listed in artifact_leftovers"
    LABELS = "of a label set that is listed in label_sets"


@dataclass(frozen=True, slots=True)
class KeyKind:
    """`name` as `Keys` has it; `holds` is what TYPE answers."""

    name: str
    holds: str
    bound: Bound = Bound.ONE


# The sets that nodes stand in by their pool, and once more by pool and label set.
POOL_SETS = (
    *("candidates", "ready", "waiting", "unhealthy", "last_resort", "lingering", "over_limit"),
    *("avoided", "avoided_ready", "avoided_last_resort"),
)

_KINDS = (
    *(
        KeyKind(name, "hash")
        for name in (
            "shared_settings",
            "rotations",
            "stats",
            "tallies",
            "rates",
            "loads",
            "classes",
            "heads",
            "bindings",
            "groups",
        )
    ),
    *(KeyKind(name, "hash") for name in ("artifact_scopes", "artifact_epochs", "label_sets", "spreads")),
    *(KeyKind(name, "zset") for name in ("nodes", "configured", "seen", "silent", "removed", "forgotten", "replicas")),
    *(KeyKind(name, "zset") for name in (*POOL_SETS, "avoided_until")),
    *(KeyKind(name, "zset") for name in ("reservations", "expiry", "finished", "assigned", "ended")),
    *(KeyKind(name, "zset") for name in ("groups:recent", "templates", "artifacts", "capacities")),
    *(KeyKind(name, "zset") for name in ("decisions", "audit")),
    *(KeyKind(f"{name}:{{}}", "zset", Bound.LABELS) for name in POOL_SETS),
    *(KeyKind(name, "list") for name in ("artifact_leftovers",)),
    *(KeyKind(name, "string") for name in ("sequence", "settings", "cursors", "artifact_backlog")),
    *(KeyKind(name, "hash") for name in ("conversion", "rebuild")),
    KeyKind("node:{}", "hash", Bound.NODE),
    KeyKind("node:{}:cpu_config", "hash", Bound.NODE),
    KeyKind("node:{}:explained", "zset", Bound.TTL),
    KeyKind("node:{}:reservations", "zset", Bound.JUDGED),
    KeyKind("node:{}:finished", "zset", Bound.JUDGED),
    KeyKind("node:{}:claims", "hash", Bound.JUDGED),
    KeyKind("node:{}:acknowledged", "zset", Bound.JUDGED),
    KeyKind("node:{}:unnamed", "hash", Bound.JUDGED),
    KeyKind("node:{}:doubts", "hash", Bound.JUDGED),
    KeyKind("node:{}:deleted", "zset", Bound.JUDGED),
    KeyKind("node:{}:sandboxes", "set", Bound.JUDGED),
    KeyKind("node:{}:assigned", "zset", Bound.JUDGED),
    KeyKind("node:{}:artifacts", "set", Bound.JUDGED),
    KeyKind("node:{}:warm", "zset", Bound.JUDGED),
    KeyKind("row:{}", "zset", Bound.ROW),
    KeyKind("unknown:{}", "zset", Bound.JUDGED),
    KeyKind("capacity:{}", "zset", Bound.CAPACITY),
    KeyKind("resource:{}", "zset", Bound.JUDGED),
    KeyKind("reservation:{}", "hash", Bound.RESERVATION),
    KeyKind("batch:{}", "hash", Bound.TTL),
    KeyKind("sandbox:{}", "string", Bound.SANDBOX),
    KeyKind("spread:{}", "hash", Bound.JUDGED),
    KeyKind("template:{}", "hash", Bound.TEMPLATE),
    KeyKind("artifact:{}", "hash", Bound.JUDGED),
    KeyKind("warm:{}", "zset", Bound.JUDGED),
    KeyKind("artifact_leftovers:{}", "set or hash", Bound.PARKED),
    KeyKind("cpu_configs:{}", "zset", Bound.JUDGED),
    KeyKind("cpu_config_counts:{}", "hash", Bound.JUDGED),
    KeyKind("cpu_config_result:{}", "hash", Bound.JUDGED),
    KeyKind("lease:{}", "hash", Bound.TTL),
    KeyKind("refused:{}", "string", Bound.TTL),
    KeyKind("scratch:{}", "string or hash or list or set or zset", Bound.TTL),
)
KEY_TABLE: Mapping[str, KeyKind] = {kind.name: kind for kind in _KINDS}

_BY_ID = [kind for kind in _KINDS if "{}" in kind.name and not kind.name.startswith("node:")]


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key of the domain: its full `key`, its kind, and the id in it ("" when there is one of a kind)."""

    key: str
    kind: KeyKind
    identity: str = ""


def explain_key(keys: Keys, key: str) -> FoundKey | None:
    """What `key` is; None when nothing explains it."""
    name = keys.name_of(key)
    if name is None:
        return None
    if name in KEY_TABLE and "{}" not in name:
        return FoundKey(key, KEY_TABLE[name])
    if name.startswith("node:"):
        node, colon, part = name.removeprefix("node:").partition(":")
        kind = KEY_TABLE.get(f"node:{{}}:{part}" if colon else "node:{}")
        return FoundKey(key, kind, _node_id(node)) if kind and node else None
    for kind in _BY_ID:
        before = kind.name.removesuffix("{}")
        if name.startswith(before):
            return FoundKey(key, kind, name.removeprefix(before))
    return None


def _node_id(escaped: str) -> str:
    return re.sub("%(25|3A)", lambda found: "%" if found[1] == "25" else ":", escaped)
