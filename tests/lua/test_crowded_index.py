"""More kinds of nodes than the index has classes for: those beyond the last one stand only among the nodes by what is
free on them, and are chosen, refused and counted like any other.

The scripts are the product's own but for one number: here the index has room for a few classes only, so that a few
nodes are too many.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from scheduler.connection.scripts import ScriptLibrary, find_folder
from scheduler.domain.limits import MIB
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Decision, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.settings import Admission, LedgerSettings, NodeResourceLimit
from scheduler.errors import NoNodes
from scheduler.inspection.recount import recount
from scheduler.inspection.repair import repair
from scheduler.ledger.ledger import Ledger
from tests.lua.test_index import Example, Fleet
from tests.support import index_oracle as oracle
from tests.support.backends import SHEBANG, Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.index_oracle import Demand, Row
from tests.support.recount import assert_ledger_is_sound

CLASSES = 5
LEAST_LOADED = LedgerSettings(strategy=Strategy.LEAST_LOADED, resources=("gpu",))


@pytest.fixture(scope="module")
def few_classes(tmp_path_factory: pytest.TempPathFactory) -> ScriptLibrary:
    folder = tmp_path_factory.mktemp("scripts") / "lua"
    shutil.copytree(find_folder(), folder)
    heads = folder / "include" / "heads.lua"
    text = heads.read_text(encoding="utf-8")
    assert text.count("CLASSES_MAX = 256") == 1
    heads.write_text(text.replace("CLASSES_MAX = 256", f"CLASSES_MAX = {CLASSES}"), encoding="utf-8")
    return ScriptLibrary(folder, shebang=False)


@pytest.fixture
def library(few_classes: ScriptLibrary, backend: Backend) -> ScriptLibrary:
    return ScriptLibrary(few_classes.folder, shebang=SHEBANG) if SHEBANG and backend.server else few_classes


async def open_crowded(
    backend: Backend, library: ScriptLibrary, settings: LedgerSettings, clock: VirtualClock, domain: str = "crowded"
) -> Ledger:
    ledger = await backend.open(domain=domain, clock=clock)
    ledger.client.scripts = library
    await put_settings(ledger, settings)
    return ledger


def ready(cpu_count: int, gpus: int = 0, allocated_cpu: int = 0) -> Heartbeat:
    snapshot = NodeSnapshot(NodeStatus.READY, cpu_count, 1024 * MIB, allocated_cpu, sandbox_count=allocated_cpu)
    loads = {"gpu": ResourceLoad(gpus, 0)} if gpus else {}
    return Heartbeat("", "one", snapshot=snapshot, resources=loads)


async def report(ledger: Ledger, node_id: str, heartbeat: Heartbeat) -> None:
    await ledger.nodes.heartbeat(replace(heartbeat, node_id=node_id))


async def fleet_of(ledger: Ledger, **heartbeats: Heartbeat) -> None:
    await ledger.nodes.replace([NodeAddress(node_id, f"http://{node_id}") for node_id in heartbeats], ())
    for node_id, heartbeat in heartbeats.items():
        await report(ledger, node_id, heartbeat)


async def place(ledger: Ledger, request: ScheduleRequest, times: int) -> Counter[str]:
    """Which nodes, or why none, with `explain` asked first each time."""
    placed: Counter[str] = Counter()
    for _ in range(times):
        explained = (await ledger.placements.explain(request)).node
        try:
            chosen = (await ledger.placements.schedule(request)).node
            placed[chosen.node_id] += 1
        except NoNodes as refused:
            chosen = None
            placed.update({f"{reason}: {count}" for reason, count in refused.reasons.items()})
        assert (explained is None) == (chosen is None)
    return placed


def cold(cpu_count: int = 0, memory_mb: int = 0, **resources: int) -> ScheduleRequest:
    return ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, cpu_count, memory_mb, images=("app",), resources=resources))


@pytest.fixture
async def ledger(backend: Backend, library: ScriptLibrary, clock: VirtualClock) -> AsyncIterator[Ledger]:
    ledger = await open_crowded(backend, library, LEAST_LOADED, clock)
    yield ledger
    await assert_ledger_is_sound(ledger)
    await ledger.close()


PLAIN = {f"plain-{number}": ready(number + 1) for number in range(CLASSES)}


async def test_a_further_resource_of_nodes_beyond_the_last_class_is_given_out_to_the_last(ledger: Ledger) -> None:
    await fleet_of(ledger, **PLAIN, one=ready(30, gpus=2), two=ready(31, gpus=2), three=ready(32, gpus=1))
    told = {f"insufficient_gpu: {CLASSES + 3}": 2}
    assert await place(ledger, cold(1, 1, gpu=1), 7) == Counter(one=2, two=2, three=1) + Counter(told)


async def test_what_is_rare_or_large_is_found_beyond_the_last_class(ledger: Ledger) -> None:
    rare = replace(ready(30, gpus=1), labels={"zone": "rare"})
    await fleet_of(ledger, **PLAIN, rare=rare, large=ready(40))
    gpu = Hint(HintKind.COLD_SANDBOX, 1, 1, images=("app",), resources={"gpu": 1}, require={"zone": ("rare",)})
    assert await place(ledger, ScheduleRequest(gpu), 1) == Counter(rare=1)
    told = {f"insufficient_cpu: {CLASSES + 2}": 1}
    assert await place(ledger, cold(20, 1), 4) == Counter(large=2, rare=1) + Counter(told)
    batch = await ledger.placements.schedule_batch(BatchRequest((cold(8, 1),) * 2))
    assert [placed.node.node_id for placed in batch.placed] == ["rare"]


@pytest.mark.parametrize("change", ["leaves", "changes", "falls silent", "stays"])
async def test_nodes_beyond_the_last_class_are_found_where_they_stand_when_classes_are_left(
    ledger: Ledger, clock: VirtualClock, change: str
) -> None:
    await fleet_of(ledger, **PLAIN, one=ready(30), two=ready(31))
    for node_id in ("plain-0", "plain-1", "plain-2"):
        await ledger.nodes.remove(node_id)
        await assert_ledger_is_sound(ledger)
    expected = Counter(one=1, two=1)
    if change == "leaves":
        await ledger.nodes.remove("one")
        expected = Counter({"two": 1, "insufficient_cpu: 3": 1})
    elif change == "changes":
        await report(ledger, "one", ready(30, allocated_cpu=1))
        await report(ledger, "two", ready(31, allocated_cpu=1))
    elif change == "falls silent":
        clock.advance(LEAST_LOADED.report_ttl_ms + 1)
    if change == "stays":  # as several callers of one replica are answered
        decided = await asyncio.gather(*(ledger.placements.schedule(cold(29, 1)) for _ in range(2)))
        assert Counter(each.node.node_id for each in decided) == expected
    else:
        assert await place(ledger, cold(29, 1), 2) == expected
    await assert_ledger_is_sound(ledger)
    # One that is put back where it belongs leaves where it stood.
    for _ in range(20):
        await report(ledger, "two", ready(31, allocated_cpu=2))


async def test_a_node_that_stands_in_its_class_and_beyond_it_is_found_and_put_right(ledger: Ledger) -> None:
    await fleet_of(ledger, one=ready(4))
    (row,) = await ledger.client.command("ZRANGE", ledger.keys.named("row:r,-,4,1073741824,-,:0"), 0, -1)
    await ledger.client.command("ZADD", ledger.keys.named("row:r,free:8"), -2 * 1024 * MIB, row)
    assert [line for line in await recount(ledger) if "stands in its class" in line]
    await repair(ledger, apply=True)


async def test_a_class_that_came_after_a_node_of_its_kind_with_limits_hides_it_from_nobody(
    backend: Backend, library: ScriptLibrary, clock: VirtualClock
) -> None:
    limits = NodeResourceLimit(max_cpu_allocated_percent=60)
    ledger = await open_crowded(backend, library, replace(LEAST_LOADED, node_resource_limit=limits), clock)
    await fleet_of(ledger, **PLAIN, one=ready(30))
    for node_id in ("plain-0", "plain-1", "plain-2"):
        await ledger.nodes.remove(node_id)
    await ledger.nodes.set("two", "http://two", DiscoveryState.ACTIVE)
    await report(ledger, "two", ready(30))
    await assert_ledger_is_sound(ledger)
    assert await place(ledger, cold(10, 1), 3) == Counter({"one": 1, "two": 1, "over_limit: 4": 1})
    await assert_ledger_is_sound(ledger)
    await ledger.close()


@pytest.mark.parametrize("strategy", [Strategy.MOST_LOADED, Strategy.ROUND_ROBIN, Strategy.RANDOM])
async def test_every_strategy_gives_out_what_only_nodes_beyond_the_last_class_have(
    backend: Backend, library: ScriptLibrary, clock: VirtualClock, strategy: Strategy
) -> None:
    settings = LedgerSettings(strategy=strategy, admission=Admission.ALWAYS, resources=("gpu",))
    ledger = await open_crowded(backend, library, settings, clock)
    await fleet_of(ledger, **PLAIN, one=ready(30, gpus=2), two=ready(31, gpus=2))
    placed = await place(ledger, cold(1, 1, gpu=1), 5)
    assert placed == Counter({"one": 2, "two": 2, f"insufficient_gpu: {CLASSES + 2}": 1})
    await assert_ledger_is_sound(ledger)
    await ledger.close()


class CrowdedFleet(Fleet):
    """Nodes that come and go, of more kinds than there are classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sizes += [(cpu, cpu * 1024 * MIB) for cpu in range(2, 2 + 2 * CLASSES)]
        self.node_ids = self.node_ids[:60]
        self.uneven = set()


