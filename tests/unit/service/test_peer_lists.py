"""How old a list of peers may be."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.domain.node import P2pEndpoint
from scheduler.errors import StoreUnavailable
from scheduler.service.peer_lists import LONG, PeerLists, Peers


class Ledger:
    """Counts how often it is asked; `peers` is what it would answer."""

    def __init__(self, count: int) -> None:
        self.reads = 0
        self.seconds = 0.0
        self.failing = False
        self.answering = asyncio.Event()
        self.answering.set()
        self.peers: Peers = tuple((f"n{number}", P2pEndpoint("iroh", "x")) for number in range(count))

    async def read(self, cluster_id: str, backend: str) -> Peers:
        self.reads += 1
        await self.answering.wait()
        if self.failing:
            raise StoreUnavailable("refused")
        return self.peers

    def lists(self) -> PeerLists:
        return PeerLists(self.read, lambda: self.seconds)


async def test_a_short_list_is_always_read_afresh() -> None:
    ledger = Ledger(LONG - 1)
    lists = ledger.lists()
    for _ in range(3):
        assert await lists.get("c", "iroh") == ledger.peers
    assert ledger.reads == 3


async def test_a_long_list_is_read_once_a_second_and_for_each_question_apart() -> None:
    ledger = Ledger(LONG)
    lists = ledger.lists()
    for _ in range(3):
        await lists.get("c", "iroh")
    await lists.get("c", "")
    assert ledger.reads == 2
    ledger.seconds = 1.0
    ledger.peers = ledger.peers[:1]
    assert await lists.get("c", "iroh") == ledger.peers
    await lists.get("c", "iroh")
    assert ledger.reads == 4, "short now, so it is read afresh again"


async def test_while_one_renews_it_the_others_are_given_the_old_one_for_a_second_more() -> None:
    ledger = Ledger(LONG)
    lists = ledger.lists()
    old = await lists.get("c", "iroh")
    ledger.seconds = 1.5
    ledger.peers = ledger.peers[1:] + ledger.peers[:1]
    ledger.answering.clear()
    renewing = asyncio.create_task(lists.get("c", "iroh"))
    await asyncio.sleep(0)
    assert await lists.get("c", "iroh") is old
    assert ledger.reads == 2
    ledger.seconds = 2.0
    also = asyncio.create_task(lists.get("c", "iroh"))
    await asyncio.sleep(0)
    assert ledger.reads == 3, "too old to be given away"
    ledger.answering.set()
    assert await renewing == await also == ledger.peers


async def test_a_failure_is_raised_and_not_cached() -> None:
    ledger = Ledger(LONG)
    lists = ledger.lists()
    await lists.get("c", "iroh")
    ledger.seconds, ledger.failing = 5.0, True
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await lists.get("c", "iroh")
    ledger.failing = False
    assert await lists.get("c", "iroh") == ledger.peers


async def test_lists_that_nobody_asks_for_again_do_not_pile_up() -> None:
    ledger = Ledger(LONG)
    lists = ledger.lists()
    for number in range(200):
        await lists.get(f"c{number}", "iroh")
    assert len(lists._kept) == 64
