"""Does the ledger believe what is true? A fleet with a truth of its own, and two stories that find out.

One fleet, one workload, five ways to end a reservation: told by id (`explicit`), the same under a name given
with the schedule (`named`) or with the nodes' sandbox events (`both`), learnt from the nodes' reports with those
events to help (`events`), learnt from the reports alone (`counters`).

*Full*: a backlog is always waiting, so the ledger keeps the fleet as full as it believes it may while
sandboxes boot, fail, fork and end. What it holds though it is free stays unused for ever so long.

*Burst*: many small creates at once, and as many large ones as still fit while the small ones boot. A ledger that
counts a booting sandbox twice, once reserved and once reported, refuses what would fit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from scheduler.lab.clock import Agenda, Spread, always, shortened
from scheduler.lab.fleet import Fleet, FleetOptions
from scheduler.lab.gateway import Ending, Fates, Gateway, GatewayOptions
from scheduler.lab.judge import Figures, Judge
from scheduler.lab.node import Size
from scheduler.lab.surface import Surface
from scheduler.lab.trace import NodeSpec
from scheduler.lab.truth import Truth

# What gateways ask for, and how often.
SIZES = (Size(1, 2_048), Size(2, 4_096), Size(2, 8_192), Size(4, 16_384), Size(8, 16_384))
WEIGHTS = (0.3, 0.3, 0.15, 0.15, 0.1)
# The backlog: every turn places until so many were refused, or so many placed.
REFUSALS_A_TURN = 3
PLACED_A_TURN = 40
# The burst: as many small ones fill so much of the fleet; then large ones, a third more than fit.
SMALL = Size(2, 2_048)
LARGE = Size(4, 2_048)
SMALL_PER_NODE = 10
LARGE_PER_NODE = 4
# How often a run looks whether all answers are there, or tells how far it is.
ANSWERS_MS = 20
PROGRESS_MS = 1_000


class Story(StrEnum):
    FULL = "full"
    BURST = "burst"


# Each node has a report interval of its own; a create event comes when the VM starts.
FLEET = FleetOptions(
    report_interval=Spread(5_000, 15_000),
    report_delay=Spread(10, 200),
    boot=Spread(2_000, 20_000),
    create_events_at_start=True,
    event_delay=always(100),
)
FATES = Fates(boot_fails=0.05)


@dataclass(frozen=True, slots=True)
class Workload:
    """`duration_ms` includes `warmup_ms`, in which the fleet fills up and nothing is counted but overdrawn nodes.
    So many nodes restart halfway. `large_after_ms` is the burst's. `replace(BURST, …)` makes another burst."""

    story: Story = Story.FULL
    node_count: int = 50
    node_size: Size = Size(32, 131_072)
    duration_ms: int = 240_000
    warmup_ms: int = 60_000
    large_after_ms: int = 4_000
    turn_ms: int = 500
    sample_ms: int = 500
    restarts: int = 0
    reservation_ttl_ms: int = 600_000
    fates: Fates = FATES
    fleet: FleetOptions = FLEET
    answer_delay: Spread = always(50)
    seed: int = 1

    def shortened(self, factor: float) -> Workload:
        """The story, this many times as fast."""
        fleet = replace(
            self.fleet,
            report_interval=self.fleet.report_interval.shortened(factor),
            report_delay=self.fleet.report_delay.shortened(factor),
            late_by=self.fleet.late_by.shortened(factor),
            boot=self.fleet.boot.shortened(factor),
            event_delay=self.fleet.event_delay.shortened(factor),
        )
        return replace(
            self,
            duration_ms=shortened(self.duration_ms, factor),
            warmup_ms=shortened(self.warmup_ms, factor),
            large_after_ms=shortened(self.large_after_ms, factor),
            turn_ms=shortened(self.turn_ms, factor),
            sample_ms=shortened(self.sample_ms, factor),
            reservation_ttl_ms=shortened(self.reservation_ttl_ms, factor),
            fates=self.fates.shortened(factor),
            fleet=fleet,
            answer_delay=self.answer_delay.shortened(factor),
        )


# Nothing fails, forks or ends in it, so its numbers are exact.
BURST = Workload(story=Story.BURST, duration_ms=64_000, warmup_ms=0, fates=Fates(mean_life_ms=0))


@dataclass(frozen=True, slots=True)
class LifecycleResult:
    """`placeable`: how many of the burst's large sandboxes fitted on the nodes; None in the other story.
    `unexpected`: calls that failed otherwise than by a refusal, by call and code."""

    ending: Ending
    story: Story
    placed: int
    placeable: int | None
    figures: Figures
    unexpected: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        return {
            "ending": self.ending.value,
            "story": self.story.value,
            "placed": self.placed,
            "placeable": self.placeable,
            **asdict(self.figures),
            "unexpected": dict(self.unexpected),
        }


