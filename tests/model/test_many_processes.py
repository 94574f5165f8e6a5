"""Many processes, one ledger: nothing is given twice, and nothing that fits is refused."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import pytest

from scheduler.domain.node import DiscoveryState, Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import Admission, GroupSettings, LedgerSettings
from scheduler.ledger.ledger import Ledger
from tests.support.backends import Backend, put_settings
from tests.support.placing import Granted, Task, place_from_processes
from tests.support.recount import assert_ledger_is_sound
from tests.support.servers import RedisServer

MIB = 1024 * 1024
DOMAIN = "many-processes"
# CPUs and MiB: some nodes run out of CPUs first, some of memory, one is full from the start.
FLEET = {"a": (37, 100_000), "b": (64, 16_000), "c": (8, 4_096), "d": (96, 65_536), "e": (0, 4_000), "f": (4, 1_024)}
ALREADY_USED = {"f": (4, 0)}


async def open_fleet(server: RedisServer, settings: LedgerSettings) -> Ledger:
    ledger = await Backend("real", server=server).open(domain=DOMAIN)
    await put_settings(ledger, settings)
    for node_id, (cpu_count, memory_mb) in FLEET.items():
        used_cpu, used_mb = ALREADY_USED.get(node_id, (0, 0))
        snapshot = NodeSnapshot(
            NodeStatus.READY,
            cpu_count=cpu_count,
            memory_total_bytes=memory_mb * MIB,
            allocated_cpu=used_cpu,
            allocated_memory_bytes=used_mb * MIB,
        )
        await ledger.nodes.set(node_id, f"http://{node_id}:8000", DiscoveryState.ACTIVE)
        await ledger.nodes.heartbeat(Heartbeat(node_id, "one", snapshot=snapshot), None)
    return ledger


def room_for(node_id: str, cpu_count: int, memory_mb: int) -> int:
    """How many requests of one size fit a node; an unknown dimension bounds nothing."""
    used_cpu, used_mb = ALREADY_USED.get(node_id, (0, 0))
    total_cpu, total_mb = FLEET[node_id]
    by_cpu = (total_cpu - used_cpu) // cpu_count if total_cpu else None
    by_memory = (total_mb - used_mb) // memory_mb if total_mb else None
    return min(bound for bound in (by_cpu, by_memory) if bound is not None)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", Strategy)
async def test_eight_processes_are_granted_the_capacity_exactly(strategy: Strategy, real_server: RedisServer) -> None:
    budget = GroupSettings(max_sandbox_count=10)
    settings = LedgerSettings(strategy=strategy, admission=Admission.ALWAYS, groups=budget, report_ttl_ms=600_000)
    ledger = await open_fleet(real_server, settings)
    try:
        hint = Hint(HintKind.COLD_SANDBOX, cpu_count=1, memory_mb=512, images=("app",))
        task = Task(real_server.address, DOMAIN, (ScheduleRequest(hint),) * 20, until_full=True)
        granted = await asyncio.to_thread(place_from_processes, [task] * 8)
        expected = {node_id: room_for(node_id, 1, 512) for node_id in FLEET}
        assert Counter(answer.node_id for answer in granted) == Counter({k: v for k, v in expected.items() if v})
        assert len({answer.reservation_id for answer in granted}) == len(granted)
        await assert_ledger_is_sound(ledger)
    finally:
        await ledger.close()


@pytest.mark.slow
async def test_sixteen_processes_never_charge_a_group_beyond_its_budget(real_server: RedisServer) -> None:
    budget = GroupSettings(max_sandbox_count=7, max_cpu_count=20, max_memory_mb=20_000, max_open_groups=25)
    settings = LedgerSettings(strategy=Strategy.GROUPED_ROUND_ROBIN, groups=budget, report_ttl_ms=600_000)
    ledger = await open_fleet(real_server, settings)
    try:
        running = asyncio.create_task(
            asyncio.to_thread(place_from_processes, [_keyed_task(real_server, seed) for seed in range(16)])
        )
        most_open = 0
        while not running.done():
            total, _, _ = await ledger.groups.list(1, None)
            most_open = max(most_open, total)
            await asyncio.sleep(0.02)
        granted = await running
        assert len(granted) == 16 * 312 + 8  # 5,000 requests
        assert 0 < most_open <= budget.max_open_groups
        await _compare_charges(ledger, real_server, granted, budget)
        await assert_ledger_is_sound(ledger)
    finally:
        await ledger.close()


def _keyed_task(server: RedisServer, seed: int) -> Task:
    """Forty keys, the first ones asked for much more often than the last."""
    choice = random.Random(seed)
    names = [f"image-{number}" for number in range(40)]
    weights = [1 / (1 + number) for number in range(40)]
    requests = tuple(
        ScheduleRequest(
            Hint(
                HintKind.COLD_SANDBOX,
                cpu_count=choice.randint(1, 5),
                memory_mb=choice.choice([512, 1024, 4096]),
                images=(choice.choices(names, weights)[0],),
            ),
            lifecycle=choice.choice(list(Lifecycle)),
        )
        for _ in range(312 + (seed < 8))
    )
    return Task(server.address, DOMAIN, requests)


async def _compare_charges(ledger: Ledger, server: RedisServer, granted: list[Granted], budget: GroupSettings) -> None:
    """Recount every group there ever was from the reservations that were charged to it."""
    charged: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with server.client() as client:
        for answer in granted:
            reservation = client.hgetall(ledger.keys.reservation(answer.reservation_id))
            charged[reservation["group_key"], reservation["group_sequence"]].append(reservation)
    for (key, _), members in charged.items():
        assert len({member["node_id"] for member in members}) == 1, f"{key} lies on two nodes at once"
        assert len(members) <= budget.max_sandbox_count
        assert sum(int(member["group_cpu"]) for member in members) <= budget.max_cpu_count
        assert sum(int(member["group_memory_mb"]) for member in members) <= budget.max_memory_mb
    _, open_groups, _ = await ledger.groups.list(1_000, None)
    for group in open_groups:
        members = charged[group.key, str(group.sequence)]
        recounted = (
            len(members),
            sum(int(member["group_cpu"]) for member in members),
            sum(int(member["group_memory_mb"]) for member in members),
        )
        assert (group.sandbox_count, group.cpu_count, group.memory_mb) == recounted
