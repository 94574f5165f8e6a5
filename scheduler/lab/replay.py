"""Replay of a trace: what would this strategy have made of these requests?

Each request is scheduled at its instant, boots on the node that was named, is confirmed once it
runs and deleted when its time is over. A refused request is counted under the reason that most
nodes gave and is not tried again. The run is measured from the first arrival to the last: after
that the fleet only empties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import GroupPlacement
from scheduler.errors import NoNodes, Overloaded, SchedulerError
from scheduler.lab.bounds import Bounds, Stay, bounds_of
from scheduler.lab.clock import Agenda
from scheduler.lab.fleet import Fleet, FleetOptions, SandboxOrder
from scheduler.lab.measures import Moment, PressureRecord, WarmKeys, thinned
from scheduler.lab.peers import Peer
from scheduler.lab.surface import Surface
from scheduler.lab.trace import Trace, TraceRequest

Progress = Callable[[int], None]

CURVE_POINTS = 400
MAINTENANCE_MS = 5_000


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`bounds`: work out what no scheduler could have bettered, which needs scipy."""

    lifecycle: Lifecycle = Lifecycle.EXPLICIT
    warm_keys: int = 8
    fleet: FleetOptions = field(default_factory=lambda: FleetOptions(idle_reports=False))
    bounds: bool = False


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy to judge, or the model of another scheduler. `group_placement` is None where there are no groups to
    open."""

    strategy: Strategy | Peer
    group_placement: GroupPlacement | None = None

    @property
    def label(self) -> str:
        """The name, and with a strategy's where groups open if that is not the default."""
        if isinstance(self.strategy, Peer):
            return f"as {self.strategy.value}"
        if self.group_placement in (None, GroupPlacement.ROUND_ROBIN):
            return self.strategy.value
        return f"{self.strategy.value}, groups {self.group_placement.value}"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`hit_rate` is None when no request had a key; `nodes_used_mean` is how many nodes had a sandbox, over time;
    `bounds` is what no placement of these sandboxes could have bettered, None where that was not worked out; `curve` is
    the run as a picture would draw it."""

    contender: Contender
    placed: int
    refused: Mapping[str, int]
    peak_pressure: float
    p99_pressure: float
    imbalance: float
    hit_rate: float | None
    degraded: int
    nodes_used_mean: float
    bounds: Bounds | None
    curve: tuple[Moment, ...]

    def as_dict(self) -> dict[str, Any]:
        start_ms = self.curve[0].at_ms if self.curve else 0
        bounds = self.bounds
        return {
            "strategy": self.contender.strategy.value,
            "group_placement": self.contender.group_placement,
            "placed": self.placed,
            "refused": dict(sorted(self.refused.items())),
            "peak_pressure": self.peak_pressure,
            "p99_pressure": self.p99_pressure,
            "imbalance": self.imbalance,
            "hit_rate": self.hit_rate,
            "warm_hits": self.hit_rate,
            "nodes_used_mean": self.nodes_used_mean,
            "peak_bound": bounds and bounds.peak_pressure,
            "nodes_bound": bounds and bounds.nodes,
            "nodes_bound_mean": bounds and bounds.nodes_mean,
            "degraded": self.degraded,
            "over_time": [
                {
                    "at_s": (moment.at_ms - start_ms) / 1000,
                    "highest_pressure": moment.highest,
                    "imbalance": moment.imbalance,
                }
                for moment in self.curve
            ],
        }


class Replay:
    """One run of one trace against one empty ledger. `run` may be called once."""

    def __init__(self, trace: Trace, surface: Surface, agenda: Agenda, options: ReplayOptions) -> None:
        self._trace = trace
        self._surface = surface
        self._agenda = agenda
        self._options = options
        self._fleet = Fleet(trace.nodes, surface, agenda, options.fleet)
        self._pressure = PressureRecord(trace.nodes, agenda.now_ms)
        self._stays: list[Stay] = []
        self._running: dict[str, Stay] = {}
        self._warm = WarmKeys(options.warm_keys)
        self._refused: Counter[str] = Counter()
        self._placed = 0
        self._degraded = 0
        self._maintenance_due_ms = agenda.now_ms

    async def run(self, contender: Contender, progress: Progress = lambda done: None) -> ReplayResult:
        """`contender` only labels the result: what decides is the ledger's settings."""
        await self._fleet.join()
        start_ms = self._agenda.now_ms
        for done, request in enumerate(self._trace.requests, start=1):
            await self._agenda.run_until(start_ms + request.arrival_ms)
            await self._keep_up()
            await self._arrive(done, request)
            progress(done)
        self._pressure.close(self._agenda.now_ms)
        stays = [*self._stays, *self._running.values()]
        return ReplayResult(
            contender=contender,
            placed=self._placed,
            refused=dict(self._refused),
            peak_pressure=self._pressure.peak_pressure,
            p99_pressure=self._pressure.p99_pressure,
            imbalance=self._pressure.mean_imbalance,
            hit_rate=self._warm.hit_rate,
            degraded=self._degraded,
            nodes_used_mean=self._pressure.mean_nodes_used,
            bounds=bounds_of(self._trace.nodes, stays, self._agenda.now_ms) if self._options.bounds else None,
            curve=tuple(thinned(self._pressure.moments, CURVE_POINTS)),
        )

    async def _keep_up(self) -> None:
        """Replicas work in the background all the time; here only when somebody is about to look."""
        if self._agenda.now_ms >= self._maintenance_due_ms:
            await self._surface.maintain()
            self._maintenance_due_ms = self._agenda.now_ms + MAINTENANCE_MS

    async def _arrive(self, number: int, request: TraceRequest) -> None:
        hint = Hint(
            kind=HintKind.COLD_SANDBOX,
            cpu_count=request.cpu_count,
            memory_mb=request.memory_mb,
            images=(request.key,) if request.key else (),
            require=dict(request.require),
            resources=dict(request.resources),
            spread=request.spread,
        )
        try:
            decision = await self._surface.schedule(ScheduleRequest(hint=hint, lifecycle=self._options.lifecycle))
        except (NoNodes, Overloaded) as refusal:
            self._refused[reason_of(refusal)] += 1
            return
        self._placed += 1
        self._degraded += decision.degraded
        self._warm.run(decision.node.node_id, request.key)
        self._start(f"sandbox-{number}", request, decision)

    def _start(self, sandbox_id: str, request: TraceRequest, decision: Decision) -> None:
        node_id = decision.node.node_id
        ends_ms = None if request.duration_ms is None else self._agenda.now_ms + request.duration_ms
        self._pressure.add(node_id, request.cpu_count, request.memory_mb, self._agenda.now_ms)
        self._running[sandbox_id] = Stay(self._agenda.now_ms, None, request.cpu_count, request.memory_mb)

        def leave() -> None:
            self._pressure.remove(node_id, request.cpu_count, request.memory_mb, self._agenda.now_ms)
            self._stays.append(replace(self._running.pop(sandbox_id), end_ms=self._agenda.now_ms))

        async def end() -> None:
            await self._fleet.delete(node_id, sandbox_id)
            leave()

        async def answered(runs: bool) -> None:
            if not runs:
                leave()
                return
            if self._options.lifecycle is Lifecycle.EXPLICIT and decision.reservation is not None:
                await self._surface.confirm(decision.reservation.reservation_id, sandbox_id)
            if ends_ms is not None:
                self._agenda.at(ends_ms, end)

        order = SandboxOrder(sandbox_id, request.cpu_count, request.memory_mb, resources=request.resources)
        self._fleet.create(node_id, order, answered)


def reason_of(refusal: SchedulerError) -> str:
    """The reason most nodes gave (of equal ones the first by name); the error's code when none did."""
    if isinstance(refusal, NoNodes) and refusal.reasons:
        return min(refusal.reasons, key=lambda reason: (-refusal.reasons[reason], reason))
    return refusal.code
