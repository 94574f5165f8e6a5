"""What a placement costs the Redis server, at one size of fleet after another.

Every figure of a script is server-side (INFO commandstats, reset before each round), the median of
several rounds, with the product's own commands. Beside each stands a script that does nothing, called
with the same keys and arguments through the same client in the same round: their ratio is what can be
compared between machines.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot
from scheduler.domain.placement import ScheduleRequest, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes, Overloaded
from scheduler.lab.bench_fleet import FULL, IDLE, endpoint_of, node_id_of, request_of, snapshot_of
from scheduler.lab.calls import CallRecorder, Command, without_effect
from scheduler.lab.scratch import REPORT_TTL_MS, scratch_ledger
from scheduler.lab.server_figures import BATCH, ServerFigures, middle, middle_cost
from scheduler.ledger.ledger import Ledger

NOOP = "return 1"
# On a busy machine a placement may outlast a call's deadline.
PATIENCE = 60
# Placements in one batch.
BATCHES = (1, 4, 16, 64, 256)
# Rounds of a fleet that changes; one says enough on a slow machine.
CHURN_SECONDS = 15.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """`fill_to` in thousandths. `churn_shapes`: shapes in use while a fifth of the nodes report changes between
    placements."""

    strategy: Strategy = Strategy.LEAST_LOADED
    rounds: int = 9
    calls: int = 1_000
    churn_shapes: tuple[int, ...] = (16, 100)
    churn_rounds: int = 3
    fill_to: int = 0


@dataclass(frozen=True, slots=True)
class PlacementCost:
    """One size of fleet and one number of request shapes in rotation. `ratio` is script by no-op, `cpu_us`
    all that the server did for a call, `cold_us` the script when every call waits for the one before."""

    nodes: int
    shapes: int
    script_us: float
    noop_us: float
    ratio: float
    cpu_us: float
    noop_cpu_us: float
    cold_us: float
    round_trip_us: float
    bytes_per_node: float


@dataclass(frozen=True, slots=True)
class FleetCost:
    """What else one size of fleet costs. `first_use_us`: the first placement after the fleet was loaded. `churn_us`: a
    placement, by sizes in use, after a fifth of the nodes reported changes. `tied_us`: a placement on an idle fleet of
    equal nodes. `refusal_us`: None where the strategy refuses nothing for lack of capacity. `batch_cpu_us`: all that
    the server did for one placement of one shape, by how many came in one batch; 0: by itself. `heartbeat_…`: a report
    while nothing is reserved, and a script that does nothing with the arguments of one."""

    nodes: int
    load_seconds: float
    first_use_us: float
    churn_us: dict[int, float]
    tied_us: float
    batch_cpu_us: dict[int, float]
    refusal_us: float | None
    heartbeat_changed_us: float
    heartbeat_unchanged_us: float
    heartbeat_noop_us: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    placements: tuple[PlacementCost, ...]
    fleets: tuple[FleetCost, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "results": [_plain(cost) for cost in self.placements],
            "fleets": [_plain(cost) for cost in self.fleets],
        }


async def bench_schedule(
    redis_addr: str,
    node_counts: Sequence[int],
    shape_counts: Sequence[int],
    options: BenchOptions | None = None,
    progress: Progress = lambda stage: None,
) -> BenchReport:
    """Measure every size in turn, each on an empty ledger."""
    options = options or BenchOptions()
    settings = LedgerSettings(strategy=options.strategy, fill_to=options.fill_to, report_ttl_ms=REPORT_TTL_MS)
    placements: list[PlacementCost] = []
    fleets: list[FleetCost] = []
    for node_count in node_counts:
        async with scratch_ledger(redis_addr, settings) as ledger:
            bench = FleetBench(ledger, node_count, options)
            progress(f"{node_count:,} nodes: loading")
            await bench.load()
            for shapes in shape_counts:
                progress(f"{node_count:,} nodes: placements of {shapes} shapes")
                placements.append(await bench.placements(shapes))
            progress(f"{node_count:,} nodes: changing nodes, refusals, reports")
            fleets.append(await bench.fleet_cost())
    return BenchReport(tuple(placements), tuple(fleets))


class FleetBench:
    """One size of fleet on one empty ledger. `load` comes first, `fleet_cost` (which fills the fleet) last."""

    def __init__(self, ledger: Ledger, node_count: int, options: BenchOptions) -> None:
        self._ledger = ledger
        self._node_count = node_count
        self._options = options
        self._record = CallRecorder(ledger)
        self._figures = ServerFigures(ledger.client)
        self._version = 0
        self._noop_sha = ""
        self._bytes_per_node = 0.0
        self._load_seconds = 0.0
        self._first_use_us = 0.0
        self._heartbeat_us = (0.0, 0.0, 0.0)

    async def load(self) -> None:
        """List every node and let each report, with loads that differ: once, and then to measure reports."""
        await self._ledger.client.load_scripts()
        self._noop_sha = await self._figures.load_script(NOOP)
        began, before_bytes = time.perf_counter(), await self._figures.used_memory_bytes()
        addresses = [NodeAddress(node_id_of(number), endpoint_of(number)) for number in range(self._node_count)]
        await self._ledger.nodes.replace(addresses, ())
        await self._send(self._reports(range(self._node_count)))
        self._load_seconds = time.perf_counter() - began
        self._bytes_per_node = (await self._figures.used_memory_bytes() - before_bytes) / self._node_count
        self._heartbeat_us = await self._heartbeats()
        await self._figures.reset()
        await self._place(0)
        self._first_use_us = (await self._figures.since_reset()).microseconds

    async def placements(self, shapes: int) -> PlacementCost:
        """Placements of `shapes` shapes in rotation, no node changing but by them."""
        for shape in range(shapes):
            await self._place(shape)
        scripts, noops = [], []
        for _ in range(self._options.rounds):
            commands = [await self._record.schedule(request_of(call % shapes)) for call in range(self._options.calls)]
            scripts.append(await self._figures.round(commands))
            noops.append(await self._figures.round(without_effect(self._noop_sha, commands)))
        script, noop = middle_cost(scripts), middle_cost(noops)
        cold_us, round_trip_us = await self._one_by_one(shapes)
        return PlacementCost(
            nodes=self._node_count,
            shapes=shapes,
            script_us=script.script_us,
            noop_us=noop.script_us,
            ratio=script.script_us / noop.script_us,
            cpu_us=script.cpu_us,
            noop_cpu_us=noop.cpu_us,
            cold_us=cold_us,
            round_trip_us=round_trip_us,
            bytes_per_node=self._bytes_per_node,
        )

    async def fleet_cost(self) -> FleetCost:
        churn_us = {shapes: await self._churn(shapes) for shapes in self._options.churn_shapes}
        changed_us, unchanged_us, noop_us = self._heartbeat_us
        batch_cpu_us = await self._batches()
        return FleetCost(
            nodes=self._node_count,
            load_seconds=self._load_seconds,
            first_use_us=self._first_use_us,
            churn_us=churn_us,
            tied_us=await self._tied(),
            batch_cpu_us=batch_cpu_us,
            refusal_us=await self._refusal(),
            heartbeat_changed_us=changed_us,
            heartbeat_unchanged_us=unchanged_us,
            heartbeat_noop_us=noop_us,
        )

    async def _place(self, shape: int) -> None:
        """One placement, however many slices of index it takes first."""
        for _ in range(PATIENCE):
            with contextlib.suppress(Overloaded):
                await self._ledger.placements.schedule(request_of(shape))
                return
        raise Overloaded(f"no placement on {self._node_count:,} nodes after {PATIENCE} attempts")

    async def _one_by_one(self, shapes: int) -> tuple[float, float]:
        """Through the store, each waiting for the one before: server-side mean, and the median round trip."""
        round_trips = []
        await self._figures.reset()
        for call in range(min(300, self._options.calls)):
            began = time.perf_counter()
            await self._place(call % shapes)
            round_trips.append((time.perf_counter() - began) * 1_000_000)
        return (await self._figures.since_reset()).microseconds / len(round_trips), middle(round_trips)

    async def _churn(self, shapes: int) -> float:
        """A fifth of the nodes report changes, then each shape places once; what one placement took."""
        for shape in range(shapes):
            await self._place(shape)
        rounds: list[float] = []
        began = time.monotonic()
        for turn in range(self._options.churn_rounds):
            if rounds and time.monotonic() - began > CHURN_SECONDS:
                break
            self._version += 1
            await self._send(self._reports(range(turn % 5, self._node_count, 5)))
            await self._figures.reset()
            for shape in range(shapes):
                await self._place(shape)
            rounds.append((await self._figures.since_reset()).microseconds / shapes)
        return middle(rounds)

    async def _heartbeats(self) -> tuple[float, float, float]:
        changed, unchanged, noops = [], [], []
        count = min(self._options.calls, self._node_count)
        for _ in range(self._options.rounds):
            self._version += 1
            reports = [await self._report(number) for number in range(count)]
            changed.append((await self._figures.round(reports)).script_us)
            unchanged.append((await self._figures.round(reports)).script_us)
            noops.append((await self._figures.round(without_effect(self._noop_sha, reports))).script_us)
        return middle(changed), middle(unchanged), middle(noops)

    async def _batches(self) -> dict[int, float]:
        """The sizes take turns, so that all of them meet the same fleet."""
        rounds: dict[int, list[float]] = {0: [], **{size: [] for size in BATCHES}}
        for _ in range(self._options.rounds):
            for size, found in rounds.items():
                request, count = request_of(0), max(1, min(self._options.calls, BATCHES[-1]) // max(1, size))
                commands = [
                    await (self._record.batch([request] * size) if size else self._record.schedule(request))
                    for _ in range(count)
                ]
                found.append((await self._figures.round(commands)).cpu_us / max(1, size))
        return {size: middle(found) for size, found in rounds.items()}

    async def _tied(self) -> float:
        """Every node idle and all alike but for what this benchmark reserved."""
        await self._send(self._reports(range(self._node_count), IDLE))
        await self._place(0)
        rounds = []
        for _ in range(self._options.rounds):
            commands = [await self._record.schedule(request_of(0)) for _ in range(self._options.calls)]
            rounds.append((await self._figures.round(commands)).script_us)
        return middle(rounds)

    async def _refusal(self) -> float | None:
        """Every node full: a placement is refused, with the reasons."""
        if not self._options.strategy.admits:
            return None
        await self._send(self._reports(range(self._node_count), FULL))
        request = request_of(0)
        await self._expect_refusal(request)
        rounds = []
        for _ in range(self._options.rounds):
            commands = [await self._record.schedule(request) for _ in range(self._options.calls)]
            rounds.append((await self._figures.round(commands)).script_us)
        await self._expect_refusal(request)
        return middle(rounds)

    async def _expect_refusal(self, request: ScheduleRequest) -> None:
        try:
            await self._ledger.placements.schedule(request)
        except NoNodes:
            return
        raise AssertionError("a full fleet placed a sandbox")

    async def _reports(self, numbers: Sequence[int], snapshot: NodeSnapshot | None = None) -> AsyncIterator[Command]:
        for number in numbers:
            yield await self._report(number, snapshot)

    async def _report(self, number: int, snapshot: NodeSnapshot | None = None) -> Command:
        """A node's own load of this version, or the snapshot given."""
        return await self._record.heartbeat(
            Heartbeat(
                node_id=node_id_of(number),
                service_instance_id=f"instance-{number}",
                cluster_id="bench",
                version="0.1.3",
                commit="e3dcc6a",
                snapshot=snapshot or snapshot_of(number, self._version),
            )
        )

    async def _send(self, commands: AsyncIterator[Command]) -> None:
        batch: list[Command] = []
        async for command in commands:
            batch.append(command)
            if len(batch) == BATCH:
                await self._ledger.client.pipeline(batch)
                batch = []
        await self._ledger.client.pipeline(batch)


def _plain(cost: PlacementCost | FleetCost) -> dict[str, Any]:
    return {field.name: getattr(cost, field.name) for field in fields(cost)}
