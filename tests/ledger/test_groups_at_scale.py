"""Placement groups by the ten thousand: bounded, at one cost, and the same whoever serves them."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import GroupSettings, LedgerSettings
from scheduler.ledger.ledger import Ledger
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock

NODES = tuple(f"node-{number}" for number in range(8))
MOST = 1_000
SETTINGS = LedgerSettings(
    strategy=Strategy.GROUPED_ROUND_ROBIN, groups=GroupSettings(max_sandbox_count=10, max_open_groups=MOST)
)


async def fleet(ledger: Ledger) -> None:
    await put_settings(ledger, SETTINGS)
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in NODES], ())
    for name in NODES:
        await ledger.nodes.heartbeat(Heartbeat(name, "instance", snapshot=NodeSnapshot(NodeStatus.READY)))


async def place(ledger: Ledger, image: str) -> str:
    hint = Hint(HintKind.COLD_SANDBOX, 1, 64, (image,))
    return (await ledger.placements.schedule(ScheduleRequest(hint=hint))).node.node_id


async def place_new_keys(ledger: Ledger, first: int, count: int) -> None:
    for start in range(first, first + count, 50):
        await asyncio.gather(*(place(ledger, f"image-{number}") for number in range(start, start + 50)))


async def commands_run(ledger: Ledger) -> int:
    return int((await ledger.client.info("stats"))["total_commands_processed"])


async def test_however_many_keys_there_are_the_open_groups_stay_bounded_and_cost_the_same(backend: Backend) -> None:
    if backend.server is None:
        pytest.skip("the embedded ledger counts no commands")
    ledger = await backend.open(clock=VirtualClock())
    costs: list[int] = []
    try:
        await fleet(ledger)
        for first in range(0, 5 * MOST, MOST):
            before = await commands_run(ledger)
            await place_new_keys(ledger, first, MOST)
            costs.append(await commands_run(ledger) - before)
            total, _, _ = await ledger.groups.list(limit=1)
            assert total == MOST
    finally:
        await ledger.close()
    # The first thousand evict nothing; after that every new group costs the same few commands.
    # The server counts those of connections as well, which come and go on a slow machine.
    assert max(costs[1:]) <= 1.005 * min(costs[1:]), costs


async def test_restarting_every_replica_changes_nothing_in_the_sequence_of_placements(backend: Backend) -> None:
    images = [f"image-{number * number % 7}" for number in range(120)]

    async def run(domain: str, restart_every: int) -> list[str]:
        ledger = await backend.open(domain=domain)
        await fleet(ledger)
        chosen = []
        for number, image in enumerate(images):
            if number % restart_every == restart_every - 1:
                await ledger.close()
                ledger = await backend.open(domain=domain)
            chosen.append(await place(ledger, image))
        await ledger.close()
        return chosen

    assert await run("disturbed", 9) == await run("undisturbed", 1_000)
