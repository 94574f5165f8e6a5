"""The proof in one number: whatever dies meanwhile, exactly what fits is granted, not one more and not one less."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.replicas.conftest import StartServer
from tests.replicas.harness.callers import Workload
from tests.replicas.harness.fleet import NodeModel
from tests.replicas.harness.scene import Scene, Setting, now, scene

CPU_COUNT, MEMORY_MB = 2, 3_000
# Some run out of CPUs first, some of memory.
SIZES = [(640, 2_000_000), (960, 600_000), (320, 4_000_000), (1_280, 900_000), (177, 999_999), (480, 720_001)]
SIZES += [(641, 500_000), (800, 1_500_000)]

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "times_the_fleet",
    [
        pytest.param(0.5, id="1237 creates", marks=pytest.mark.brief),
        pytest.param(1, id="2174 creates"),
        pytest.param(3, id="5925 creates"),
    ],
)
async def test_three_replicas_one_always_dying_grant_the_ceiling_exactly(
    times_the_fleet: float, start_server: StartServer
) -> None:
    """Pinned heartbeats: nodes report no load, so what is granted stays reserved. 32 callers ask for more than
    there is; a ready replica is killed as soon as the one killed before it is ready again."""
    nodes = [
        NodeModel(f"node-{number}", int(cpu_count * times_the_fleet), int(memory_mb * times_the_fleet))
        for number, (cpu_count, memory_mb) in enumerate(SIZES)
    ]
    ceiling = sum(node.holds(CPU_COUNT, MEMORY_MB) for node in nodes)
    workload = Workload(
        clients=32,
        creates=ceiling + 300,
        think_seconds=0.0,
        cpu_count=CPU_COUNT,
        memory_mb=MEMORY_MB,
        confirm_share=0.3,
        cancel_share=0.0,
        patience_seconds=120,
    )
    setting = Setting(replicas=3, nodes=nodes, report_seconds=1.0, workload=workload)
    async with scene(start_server(), setting) as at:
        kills, recoveries = 0, []
        while not at.load.done():
            victim = at.rig.random.choice(range(3))
            await at.rig.kill(victim)
            kills, killed_at = kills + 1, now()
            await asyncio.gather(at.rig.replace(victim), _note_recovery(at, killed_at, recoveries))
        verdict = await at.verdict(
            "3 replicas, one always dying, 32 callers",
            ceiling=ceiling,
            kills=kills,
            recovery_s=max(recoveries, default=0.0),
        )
        assert verdict.placed == ceiling, f"{ceiling} fit, {verdict.placed} were granted"
        granted = Counter(answers[0].node_id for answers in at.history.placements().values())
        assert granted == {node.node_id: node.holds(CPU_COUNT, MEMORY_MB) for node in nodes}
        assert at.callers.refused == 300
        assert at.callers.given_up == 0
        assert kills >= 2


async def _note_recovery(at: Scene, killed_at: float, recoveries: list[float]) -> None:
    await asyncio.wait({at.load, asyncio.create_task(asyncio.sleep(0.5))}, return_when=asyncio.FIRST_COMPLETED)
    found = at.history.first_after(killed_at)
    if found is not None:
        recoveries.append(found.ended - killed_at)