class CrowdedExample(Example):
    """Beyond the last class no order is promised, but that everybody who can is found, and nobody else."""

    async def place(self) -> None:
        if self.fleet.apart.random() < 0.4:
            node_id = self.fleet.apart.choice(self.fleet.node_ids)
            await self.ledger.nodes.remove(node_id)
            if self.fleet.apart.random() < 0.1:
                await assert_ledger_is_sound(self.ledger)
            await self.ledger.nodes.set(node_id, "http://back", DiscoveryState.ACTIVE)
        await super().place()

    def judge_figures(self, among: list[Row], demand: Demand, refusal: NoNodes) -> None:
        """Beyond the last class it need not be the nearest."""

    def judge(self, among: list[Row], demand: Demand, decision: Decision | NoNodes) -> None:
        tied = oracle.best(among, demand)
        if isinstance(decision, NoNodes):
            super().judge(among, demand, decision)
            return
        assert tied, f"placed on {decision.node.node_id}, which nobody should be"
        chosen = next(row for row in among if row.node_id == decision.node.node_id)
        self.seen["placed"] += 1
        assert chosen.obstacle(demand) is None or not demand.admits
        assert chosen.pool.islower() or tied[0].pool.isupper() or not demand.admits


async def test_whoever_fits_is_found_with_more_kinds_of_nodes_than_classes(
    backend: Backend, library: ScriptLibrary
) -> None:
    first = int(os.environ.get("SCHEDULER_TEST_SEED", "0"))
    seen: Counter[str] = Counter()
    for seed in range(first, first + (2 if backend.name == "real" else 1)):
        fleet, clock = CrowdedFleet(seed), VirtualClock()
        ledger = await open_crowded(backend, library, fleet.settings, clock, f"crowded-{seed}")
        try:
            seen += await CrowdedExample(ledger, backend, fleet, clock).run()
        except AssertionError as failure:
            raise AssertionError(f"SCHEDULER_TEST_SEED={seed}: {failure}\n{fleet.settings}") from failure
        await ledger.close()
    assert {"placed", "refused"} <= set(seen)
