"""Random fleets, reports, placements and time: the ledger chooses what the model chooses."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from scheduler.domain.node import NodeSnapshot
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import LedgerSettings
from tests.model.machine import Operation, SideBySide, address, run_side_by_side
from tests.support import fleets
from tests.support.backends import Backend

NOBODY_CONFIRMS = (Lifecycle.HEARTBEAT,)


class PlacementMachine(SideBySide):
    """Node counters and deadlines end every reservation here."""

    @classmethod
    def settings(cls, random: Random) -> LedgerSettings:
        return fleets.ledger_settings(random)

    @classmethod
    def draw(cls, random: Random) -> Operation:
        kinds = {
            "schedule_all": 6, "report": 5, "report_growth": 6, "wait": 3, "set_node": 1, "remove_node": 1,
            "unregister": 1, "replace_list": 1, "sweep": 1, "compare": 1,
        }  # fmt: skip
        name = random.choices(list(kinds), list(kinds.values()))[0]
        node_id = random.choice(fleets.NODE_IDS)
        arguments: dict[str, object] = {}
        if name == "schedule_all":
            alike = fleets.request(random, NOBODY_CONFIRMS)
            others = [fleets.request(random, NOBODY_CONFIRMS) for _ in range(random.randint(1, 4))]
            arguments = {"requests": random.choice([[alike] * random.randint(2, 6), others])}
        elif name == "report":
            snapshot = fleets.first_snapshot(random)
            arguments = {"node_id": node_id, "snapshot": snapshot, **cls._beside(random)}
        elif name == "report_growth":
            instance = "two" if random.random() < 0.1 else "one"
            arguments = {"node_id": node_id, "seed": random.randint(0, 10**6), "instance": instance}
            arguments |= cls._beside(random)
        elif name == "wait":
            arguments = {"ms": random.choice(fleets.WAITS_MS)}
        elif name == "set_node":
            labels = fleets.labels(random, reported=False) if random.random() < 0.7 else None
            arguments = {"node_id": node_id, "lingering": random.random() < 0.3, "labels": labels}
        elif name in {"remove_node", "unregister"}:
            arguments = {"node_id": node_id}
        elif name == "replace_list":
            listed = fleets.some(random, fleets.NODE_IDS, 2, 6)
            arguments = {"active": listed, "lingering": fleets.some(random, fleets.NODE_IDS, 0, 1)}
        return Operation(name, arguments)

    @staticmethod
    def _beside(random: Random) -> dict[str, object]:
        return {"labels": fleets.labels(random, reported=True), "resources": fleets.resources(random)}

    async def begin(self) -> None:
        await self.replace_list(fleets.NODE_IDS[:4], [])

    async def replace_list(self, active: Sequence[str], lingering: Sequence[str]) -> None:
        lists = [[address(node_id) for node_id in names] for names in (active, lingering)]
        await self.ledger.nodes.replace(*lists)
        self.model.replace_nodes(*lists)

    async def report_growth(self, node_id: str, seed: int, instance: str, **beside: Any) -> None:
        """What a node that reported before tells next."""
        node = self.model.nodes.get(node_id)
        before = node.snapshot if node is not None else None
        random = Random(seed)
        snapshot: NodeSnapshot = fleets.next_snapshot(random, before) if before else fleets.first_snapshot(random)
        await self.report(node_id, snapshot, instance, **beside)

    async def schedule_all(self, requests: Sequence[ScheduleRequest]) -> None:
        for request in requests:
            await self.schedule(request)

    async def compare(self) -> None:
        await self.compare_nodes()
        await self.compare_groups()


@pytest.mark.timeout(0)
async def test_every_choice_is_the_models_choice(backend: Backend) -> None:
    await run_side_by_side(PlacementMachine, backend)
