"""What does it cost not to tell the ledger how a placement ended?

One fleet, one workload, four ways to end a reservation: told by id (`explicit`), the same with the
nodes' sandbox events (`both`), guessed from the nodes' counters with those events to help (`events`),
guessed from the counters alone (`counters`).
The fleet is kept nearly full while sandboxes come and go, some image pulls fail (which no counter
shows), some boots fail, some sandboxes fork (which the counters take for creates) and one node
restarts in the middle.

Two figures judge a ledger. *Held but unused*: pending totals beyond what is really on its way,
averaged over time (its opposite, *promised but not held*, would be capacity given away twice).
*Needless refusals*: no node was named although one had room in truth. Part of these no ledger could
avoid, because a sandbox that ended is known only from the node's next report; those that a perfect
ledger with the same reports would not have given are counted as `refused_by_holding`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.errors import NoNodes, Overloaded
from scheduler.lab.clock import Agenda
from scheduler.lab.fleet import Answer, Fleet, FleetOptions, Outcome, SandboxOrder
from scheduler.lab.surface import Surface
from scheduler.lab.trace import NodeSpec
from scheduler.lab.truth import Size, Truth


class Ending(StrEnum):
    """How the ledger learns what became of a placement."""

    EXPLICIT = "explicit"
    BOTH = "both"
    EVENTS = "events"
    COUNTERS = "counters"

    @property
    def told_by_id(self) -> bool:
        """The gateway confirms or cancels."""
        return self in (Ending.EXPLICIT, Ending.BOTH)

    @property
    def sends_events(self) -> bool:
        return self in (Ending.BOTH, Ending.EVENTS)


@dataclass(frozen=True, slots=True)
class Workload:
    """Shares are of all creates. The fleet is filled up to `target`, then kept there; a refused
    create is tried again, with another size, after `retry_ms`. A run in which nothing was placed for
    `patience_ms` is over."""

    creates: int = 10_000
    node_count: int = 32
    node_cpu_count: int = 64
    node_memory_mb: int = 131_072
    target: float = 0.96
    mean_life_ms: int = 180_000
    pull_ms: int = 1_000
    pull_fails: float = 0.03
    boot_fails: float = 0.01
    forks: float = 0.03
    attempt_ms: int = 50
    retry_ms: int = 500
    sample_ms: int = 1_000
    patience_ms: int = 3_600_000
    seed: int = 1
    fleet: FleetOptions = field(default_factory=FleetOptions)


@dataclass(frozen=True, slots=True)
class LifecycleResult:
    """Shares are of the fleet's CPUs, averaged from the moment the fleet was first filled."""

    ending: Ending
    creates: int
    virtual_seconds: float
    allocated: float
    least_allocated: float
    held_unused: float
    promised_unheld: float
    refused: int
    refused_with_room: int
    refused_by_holding: int

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Sample:
    allocated: float
    held_unused: float
    promised_unheld: float


