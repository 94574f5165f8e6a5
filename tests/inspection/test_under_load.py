"""A check while everything moves reports nothing, and still sees what is wrong."""

from __future__ import annotations

import asyncio
import random

from scheduler.domain.node import DiscoveryState
from scheduler.domain.placement import ScheduleRequest
from scheduler.errors import SchedulerError
from scheduler.inspection.recount import check
from scheduler.ledger.ledger import Ledger, open_ledger
from tests.inspection.busy import HINT, SETTINGS, address, report
from tests.support.backends import put_settings
from tests.support.servers import RedisServer

NODE_IDS = tuple(f"n{number}" for number in range(20))
CHECKS = 5


async def keep_busy(ledger: Ledger, seed: int, stopped: asyncio.Event) -> int:
    """Places, confirms, cancels and reports until stopped; how many things it did."""
    chance, done = random.Random(seed), 0
    running: list[str] = []
    while not stopped.is_set():
        try:
            decision = await ledger.placements.schedule(ScheduleRequest(HINT))
            assert decision.reservation is not None
            node_id, reservation_id = decision.node.node_id, decision.reservation.reservation_id
            if chance.random() < 0.6:
                running.append(f"s{seed}-{done}")
                await ledger.reservations.confirm(reservation_id, running[-1])
            else:
                await ledger.reservations.cancel(reservation_id)
            roster = tuple(chance.sample(running, min(len(running), 5)))
            await ledger.nodes.heartbeat(report(node_id, used=chance.randint(0, 9), roster=roster))
            if chance.random() < 0.1:
                await ledger.nodes.remove(chance.choice(NODE_IDS))
            if chance.random() < 0.2:
                listed = address(chance.choice(NODE_IDS))
                await ledger.nodes.set(listed.node_id, listed.endpoint, DiscoveryState.ACTIVE)
        except SchedulerError:
            await asyncio.sleep(0)
        done += 1
    return done


async def test_a_check_under_load_reports_what_is_wrong_and_nothing_else(real_server: RedisServer) -> None:
    ledger = await open_ledger(real_server.address, domain="loaded")
    await put_settings(ledger, SETTINGS)
    for node_id in NODE_IDS:
        await ledger.nodes.set(node_id, address(node_id).endpoint, DiscoveryState.ACTIVE)
        await ledger.nodes.heartbeat(report(node_id, roster=()))
    stopped = asyncio.Event()
    busy = [asyncio.create_task(keep_busy(ledger, seed, stopped)) for seed in range(4)]
    try:
        for _ in range(CHECKS):
            assert (await check(ledger)).violations == ()
        await ledger.client.command("HSET", ledger.keys.bindings, "ghost", "5 n1")
        violations = (await check(ledger)).violations
        assert [violation.subject for violation in violations] == ["sandbox ghost"]
    finally:
        stopped.set()
        done = await asyncio.gather(*busy)
        await ledger.close()
    assert sum(done) > 0
