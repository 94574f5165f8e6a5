"""The index by CPU rows chooses what a comparison of all rows chooses, whatever changes between placements.

Examples are made from their seeds alone. `SCHEDULER_TEST_SEED` moves them; a failure tells its seed.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

import pytest
import redis

from scheduler.domain.labels import read
from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Decision, Hint, HintKind, OverLimit, ScheduleRequest, Strategy
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.settings import (
    Admission,
    AvoidSettings,
    GroupPlacement,
    GroupSettings,
    LedgerSettings,
    NodeResourceLimit,
)
from scheduler.errors import NoNodes
from scheduler.lab.calls import CallRecorder
from scheduler.ledger.ledger import Ledger
from tests.support import index_oracle as oracle
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.index_oracle import Demand, Row
from tests.support.model.choosing import ranked_to
from tests.support.recount import assert_ledger_is_sound
from tests.support.servers import RedisServer

GIB = 1024 * MIB
REPORT_TTL_MS = 30_000
STEPS = 40
NOTHING_LIMITS = NodeResourceLimit()
LIMITS = (
    NodeResourceLimit(max_sandbox_count=6),
    NodeResourceLimit(max_cpu_allocated_percent=60),
    NodeResourceLimit(max_memory_allocated_percent=70, max_sandbox_starting_count=3),
    NodeResourceLimit(max_allocated_cpu_including_paused=5),
)


@dataclass
class Fleet:
    """The nodes of one example and what is asked of them; everything follows from the seed."""

    seed: int
    random: Random = field(init=False)
    apart: Random = field(init=False)
    sizes: list[tuple[int, int]] = field(init=False)
    settings: LedgerSettings = field(init=False)
    node_ids: list[str] = field(init=False)
    uneven: set[tuple[int, int]] = field(init=False)
    versions: Counter[str] = field(default_factory=Counter)
    label_sets: list[dict[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        chance = self.random = Random(f"index {self.seed}")
        self.apart = Random(f"resources {self.seed}")
        cpus, memories = [4, 8, 16, 64, 96], [8, 16, 24, 64, 65, 256]
        self.sizes = [
            (chance.choice(cpus), chance.choice(memories) * GIB + chance.choice([0, 0, 4096, 3 * MIB]))
            for _ in range(chance.choice([1, 1, 3, 10, 64]))
        ]
        if chance.random() < 0.3:
            self.sizes += [(0, 0), (0, 16 * GIB), (8, 0), (1, GIB), (40_000, 256 * GIB)]
        self.node_ids = [f"node-{number:03}" for number in range(chance.choice([5, 20, 60, 120]))]
        self.settings = LedgerSettings(
            strategy=chance.choice([Strategy.LEAST_LOADED] * 4 + [Strategy.GROUPED_ROUND_ROBIN]),
            admission=chance.choice([Admission.STRATEGY, Admission.ALWAYS]),
            report_ttl_ms=REPORT_TTL_MS,
            node_resource_limit=chance.choice([NOTHING_LIMITS, NOTHING_LIMITS, *LIMITS]),
            fill_to=Random(f"filled {self.seed}").choice([0, 0, 500, 900, 1000]),
            overcommit_cpu=chance.choice([1000, 1000, 1500, None]),
            overcommit_memory=chance.choice([1000, 1000, 500, None]),
            groups=GroupSettings(max_sandbox_count=3, group_placement=GroupPlacement.LEAST_LOADED),
            avoid=AvoidSettings(refusals=chance.choice([0, 1]), share_percent=50),
            resources=("gpu",),
        )
        # From none to all there may be; no more than there may be classes.
        count = chance.choice([each for each in (0, 2, 9, 64) if each * len(self.sizes) <= 100])
        zones = ["west", "east", "east"]
        self.label_sets = [{}, *({"rack": f"r{number}", "zone": zones[number % 3]} for number in range(count))]

        self.uneven = oracle.uneven_among(
            (_effective(cpu, self.settings.overcommit_cpu), _effective(memory, self.settings.overcommit_memory))
            for cpu, memory in self.sizes
        )

    def snapshot(self) -> NodeSnapshot:
        chance = self.random
        cpu, memory = chance.choice(self.sizes)
        full = chance.choice([0.0, 0.5, 0.9, 1.0, 1.0, 1.1, 1.3])
        running = chance.choice([0, 0, 1, 2, 5])
        return NodeSnapshot(
            status=chance.choice([NodeStatus.READY] * 8 + [NodeStatus.CONNECTING, NodeStatus.LINGERING]),
            cpu_count=cpu,
            memory_total_bytes=memory,
            allocated_cpu=chance.choice([0, chance.randint(0, int(cpu * full) + 1)]),
            allocated_memory_bytes=chance.choice([0, chance.randint(0, int(memory * full / GIB) + 1)]) * GIB,
            paused_allocated_cpu=chance.choice([0, 0, 0, 2]),
            sandbox_count=running,
            sandbox_starting_count=chance.choice([0, 0, 0, 1]),
            paused_sandbox_count=chance.choice([0, 0, 1]),
            create_fails=chance.choice([0, 0, 0, 0, 9]),
        )

    def heartbeat(self, node_id: str) -> Heartbeat:
        """A fails count that falls is a restart, and forgives."""
        # Up to nine of ten nodes have none left.
        chance = self.apart
        left = 0 if chance.random() < self.seed % 10 / 10 else chance.choice([1, 2, 8])
        gpus = {"gpu": ResourceLoad(8, 8 - left)} if chance.random() < 0.9 else {}
        snapshot, labels = self.snapshot(), self.random.choice(self.label_sets)
        return Heartbeat(node_id, "one", snapshot=snapshot, labels=labels, resources=gpus)

    def requirement(self) -> dict[str, tuple[str, ...]]:
        chance = self.random
        racks = tuple(f"r{number}" for number in chance.sample(range(9), chance.choice([1, 4, 9])))
        east = ("east",)
        return chance.choice([{"zone": ("west",)}, {"zone": east}, {"rack": racks}, {"rack": racks, "zone": east}])

    def request(self) -> tuple[ScheduleRequest, int, int]:
        chance = self.random
        cpu = chance.choice([0, 1, 1, 2, 4, 8, 16, 60])
        memory_mb = chance.choice([0, 64, 512, 1024, 4096, 16_384, 60_000])
        excluded = tuple(chance.sample(self.node_ids, min(len(self.node_ids), chance.choice([0, 0, 0, 1, 5, 60]))))
        hint = Hint(HintKind.COLD_SANDBOX, cpu, memory_mb, images=("app",)) if chance.random() < 0.85 else None
        if hint and self.apart.random() < 0.3:
            hint = replace(hint, resources={"gpu": self.apart.choice([1, 1, 2, 5])})
        if hint and chance.random() < 0.4:
            hint = replace(hint, require=self.requirement())
        return ScheduleRequest(hint=hint, exclude_nodes=excluded), cpu, memory_mb * MIB


def has(labels: dict[str, str], required: Mapping[str, tuple[str, ...]]) -> bool:
    return all(labels.get(name) in values for name, values in required.items())


def _effective(advertised: int, per_mille: int | None) -> int:
    if advertised == 0:
        return -1
    return advertised if per_mille is None else advertised * per_mille // 1000


class Example:
    def __init__(self, ledger: Ledger, backend: Backend, fleet: Fleet, clock: VirtualClock) -> None:
        self.ledger, self.fleet, self.clock = ledger, fleet, clock
        self.raw: Any = backend.client()
        self.seen: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        fleet = self.fleet
        await self.ledger.nodes.replace([NodeAddress(node_id, f"http://{node_id}") for node_id in fleet.node_ids], ())
        reported = [node_id for node_id in fleet.node_ids if fleet.random.random() < 0.95]
        record = CallRecorder(self.ledger)
        await self.ledger.client.load_scripts()
        await self.ledger.client.pipeline([await record.heartbeat(fleet.heartbeat(node_id)) for node_id in reported])
        for step in range(STEPS):
            if step == STEPS - 5 and fleet.random.random() < 0.3:
                self.clock.advance(REPORT_TTL_MS + 1)  # nobody is heard of any more
            elif step < STEPS - 5 and fleet.random.random() < 0.4:
                await self.ledger.nodes.heartbeat(fleet.heartbeat(fleet.random.choice(fleet.node_ids)))
            await self.place()
        await assert_ledger_is_sound(self.ledger)
        await self.raw.aclose()
        return self.seen

    async def place(self) -> None:
        request, cpu, memory = self.fleet.request()
        settings = self.fleet.settings
        grouped = settings.strategy is Strategy.GROUPED_ROUND_ROBIN
        if grouped and request.hint is not None:
            # A group that nobody is in yet opens by the index.
            request = replace(request, hint=replace(request.hint, images=(f"image-{self.fleet.random.random()}",)))
        # Not ordinary, so the whole text of the script decides.
        named = request.hint is not None and self.fleet.random.random() < 0.4
        request = replace(request, sandbox_id=f"s-{self.fleet.random.random()}" if named else None)
        explanation = await self.ledger.placements.explain(request)
        rows = oracle.rows_of(await self.raw.hgetall(self.ledger.keys.loads))
        matches = None
        if request.hint is not None and request.hint.require:
            sets = await self.raw.hgetall(self.ledger.keys.named("label_sets"))
            matches = frozenset(number for number, text in sets.items() if has(read(text), request.hint.require))
            self.seen["masked"] += 1
        decision: Decision | NoNodes
        try:
            decision = await self.ledger.placements.schedule(request)
        except NoNodes as refused:
            decision = refused
        if grouped and request.hint is None:
            return
        creation = request.hint is not None
        demand = Demand(
            cpu if creation else 0, memory if creation else 0, creation,
            admits=creation and (not grouped or settings.admission is Admission.ALWAYS),
            cpu_unlimited=settings.overcommit_cpu is None, memory_unlimited=settings.overcommit_memory is None,
            resources=request.hint.resources if request.hint is not None else {},
        )  # fmt: skip
        degraded = not grouped and not any(row.pool in "rcRCowOW" for row in rows)
        variant = "degraded" if degraded else "ready" if grouped else "any"
        among = oracle.candidates(rows, variant, request.exclude_nodes, matches)
        self.judge(among, demand, decision)
        if isinstance(decision, NoNodes) and matches is not None and "too_large" not in decision.reasons:
            masked = len(oracle.candidates(rows, variant, request.exclude_nodes)) - len(among)
            assert decision.reasons.get("label", 0) == masked
        chosen = decision.node if isinstance(decision, Decision) else None
        if not grouped:
            assert explanation.node == chosen, "explain names another node"

    def judge(self, among: list[Row], demand: Demand, decision: Decision | NoNodes) -> None:
        tied = oracle.best(among, demand)
        if isinstance(decision, NoNodes):
            if set(decision.reasons) == {"too_large"}:
                self.seen["too large"] += 1
                return
            assert not tied, f"refused, though {tied[0]} is there"
            expected = oracle.reasons(among, demand)
            found = {reason: decision.reasons.get(reason, 0) for reason in expected if reason != "over_limit"}
            if demand.admits and demand.creation:
                assert found == {reason: count for reason, count in expected.items() if reason != "over_limit"}
            self.seen["refused"] += 1
            self.judge_figures(among, demand, decision)
            return
        assert tied, f"placed on {decision.node.node_id}, which nobody should be"
        chosen = next(row for row in among if row.node_id == decision.node.node_id)
        self.seen[f"kind {chosen.rank(demand)[0]}"] += 1
        if self.judge_filling(among, demand, chosen):
            return
        if oracle.refused_for_limits_before(among, demand, tied[0].pressure(demand)) > 64:
            self.seen["given up"] += 1
            assert chosen.obstacle(demand) is None or not demand.admits
            return
        assert oracle.is_as_good(chosen, tied[0], among, demand, self.fleet.uneven), (
            f"placed on {chosen}, better is {tied[0]}"
        )

    def judge_figures(self, among: list[Row], demand: Demand, refusal: NoNodes) -> None:
        """A refusal for want of CPUs or memory tells them, of the node that is nearest to having enough."""
        counted = oracle.reasons(among, demand)
        if not demand.admits or not demand.creation or not any(name.startswith("insufficient") for name in counted):
            return
        told = OverLimit(**refusal.facts["over_limit"])
        if told.limit not in ("cpu_count", "memory_bytes"):
            return
        self.seen[told.limit] += 1
        requested = demand.cpu if told.limit == "cpu_count" else demand.memory
        taken = told.current + told.pending
        assert told.requested == requested
        assert taken + requested > told.maximum or (requested == 0 and taken >= told.maximum)
        if demand.resources or any(row.most != (-1, -1, -1) or row.cpu_capacity > 16_384 for row in among):
            return
        found = oracle.nearest(among, demand, told.limit)
        assert found is not None
        assert told.maximum - taken == found[1] - found[0]

    def judge_filling(self, among: list[Row], demand: Demand, chosen: Row) -> bool:
        """Whether nodes are filled here one after the other, and some stay within their share."""
        settings = self.fleet.settings
        share = ranked_to(settings)
        filled = oracle.fullest(among, demand, share) if share else []
        if not filled:
            return False
        self.seen["filled"] += 1
        if oracle.refused_for_limits(among, demand) > 64:
            self.seen["given up"] += 1
            assert chosen.obstacle(demand) is None
        elif chosen not in filled:
            self.seen["filled nearly"] += 1
            assert {chosen.alike, filled[0].alike} & self.fleet.uneven, f"placed on {chosen}, fuller is {filled[0]}"
            assert chosen.rank(demand)[0] == filled[0].rank(demand)[0]
            assert chosen.pressure(demand) <= share
        return True


async def play(backend: Backend, seed: int) -> Counter[str]:
    fleet, clock = Fleet(seed), VirtualClock()
    ledger = await backend.open(domain=f"index-{seed}", clock=clock)
    try:
        await put_settings(ledger, fleet.settings)
        return await Example(ledger, backend, fleet, clock).run()
    except AssertionError as failure:
        raise AssertionError(f"SCHEDULER_TEST_SEED={seed}: {failure}\n{fleet.settings}") from failure
    finally:
        if backend.server is not None:
            backend.server.flush()
        await ledger.close()


async def test_every_choice_is_that_of_the_oracle(backend: Backend) -> None:
    first = int(os.environ.get("SCHEDULER_TEST_SEED", "0"))
    seen: Counter[str] = Counter()
    for seed in range(first, first + (8 if backend.name == "real" else 2)):
        seen += await play(backend, seed)
    print(seen)
    if backend.name == "real" and first == 0:
        assert {"kind 0", "kind 1", "kind 2", "refused", "filled"} <= set(seen)


@pytest.mark.soak
async def test_twenty_thousand_choices_are_those_of_the_oracle(backend: Backend) -> None:
    for seed in range(1_000, 1_000 + 20_000 // STEPS):
        await play(backend, seed)


# What random examples seldom come to.


def cold(cpu_count: int, memory_mb: int = 64, **more: Any) -> ScheduleRequest:
    return ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, cpu_count, memory_mb, images=("app",)), **more)


async def fleet_of(ledger: Ledger, *snapshots: NodeSnapshot) -> None:
    node_ids = [f"node-{number:03}" for number in range(len(snapshots))]
    await ledger.nodes.replace([NodeAddress(node_id, f"http://{node_id}") for node_id in node_ids], ())
    record = CallRecorder(ledger)
    await ledger.client.load_scripts()
    await ledger.client.pipeline([
        await record.heartbeat(Heartbeat(node_id, "one", snapshot=snapshot))
        for node_id, snapshot in zip(node_ids, snapshots, strict=True)
    ])  # fmt: skip


async def fill(ledger: Ledger, request: ScheduleRequest) -> Counter[str]:
    placed: Counter[str] = Counter()
    while True:
        try:
            placed[(await ledger.placements.schedule(request)).node.node_id] += 1
        except NoNodes:
            return placed


def ready(cpu_count: int, memory_gib: int = 64, allocated_cpu: int = 0) -> NodeSnapshot:
    return NodeSnapshot(NodeStatus.READY, cpu_count, memory_gib * GIB, allocated_cpu)


LEAST_LOADED = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)


async def test_nodes_beyond_the_last_class_take_all_that_fits_them(real_server: RedisServer) -> None:
    """Every node has a CPU count of its own; 260 of them are more than there are classes."""
    ledger = await Backend("real", server=real_server).open()
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED))
    await fleet_of(ledger, *(ready(1_000 + number, allocated_cpu=999) for number in range(260)))
    assert await ledger.client.command("HLEN", ledger.keys.classes) == 256
    placed = await fill(ledger, cold(250))
    assert placed == {f"node-{number:03}": 1 for number in range(249, 260)}
    await assert_ledger_is_sound(ledger)
    await ledger.close()


@LEAST_LOADED
async def test_a_node_with_more_cpus_than_rows_is_filled_to_the_last_one(ledger: Ledger) -> None:
    await fleet_of(ledger, ready(40_000, 256), ready(40_001, 256), ready(16, 256))
    assert sum((await fill(ledger, cold(9_999))).values()) == 8
    assert await fill(ledger, cold(5)) == {"node-002": 3, "node-001": 1}
    assert sum((await fill(ledger, cold(1))).values()) == 4 + 1
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(
    strategy=Strategy.LEAST_LOADED, node_resource_limit=NodeResourceLimit(max_cpu_allocated_percent=50)
)
async def test_a_refusal_among_many_nodes_at_their_limit_is_proven_and_the_one_left_is_found(ledger: Ledger) -> None:
    """200 nodes that limits keep out come before the one that they do not."""
    await fleet_of(ledger, *(ready(8, 64, 4) for _ in range(200)), ready(100, 64, 49))
    assert (await ledger.placements.schedule(cold(1))).node.node_id == "node-200"
    with pytest.raises(NoNodes) as refused:
        await ledger.placements.schedule(cold(1))
    assert refused.value.reasons == {"over_limit": 201}


@LEAST_LOADED
async def test_equal_nodes_are_each_served_before_any_is_served_again(ledger: Ledger) -> None:
    """More than ties of one row are looked at for; calls without a hint change nothing."""
    await fleet_of(ledger, *(ready(8) for _ in range(220)))
    served = [(await ledger.placements.schedule(ScheduleRequest())).node.node_id for _ in range(220)]
    assert len(set(served)) == 220


@LEAST_LOADED
async def test_equal_nodes_of_several_classes_take_turns_by_id(ledger: Ledger) -> None:
    await fleet_of(ledger, ready(8), ready(16), ready(8), ready(32), ready(16))
    served = [(await ledger.placements.schedule(ScheduleRequest())).node.node_id for _ in range(10)]
    assert served == [f"node-{number % 5:03}" for number in range(10)]


@pytest.mark.parametrize("classes", [1, 3, 64])
async def test_a_placement_takes_so_many_steps_and_no_more(classes: int, real_server: RedisServer) -> None:
    """A step is a command that the script runs. Each class may add one for a chunk of its rows."""
    ledger = await Backend("real", server=real_server).open()
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED))
    chance = Random(classes)
    await fleet_of(ledger, *(ready(64 + number % classes, 64, chance.randint(0, 60)) for number in range(640)))
    excluded = tuple(f"node-{number:03}" for number in range(0, 640, 10))
    with real_server.client() as client:
        for cpu_count in (1, 2, 3, 30):
            assert await steps_of(client, ledger, cold(cpu_count)) <= 30 + classes
            named = cold(cpu_count, sandbox_id=f"s-{cpu_count}")
            assert await steps_of(client, ledger, named) <= 40 + classes
            assert await steps_of(client, ledger, cold(cpu_count, exclude_nodes=excluded)) <= 40 + classes + 3 * 64
        assert await steps_of(client, ledger, cold(64 + classes - 1, 70_000)) <= 60 + 5 * classes
    await ledger.close()


@pytest.mark.parametrize("turns", [0, 10**6])
async def test_a_batch_on_equal_nodes_reads_them_together(turns: int, real_server: RedisServer) -> None:
    """Each of 64 nodes is told its endpoint and written in three places; the rows are read and written together."""
    ledger = await Backend("real", server=real_server).open()
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED))
    await fleet_of(ledger, *(ready(64, 64) for _ in range(320)))
    await ledger.client.command("HSET", ledger.keys.named("rotations"), "ties", turns)
    with real_server.client() as client:
        for sizes in (1, 16):
            requests = tuple(cold(1 + number % sizes // 4, 64 + number % sizes) for number in range(64))
            client.config_resetstat()
            await ledger.placements.schedule_batch(BatchRequest(requests))
            assert commands_of(client) <= 4 * 64 + 40
    await ledger.close()


async def test_a_batch_of_many_sizes_that_nobody_takes_counts_the_fleet_once(real_server: RedisServer) -> None:
    """Each is told what one that is asked for alone is told."""
    ledger = await Backend("real", server=real_server).open()
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED))
    await fleet_of(ledger, *(replace(ready(64, 64, number % 60), allocated_memory_bytes=GIB) for number in range(600)))
    requests = tuple(cold(1 + number // 64, 65_000 + number) for number in range(256))
    with real_server.client() as client:
        client.config_resetstat()
        batch = await ledger.placements.schedule_batch(BatchRequest(requests))
        assert commands_of(client) <= 2 * 256
    alone = [await refusal_of(ledger, request) for request in requests]
    assert [(each.reasons, each.over_limit and asdict(each.over_limit)) for each in batch.refused] == alone
    await ledger.close()


async def refusal_of(ledger: Ledger, request: ScheduleRequest) -> tuple[Mapping[str, int], Mapping[str, object] | None]:
    with pytest.raises(NoNodes) as refused:
        await ledger.placements.schedule(request)
    return refused.value.reasons, refused.value.facts.get("over_limit")


async def steps_of(client: redis.Redis, ledger: Ledger, request: ScheduleRequest) -> int:
    client.config_resetstat()
    with contextlib.suppress(NoNodes):
        await ledger.placements.schedule(request)
    return commands_of(client)


def commands_of(client: redis.Redis) -> int:
    return sum(
        int(figures["calls"])
        for name, figures in client.info("commandstats").items()
        if name not in {"cmdstat_evalsha", "cmdstat_info", "cmdstat_config|resetstat", "cmdstat_ping"}
    )
