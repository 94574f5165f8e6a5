"""Bodies that never arrive whole take a bounded amount of memory, all together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from scheduler.api.http.media import LARGEST_UNFINISHED, read_body
from scheduler.errors import Overloaded

MOST = 1000


class Slow:
    """A request that sends so many bytes of its body, and the rest when it is told to."""

    def __init__(self, first: int) -> None:
        self._first: bytes | None = b" " * first
        self.rest = asyncio.Event()
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        self.request = Request(scope, self._receive)

    async def _receive(self) -> dict[str, Any]:
        if self._first is not None:
            first, self._first = self._first, None
            return {"type": "http.request", "body": first, "more_body": True}
        await self.rest.wait()
        return {"type": "http.request", "body": b" ", "more_body": False}


async def reading(slow: Slow) -> asyncio.Task[bytes]:
    """Until the first part is held."""
    task = asyncio.create_task(read_body(slow.request, MOST))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_all_together_hold_as_much_as_a_few_of_the_largest() -> None:
    others = [Slow(MOST - 1) for _ in range(LARGEST_UNFINISHED)]
    tasks = [await reading(each) for each in others]
    with pytest.raises(Overloaded):
        await read_body(Slow(MOST - 1).request, MOST)
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    another = Slow(MOST - 1)
    tasks[0] = await reading(another)
    for each in [another, *others[1:]]:
        each.rest.set()
    assert {len(body) for body in await asyncio.gather(*tasks)} == {MOST}
    # Nothing is held any more.
    again = [Slow(MOST - 1) for _ in range(LARGEST_UNFINISHED)]
    tasks = [await reading(each) for each in again]
    for each in again:
        each.rest.set()
    await asyncio.gather(*tasks)