class LifecycleRun:
    """One run on one empty ledger. `run` may be called once."""

    def __init__(self, ending: Ending, workload: Workload, surface: Surface, agenda: Agenda) -> None:
        self._ending = ending
        self._workload = workload
        self._surface = surface
        self._agenda = agenda
        self._random = random.Random(workload.seed)
        size = workload.node_size
        specs = [NodeSpec(f"node-{number:03}", size.cpu_count, size.memory_mb) for number in range(workload.node_count)]
        options = replace(workload.fleet, sends_events=ending.sends_events, seed=workload.seed)
        self._fleet = Fleet(specs, surface, agenda, options)
        self._truth = Truth(self._fleet)
        self._judge = Judge(self._truth)
        gateway_options = GatewayOptions(ending, workload.fates, workload.answer_delay, workload.seed)
        self._gateway = Gateway(gateway_options, self._fleet, surface, self._judge, agenda)
        self._answers = 0

    async def run(self, progress: Callable[[int], None] = lambda seconds: None) -> LifecycleResult:
        """`progress` is told how many seconds of the story are over."""
        await self._fleet.join()
        began_ms = self._agenda.now_ms
        workload = self._workload
        self._agenda.after(workload.sample_ms, self._sample)
        if workload.warmup_ms > 0:
            self._agenda.after(workload.warmup_ms, self._end_warmup)
        if workload.restarts > 0:
            self._agenda.after(workload.duration_ms // 2, self._restart_nodes)
        placed, placeable = await (self._keep_full() if workload.story is Story.FULL else self._burst())
        while (over_ms := self._agenda.now_ms - began_ms) < workload.duration_ms:
            progress(over_ms // 1_000)
            await self._agenda.run_until(min(self._agenda.now_ms + PROGRESS_MS, began_ms + workload.duration_ms))
        progress(workload.duration_ms // 1_000)
        refused_calls = {f"report: {code}": count for code, count in self._fleet.refused_reports.items()}
        refused_calls |= {f"event: {code}": count for code, count in self._fleet.refused_events.items()}
        return LifecycleResult(
            ending=self._ending,
            story=workload.story,
            placed=self._gateway.placed if placed is None else placed,
            placeable=placeable,
            figures=self._judge.figures(),
            unexpected=Counter(refused_calls) + self._gateway.unexpected,
        )

    async def _keep_full(self) -> tuple[None, None]:
        """Start the backlog; it goes on by itself."""

        async def turn() -> None:
            refused = placed = 0
            while refused < REFUSALS_A_TURN and placed < PLACED_A_TURN:
                (size,) = self._random.choices(SIZES, WEIGHTS)
                if await self._gateway.place(size):
                    placed += 1
                else:
                    refused += 1
            self._agenda.after(self._workload.turn_ms, turn)

        self._agenda.after(0, turn)
        return None, None

    async def _burst(self) -> tuple[int, int]:
        """Small ones, then large ones: how many of the large ones were placed, and how many fitted."""
        began_ms = self._agenda.now_ms
        await self._ask_at_once(SMALL, SMALL_PER_NODE * self._workload.node_count)
        await self._agenda.run_until(began_ms + self._workload.large_after_ms)
        wanted = LARGE_PER_NODE * self._workload.node_count
        placeable = min(wanted, self._truth.how_many_fit(LARGE))
        before = self._gateway.placed
        await self._ask_at_once(LARGE, wanted)
        return self._gateway.placed - before, placeable

    async def _ask_at_once(self, size: Size, times: int) -> None:
        """Returns when every answer is there."""

        async def ask() -> None:
            await self._gateway.place(size)
            self._answers += 1

        awaited = self._answers + times
        for _ in range(times):
            self._agenda.after(0, ask)
        await self._agenda.run_until(self._agenda.now_ms)
        while self._answers < awaited:
            await self._agenda.run_until(self._agenda.now_ms + ANSWERS_MS)

    async def _sample(self) -> None:
        await self._surface.maintain()
        self._judge.sample(await self._surface.nodes())
        self._agenda.after(self._workload.sample_ms, self._sample)

    async def _end_warmup(self) -> None:
        self._judge.forget_counts()

    async def _restart_nodes(self) -> None:
        for node_id in self._random.sample(sorted(self._fleet.nodes), self._workload.restarts):
            self._fleet.restart(node_id)