class LifecycleRun:
    """One run on one empty ledger. `run` may be called once."""

    def __init__(self, ending: Ending, workload: Workload, surface: Surface, agenda: Agenda) -> None:
        self._ending = ending
        self._workload = workload
        self._surface = surface
        self._agenda = agenda
        self._random = random.Random(workload.seed)
        specs = [
            NodeSpec(f"node-{number:03}", workload.node_cpu_count, workload.node_memory_mb)
            for number in range(workload.node_count)
        ]
        options = replace(workload.fleet, sends_events=ending.sends_events)
        self._fleet = Fleet(specs, surface, agenda, options)
        self._truth = Truth(self._fleet)
        self._created = 0
        self._placed_ms = agenda.now_ms
        self._refused = self._refused_with_room = self._refused_by_holding = 0
        self._filled = False
        self._samples: list[_Sample] = []

    async def run(self, progress: Callable[[int], None] = lambda done: None) -> LifecycleResult:
        await self._fleet.join()
        began_ms = sample_due_ms = self._agenda.now_ms
        restart_due, patience_ms = self._workload.creates // 2, self._workload.patience_ms
        wait_ms = self._workload.attempt_ms
        while self._created < self._workload.creates and self._agenda.now_ms < self._placed_ms + patience_ms:
            await self._agenda.run_until(self._agenda.now_ms + wait_ms)
            wait_ms = self._workload.attempt_ms
            if self._truth.allocated >= self._workload.target:
                self._filled = True
            elif not await self._create():
                self._filled = True
                wait_ms = self._workload.retry_ms
            progress(self._created)
            if self._created == restart_due:
                self._restart_one_node()
                restart_due = -1
            if self._agenda.now_ms >= sample_due_ms:
                await self._surface.upkeep()
                if self._filled:
                    self._samples.append(await self._sample())
                sample_due_ms = self._agenda.now_ms + self._workload.sample_ms
        return self._result((self._agenda.now_ms - began_ms) / 1000)

    async def _create(self) -> bool:
        """Ask for one sandbox; False when it was refused."""
        cpu_count = self._random.choice((1, 2, 2, 4))
        size = Size(cpu_count, cpu_count * self._random.choice((1024, 1536, 2048)))
        hint = Hint(HintKind.COLD_SANDBOX, size.cpu_count, size.memory_mb, images=("registry.invalid/app:1",))
        lifecycle = Lifecycle.EXPLICIT if self._ending.told_by_id else Lifecycle.HEARTBEAT
        try:
            decision = await self._surface.schedule(ScheduleRequest(hint=hint, lifecycle=lifecycle))
        except (NoNodes, Overloaded):
            self._refused += 1
            self._refused_with_room += self._truth.anywhere_room(size)
            self._refused_by_holding += self._truth.anywhere_known_room(size)
            return False
        self._created += 1
        self._placed_ms = self._agenda.now_ms
        sandbox_id = f"sandbox-{self._created}"
        order = SandboxOrder(sandbox_id, size.cpu_count, size.memory_mb, self._workload.pull_ms, self._draw_outcome())
        self._truth.begin(decision.node.node_id, sandbox_id, size)
        self._fleet.create(decision.node.node_id, order, self._gateway(sandbox_id, size, decision))
        return True

    def _gateway(self, sandbox_id: str, size: Size, decision: Decision) -> Answer:
        """What the caller of the create does once the node has answered."""
        node_id = decision.node.node_id

        async def answered(runs: bool) -> None:
            if self._ending.told_by_id and decision.reservation is not None:
                reservation_id = decision.reservation.reservation_id
                if runs:
                    await self._surface.confirm(reservation_id, sandbox_id)
                else:
                    await self._surface.cancel(reservation_id, "the node could not create it")
            if not runs:
                self._truth.end(node_id, sandbox_id)
                return
            self._live(node_id, sandbox_id)
            if self._random.random() < self._workload.forks:
                self._agenda.after(self._workload.fleet.boot_ms, fork)

        async def fork() -> None:
            if self._truth.has_room(node_id, size):
                for child in await self._fleet.fork(node_id, sandbox_id, (f"{sandbox_id}-child",)):
                    self._truth.begin(node_id, child.sandbox_id, size, placed=False)
                    self._live(node_id, child.sandbox_id)

        return answered

    def _live(self, node_id: str, sandbox_id: str) -> None:
        """It runs now, and ends after a life of its own."""

        async def end() -> None:
            if await self._fleet.delete(node_id, sandbox_id):
                self._truth.end(node_id, sandbox_id)

        self._agenda.after(round(self._random.expovariate(1 / self._workload.mean_life_ms)), end)

    def _draw_outcome(self) -> Outcome:
        drawn = self._random.random()
        if drawn < self._workload.pull_fails:
            return Outcome.PULL_FAILS
        return Outcome.BOOT_FAILS if drawn < self._workload.pull_fails + self._workload.boot_fails else Outcome.RUNS

    def _restart_one_node(self) -> None:
        node_id = self._random.choice(sorted(self._fleet.nodes))
        for sandbox_id in self._fleet.nodes[node_id].sandboxes:
            self._truth.end(node_id, sandbox_id)
        self._fleet.restart(node_id)

    async def _sample(self) -> _Sample:
        unused = unheld = 0
        for node in await self._surface.nodes():
            beyond = node.pending.cpu_count - self._truth.on_its_way(node.node_id).cpu_count
            unused += max(0, beyond)
            unheld += max(0, -beyond)
        total = self._truth.total_cpu_count
        return _Sample(self._truth.allocated, unused / total, unheld / total)

    def _result(self, virtual_seconds: float) -> LifecycleResult:
        samples = self._samples or [_Sample(self._truth.allocated, 0.0, 0.0)]
        return LifecycleResult(
            ending=self._ending,
            creates=self._created,
            virtual_seconds=virtual_seconds,
            allocated=_mean([sample.allocated for sample in samples]),
            least_allocated=min(sample.allocated for sample in samples),
            held_unused=_mean([sample.held_unused for sample in samples]),
            promised_unheld=_mean([sample.promised_unheld for sample in samples]),
            refused=self._refused,
            refused_with_room=self._refused_with_room,
            refused_by_holding=self._refused_by_holding,
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
