"""Everything in a collection, a slice at a time, so that no large one ever holds the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

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
    step = 1 if command == "SSCAN" else 2
    cursor = "0"
    while True:
        reply = await ledger.client.command(command, key, cursor, "COUNT", SLICE)
        cursor = codec.text(reply[0])
        for member in reply[1][::step]:
            yield codec.text(member)
        if cursor == "0":
            return


def in_slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while slice_ := list(islice(remaining, size)):
        yield slice_
