"""Whether every key is explained, holds what it should, and cannot pile up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.connection.exchange import Command
from scheduler.inspection.finding import Finding
from scheduler.inspection.key_table import Bound, FoundKey
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger

NO_TTL, GONE = -1, -2
_OPEN = {"pending", "confirmed"}


async def judge_keys(ledger: Ledger, found: Sequence[FoundKey]) -> list[Finding]:
    """What is wrong with these keys, at most some hundreds of them."""
    if not found:
        return []
    asked: list[Command] = []
    for key in found:
        asked += [("TYPE", key.key), ("PTTL", key.key), _ask_owner(ledger, key)]
    replies = await ledger.client.pipeline(asked)
    findings: list[Finding] = []
    for index, key in enumerate(found):
        holds, ttl_ms, owner = replies[3 * index : 3 * index + 3]
        if int(ttl_ms) == GONE:
            continue
        if codec.text(holds) not in key.kind.holds.split(" or "):
            findings.append(Finding(f"key {key.key}", "type", f"holds a {codec.text(holds)}, not a {key.kind.holds}"))
        elif key.kind.bound is Bound.SANDBOX:
            findings += await _judge_sandbox(ledger, key, codec.text(owner), has_ttl=int(ttl_ms) > 0)
        else:
            wrong = _wrong_with(key, owner, has_ttl=int(ttl_ms) > 0)
            findings += [Finding(f"key {key.key}", "bound", wrong)] if wrong else []
    return findings


def _ask_owner(ledger: Ledger, key: FoundKey) -> Command:
    """What tells whether something keeps this key from piling up."""
    keys = ledger.keys
    match key.kind.bound:
        case Bound.NODE:
            return ("ZSCORE", keys.nodes, key.identity)
        case Bound.RESERVATION:
            return ("HGET", key.key, "state")
        case Bound.SANDBOX:
            return ("GET", key.key)
        case Bound.ROW:
            return ("HEXISTS", keys.classes, key.identity.rpartition(":")[0])
        case Bound.LABELS:
            return ("HEXISTS", keys.label_sets, key.identity)
        case Bound.CAPACITY:
            return ("ZSCORE", keys.capacities, key.identity)
        case Bound.TEMPLATE:
            return ("ZSCORE", keys.templates, key.identity)
        case Bound.PARKED:
            return ("LRANGE", keys.artifact_leftovers, 0, -1)
        case _:
            return ("EXISTS", key.key)


def _wrong_with(key: FoundKey, owner: Any, *, has_ttl: bool) -> str | None:
    match key.kind.bound:
        case Bound.TTL if not has_ttl:
            return "has no TTL"
        case Bound.NODE if owner is None and not has_ttl:
            return "belongs to a node that is not listed, and has no TTL"
        case Bound.RESERVATION if (codec.text(owner) in _OPEN) == has_ttl:
            return f"is of a reservation that is {codec.text(owner)}, and has {'a' if has_ttl else 'no'} TTL"
        case Bound.ROW | Bound.LABELS if not int(owner):
            return f"is not {key.kind.bound.value}"
        case Bound.TEMPLATE | Bound.CAPACITY if owner is None:
            return f"is not {key.kind.bound.value}"
        case Bound.PARKED if not any(codec.text(entry).split("|")[1:2] == [key.identity] for entry in owner):
            return f"is not {key.kind.bound.value}"
    return None


async def _judge_sandbox(ledger: Ledger, key: FoundKey, bearer: str, *, has_ttl: bool) -> list[Finding]:
    """`sandbox:<id>` leads to a reservation that carries this id; that of an ended one ends with it."""
    reservation = ledger.keys.reservation(bearer)
    state, sandbox_id = await ledger.client.command("HMGET", reservation, "state", "sandbox_id")
    if has_ttl or (codec.text(state) in _OPEN and codec.text(sandbox_id) == key.identity):
        return []
    told = f"is {codec.text(state)} and carries {codec.text(sandbox_id) or 'no sandbox'}" if state else "does not exist"
    return [Finding(f"key {key.key}", "bound", f"leads to reservation {bearer}, which {told}, and has no TTL")]
