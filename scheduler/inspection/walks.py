"""Everything in a collection, a slice at a time, so that no large one ever holds the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger

T = TypeVar("T")
SLICE = 500
SCAN_COUNT = 1000


async def keys_of(ledger: Ledger) -> AsyncIterator[list[str]]:
    """Every key of the domain, in batches; one that comes or goes meanwhile may or may not be among them."""
    cursor = "0"
    while True:
        reply = await ledger.client.command("SCAN", cursor, "MATCH", ledger.keys.pattern, "COUNT", SCAN_COUNT)
        cursor, page = codec.text(reply[0]), [codec.text(key) for key in reply[1]]
        if page:
            yield page
        if cursor == "0":
            return


async def members_of(ledger: Ledger, command: str, key: str) -> AsyncIterator[str]:
    """Members of a set (SSCAN) or sorted set (ZSCAN), fields of a hash (HSCAN); one may come twice."""
    cursor = "0"
    while True:
        cursor, page = _page(command, await ledger.client.command(command, key, cursor, "COUNT", SLICE))
        for member in page:
            yield member
        if cursor == "0":
            return


async def members_of_each(ledger: Ledger, asked: Sequence[tuple[str, str]]) -> list[list[str]]:
    """`members_of` for a few commands and keys, those that are short in one exchange."""
    found: list[list[str]] = [[] for _ in asked]
    cursors = dict.fromkeys(range(len(asked)), "0")
    while cursors:
        replies = await ledger.client.pipeline(
            [
                (command, key, cursors[index], "COUNT", SLICE)
                for index, (command, key) in enumerate(asked)
                if index in cursors
            ]
        )
        for index, reply in zip(list(cursors), replies, strict=True):
            cursors[index], page = _page(asked[index][0], reply)
            found[index] += page
        cursors = {index: cursor for index, cursor in cursors.items() if cursor != "0"}
    return found


def _page(command: str, reply: Any) -> tuple[str, list[str]]:
    """The next cursor, and the members that came."""
    step = 1 if command == "SSCAN" else 2
    return codec.text(reply[0]), [codec.text(member) for member in reply[1][::step]]


def in_slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while slice_ := list(islice(remaining, size)):
        yield slice_
