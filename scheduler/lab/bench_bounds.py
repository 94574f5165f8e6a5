"""The longest single step of the ledger: every kind of call, at the sizes that make it expensive.

Redis runs one script at a time, so the longest one is what everybody else may have to wait for. No script takes more
than BOUND_MS of the server's CPU, whatever has piled up; this bench makes it pile up and weighs every call.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from scheduler.domain.limits import MIB
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeQuery, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings, NodeResourceLimit
from scheduler.errors import NotFound
from scheduler.inspection.recount import check
from scheduler.lab.bench_fleet import endpoint_of, node_id_of, snapshot_of
from scheduler.lab.clock import VirtualClock
from scheduler.lab.meter import ScriptMeter, Weighed, metered
from scheduler.lab.scratch import scratch_ledger
from scheduler.ledger.ledger import Ledger

BOUND_MS = 10.0
BIG, BIG_CPUS, BIG_BYTES = "node-of-many", 16_384, 1 << 46
DAY_MS = 86_400_000
BATCH = 128


@dataclass(frozen=True, slots=True)
class BoundsOptions:
    """How much piles up. `on_one_node`: of the reservations, those that are confirmed on one node."""

    nodes: int = 100_000
    reservations: int = 100_000
    on_one_node: int = 10_000
    roster: int = 20_000
    events: int = 1_024
    changes: int = 1_000


@dataclass(frozen=True, slots=True)
class StepCost:
    """One kind of script call in one situation: how often, the dearest call, their mean, and the most commands."""

    situation: str
    script: str
    calls: int
    worst_ms: float
    mean_ms: float
    commands: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Progress = Callable[[str], None]


async def bench_bounds(
    redis_addr: str, options: BoundsOptions | None = None, progress: Progress = lambda stage: None
) -> tuple[StepCost, ...]:
    """Let everything pile up on an empty ledger, and weigh every call; the dearest first."""
    bench = BoundsBench(options or BoundsOptions(), progress)
    settings = LedgerSettings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=DAY_MS)
    async with scratch_ledger(redis_addr, settings, bench.clock) as ledger:
        await ledger.client.load_scripts()
        await bench.run(ledger)
    return tuple(sorted(bench.costs, key=lambda cost: -cost.worst_ms))


class BoundsBench:
    def __init__(self, options: BoundsOptions, progress: Progress) -> None:
        self.options = options
        self.clock = VirtualClock()
        self.costs: list[StepCost] = []
        self._progress = progress
        self._ledger: Ledger
        self._meter: ScriptMeter
        self._confirmed: list[str] = []
        self._pending: list[str] = []

    async def run(self, ledger: Ledger) -> None:
        self._ledger, self._meter = ledger, metered(ledger)
        stages: Sequence[Callable[[], Awaitable[None]]] = [
            self._fill, self._read, self._change_nodes, self._change_settings, self._roster, self._events, self._due,
            self._silent, self._recount,
        ]  # fmt: skip
        try:
            for stage in stages:
                await stage()
        finally:
            await self._meter.close()

    @asynccontextmanager
    async def _situation(self, name: str) -> AsyncIterator[None]:
        """Count all calls inside the block to this situation."""
        self._progress(name)
        self._meter.calls.clear()
        yield
        for script in sorted({call.script for call in self._meter.calls}):
            self.costs.append(_cost(name, [call for call in self._meter.calls if call.script == script]))

    def _wait(self, duration_ms: int) -> None:
        self.clock.advance_to(self.clock() + duration_ms)

    # -- what piles up ----------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        ledger, options = self._ledger, self.options
        async with self._situation("a fleet is listed"):
            await ledger.nodes.replace([NodeAddress(BIG, "http://big:8000")], ())
        await self._report(BIG, _big())
        async with self._situation("one node is given everything"):
            for first in range(0, options.on_one_node, BATCH):
                placed = await self._place(min(BATCH, options.on_one_node - first), DAY_MS)
                self._confirmed += placed
        async with self._situation("confirmed one by one"):
            for number, reservation_id in enumerate(self._confirmed):
                await ledger.reservations.confirm(reservation_id, _sandbox(number))
        nodes = [NodeAddress(node_id_of(number), endpoint_of(number)) for number in range(options.nodes)]
        async with self._situation("a fleet is listed"):
            await ledger.nodes.replace([NodeAddress(BIG, "http://big:8000"), *nodes], ())
        async with self._situation("every node reports for the first time"):
            for number in range(options.nodes):
                await self._report(node_id_of(number), snapshot_of(number, 0))
        async with self._situation("placements"):
            left = options.reservations - options.on_one_node
            for first in range(0, left, BATCH):
                self._pending += await self._place(min(BATCH, left - first), DAY_MS)
        async with self._situation("single placements"):
            for _ in range(50):
                await ledger.placements.schedule(_request(DAY_MS))

    async def _place(self, count: int, ttl_ms: int) -> list[str]:
        decision = await self._ledger.placements.schedule_batch(BatchRequest((_request(ttl_ms),) * count))
        return [placed.reservation.reservation_id for placed in decision.placed]

    async def _report(self, node_id: str, snapshot: NodeSnapshot, roster: tuple[str, ...] | None = None) -> None:
        await self._ledger.nodes.heartbeat(
            Heartbeat(node_id, f"{node_id}-1", snapshot=snapshot, sandbox_ids=roster), 600_000
        )

    # -- what is asked of it ----------------------------------------------------------------------------------

    async def _read(self, when: str = "") -> None:
        ledger = self._ledger
        first = node_id_of(0)
        async with self._situation("a page of nodes" + when):
            await ledger.nodes.page(NodeQuery(), 1_000)
        async with self._situation("a page of nodes by status" + when):
            await ledger.nodes.page(NodeQuery(status=NodeStatus.UNHEALTHY), 1_000)
        async with self._situation("one node" + when):
            await ledger.nodes.get(first)
            await ledger.nodes.get(BIG)
        async with self._situation("a page of reservations" + when):
            await ledger.reservations.list(limit=1_000)
        async with self._situation("a page of one node's reservations" + when):
            await ledger.reservations.list(limit=1_000, node_id=BIG)
        async with self._situation("one reservation" + when):
            await ledger.reservations.get(self._pending[0])
        async with self._situation("one sandbox" + when):
            with contextlib.suppress(NotFound):
                await ledger.bindings.lookup(_sandbox(1))
        async with self._situation("the summary" + when):
            await ledger.summary.read()
        async with self._situation("figures for metrics" + when):
            await ledger.nodes.tally()
            await ledger.reservations.tally()
        async with self._situation("explain" + when):
            await ledger.placements.explain(_request(DAY_MS))

    async def _change_nodes(self) -> None:
        ledger, options = self._ledger, self.options
        async with self._situation("a node with open reservations leaves"):
            await ledger.nodes.remove(BIG)
        async with self._situation("a node with open reservations is back"):
            await ledger.nodes.set(BIG, "http://big:8000", DiscoveryState.ACTIVE)
        await self._report(BIG, _big())
        numbers = range(options.changes)
        listed = [NodeAddress(node_id_of(number), endpoint_of(number)) for number in range(options.nodes)]
        listed.append(NodeAddress(BIG, "http://big:8000"))
        moved = [replace(node, endpoint=node.endpoint + "1") for node in listed[: len(numbers)]]
        async with self._situation("nodes move"):
            await ledger.nodes.replace([*moved, *listed[len(numbers) :]], ())
        async with self._situation("nodes drain"):
            await ledger.nodes.replace(listed[len(numbers) :], listed[: len(numbers)])
        async with self._situation("nodes leave"):
            await ledger.nodes.replace(listed[len(numbers) :], ())
        async with self._situation("nodes are back"):
            await ledger.nodes.replace(listed, ())
        for number in numbers:
            await self._report(node_id_of(number), snapshot_of(number, 1))

    async def _change_settings(self) -> None:
        limits = NodeResourceLimit(max_sandbox_count=100_000)
        for revision, changed in enumerate((limits, NodeResourceLimit()), start=1):
            name = "limits are set" if revision == 1 else "limits are lifted"
            settings = LedgerSettings(
                strategy=Strategy.LEAST_LOADED, report_ttl_ms=DAY_MS, node_resource_limit=changed, revision=revision
            )
            async with self._situation(name):
                await self._ledger.settings.put(settings, "lab")
                while await self._ledger.settings.refresh():
                    pass
            async with self._situation("reports, " + name):
                for number in range(100):
                    await self._report(node_id_of(number), snapshot_of(number, 1 + revision))
                await self._report(BIG, _big())

    async def _roster(self) -> None:
        options = self.options
        ids = tuple(_sandbox(number) for number in range(options.roster))
        half = options.on_one_node // 2
        self._wait(60_000)
        async with self._situation("a report with everything open"):
            await self._report(BIG, _big(), ())
            self._wait(1_000)
            await self._report(BIG, _big(), ())
        async with self._situation("a large roster, with half of what was confirmed"):
            await self._report(BIG, _big(half), (*ids[:half], *ids[options.on_one_node :]))
        self._wait(60_000)
        async with self._situation("it is listed again"):
            await self._report(BIG, _big(half), (*ids[:half], *ids[options.on_one_node :]))
            self._wait(60_000)
            await self._report(BIG, _big(half), (*ids[:half], *ids[options.on_one_node :]))
        async with self._situation("a large roster empties"):
            for _ in range(3):
                self._wait(60_000)
                await self._report(BIG, _big(), ())

    async def _events(self) -> None:
        for event_type in SandboxEventType:
            events = [SandboxEvent(f"event-{n}", event_type, 1, 64 * MIB) for n in range(self.options.events)]
            async with self._situation(f"events of one call: {event_type.value}"):
                await self._ledger.nodes.record_events(BIG, f"{BIG}-1", events)

    async def _due(self) -> None:
        """Each reader is the first to come once everything is due."""
        ledger = self._ledger
        self._wait(DAY_MS - 10 * 60_000)
        for number in range(self.options.nodes):
            await self._report(node_id_of(number), snapshot_of(number, 4))
        await self._report(BIG, _big())
        self._wait(11 * 60_000)
        await self._read(", everything due")
        async with self._situation("a placement, everything due"):
            await ledger.placements.schedule(_request(DAY_MS))
        async with self._situation("a report, everything due"):
            await self._report(node_id_of(0), snapshot_of(0, 5))
            await self._report(BIG, _big())
        async with self._situation("sweeps, everything due"):
            while await ledger.reservations.sweep():
                pass

    async def _silent(self) -> None:
        ledger = self._ledger
        self._wait(2 * DAY_MS)
        async with self._situation("everybody silent: a placement"):
            await ledger.placements.schedule(_request(1_000))
        async with self._situation("everybody silent: sweeps"):
            while await ledger.reservations.sweep():
                pass

    async def _recount(self) -> None:
        async with self._situation("sums are counted anew"):
            await self._ledger.client.command("HDEL", self._ledger.keys.tallies, "counted")
            await self._ledger.summary.read()
        async with self._situation("inspect check"):
            await check(self._ledger)
        async with self._situation("the whole fleet leaves"):
            await self._ledger.nodes.replace((), ())
        self._wait(DAY_MS)
        async with self._situation("sweeps, the fleet gone"):
            while await self._ledger.reservations.sweep():
                pass


def _cost(situation: str, calls: Sequence[Weighed]) -> StepCost:
    return StepCost(
        situation=situation,
        script=calls[0].script,
        calls=len(calls),
        worst_ms=max(call.cpu_ms for call in calls),
        mean_ms=sum(call.cpu_ms for call in calls) / len(calls),
        commands=max(call.commands for call in calls),
    )


def _request(ttl_ms: int) -> ScheduleRequest:
    return ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64), reservation_ttl_ms=ttl_ms)


def _big(sandboxes: int = 0) -> NodeSnapshot:
    return NodeSnapshot(
        NodeStatus.READY,
        cpu_count=BIG_CPUS,
        memory_total_bytes=BIG_BYTES,
        allocated_cpu=sandboxes,
        allocated_memory_bytes=sandboxes * 64 * MIB,
        sandbox_count=sandboxes,
        create_successes=sandboxes,
    )


def _sandbox(number: int) -> str:
    return f"sandbox-{number:06d}-0b0e-4000-9000"
