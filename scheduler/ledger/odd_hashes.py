"""Finds numbers in the ledger that somebody changed by hand into text. Looked for after a script failed and when all of
the ledger is checked, so that scripts need not check what they wrote themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from scheduler.connection.client import StoreClient
from scheduler.connection.keys import Keys
from scheduler.domain.node import FIGURES
from scheduler.errors import StoreUnusable

# The first arguments of a script say what it is about.
_LOOKED_AT = 8
_SHOWN = 40
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# lua/include/account, the figures of a report, and what is told of reports.
NODE_NUMBERS = frozenset(
    {
        *("roster_whole", "unexplained", "told_cpu", "told_memory", "unsized_cpu", "unsized_memory", "deleted_cpu"),
        *("deleted_memory", "baseline_generation", "baseline_ids", "baseline_cpu", "baseline_memory", "discount_cpu"),
        *("discount_memory", "discount_count", "entered", "credit", "shown", "counts", "fails", "pauses", "forks_new"),
        *("ends_new", "counted_new", "counted_old", "doubts_named", "doubts_until_ms"),
        *("recount_to", "recount_cpu", "recount_memory", "recount_count"),
        *FIGURES,
        *("generation", "last_seen_ms", "last_heard_ms", "interval_ms", "roster_edits", "removed_at_ms"),
        *("avoided_until_ms", "avoid_level", "avoid_mark"),
    }
)
RESERVATION_NUMBERS = frozenset(
    {
        *("cpu_count", "memory_bytes", "created_at_ms", "expires_at_ms", "confirmed_at_ms", "finished_at_ms", "ttl_ms"),
        *("sequence", "revision", "held_cpu", "held_memory", "held_count", "group_sequence"),
    }
)


async def find_odd_hash(client: StoreClient, keys: Keys, args: Sequence[object]) -> StoreUnusable | None:
    """The error for a node or reservation among these arguments that has text where a number belongs."""
    for identity in (arg for arg in args[:_LOOKED_AT] if isinstance(arg, str) and arg):
        key = keys.reservation(identity)
        named = await client.command("HGET", key, "node_id")
        node_id = identity if named is None else named.decode("utf-8", "replace")
        odd = await _odd_number(client, f"reservation {identity}", key, RESERVATION_NUMBERS)
        odd = odd or await _odd_number(client, f"node {node_id}", keys.node(node_id), NODE_NUMBERS)
        if odd is not None:
            return odd
    return None


async def _odd_number(client: StoreClient, what: str, key: str, numbers: Iterable[str]) -> StoreUnusable | None:
    (odd,) = await odd_numbers(client, [key], numbers)
    for field, found in odd.items():
        return StoreUnusable(
            f"the ledger's {what} cannot be read by this version: {field} is {found!r}, which is no number"
        )
    return None


async def odd_numbers(client: StoreClient, hashes: Sequence[str], numbers: Iterable[str]) -> list[dict[str, str]]:
    """For each hash the fields among `numbers` that hold something else, with the start of it."""
    names = sorted(numbers)
    rows = await client.pipeline([("HMGET", key, *names) for key in hashes])
    return [_odd(dict(zip(names, row, strict=True))) for row in rows]


def _odd(row: Mapping[str, bytes | None]) -> dict[str, str]:
    texts = {name: value.decode("utf-8", "replace") for name, value in row.items() if value is not None}
    return {name: text[:_SHOWN] for name, text in texts.items() if not _NUMBER.fullmatch(text)}
