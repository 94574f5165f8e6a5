"""A gateway: it asks for a place, has the sandbox created there, and tells the ledger what became of it, if it does.

How the ledger learns that is the run's `Ending`; everything else is the same for all of them, drawn from the
same seed: which pulls and boots fail, which sandboxes fork and when each ends.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import CancelCause, Lifecycle
from scheduler.errors import NoNodes, Overloaded, SchedulerError
from scheduler.lab.clock import Agenda, Spread, always
from scheduler.lab.fleet import Answer, Fleet, Outcome, SandboxOrder
from scheduler.lab.judge import Judge
from scheduler.lab.node import Size
from scheduler.lab.surface import Surface, code_of


class Ending(StrEnum):
    """How the ledger learns what became of a placement."""

    EXPLICIT = "explicit"
    NAMED = "named"
    BOTH = "both"
    EVENTS = "events"
    COUNTERS = "counters"

    @property
    def told_by_id(self) -> bool:
        """The gateway confirms or cancels."""
        return self in (Ending.EXPLICIT, Ending.NAMED, Ending.BOTH)

    @property
    def named_beforehand(self) -> bool:
        """The gateway chooses the sandbox's id and says it when it schedules."""
        return self is Ending.NAMED

    @property
    def sends_events(self) -> bool:
        return self in (Ending.BOTH, Ending.EVENTS)


@dataclass(frozen=True, slots=True)
class Fates:
    """What becomes of sandboxes: shares of all creates. A mean life of 0 never ends. A fork comes within
    `fork_after` of the sandbox's start, when it still runs, and has one child."""

    pull: Spread = Spread(50, 500)
    pull_fails: float = 0.0
    boot_fails: float = 0.0
    forks: float = 0.0
    fork_after: Spread = Spread(1_000, 20_000)
    mean_life_ms: int = 60_000

    def shortened(self, factor: float) -> Fates:
        return Fates(
            pull=self.pull.shortened(factor),
            pull_fails=self.pull_fails,
            boot_fails=self.boot_fails,
            forks=self.forks,
            fork_after=self.fork_after.shortened(factor),
            mean_life_ms=round(self.mean_life_ms / factor),
        )


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """`answer_delay`: from what happens at the node until the gateway's confirm or cancel is there."""

    ending: Ending
    fates: Fates = field(default_factory=Fates)
    answer_delay: Spread = always(50)
    seed: int = 1


class Gateway:
    """`placed` counts placements; `unexpected` the calls that failed otherwise than by a refusal, by code."""

    def __init__(self, options: GatewayOptions, fleet: Fleet, surface: Surface, judge: Judge, agenda: Agenda) -> None:
        self._options = options
        self._fleet = fleet
        self._surface = surface
        self._judge = judge
        self._agenda = agenda
        self._random = random.Random(options.seed)
        self._lifecycle = Lifecycle.EXPLICIT if options.ending.told_by_id else Lifecycle.HEARTBEAT
        self._asked = 0
        self.placed = 0
        self.unexpected: Counter[str] = Counter()

    async def place(self, size: Size) -> bool:
        """Ask for one sandbox; False when it was refused."""
        self._asked += 1
        sandbox_id = f"sandbox-{self._asked}"
        hint = Hint(HintKind.COLD_SANDBOX, size.cpu_count, size.memory_mb, images=("registry.invalid/app:1",))
        name = sandbox_id if self._options.ending.named_beforehand else None
        try:
            request = ScheduleRequest(hint=hint, lifecycle=self._lifecycle, sandbox_id=name)
            decision = await self._surface.schedule(request)
        except (NoNodes, Overloaded):
            self._judge.refused(size)
            return False
        except SchedulerError as failure:
            self.unexpected[f"schedule: {code_of(failure)}"] += 1
            return False
        self.placed += 1
        fates = self._options.fates
        order = SandboxOrder(
            sandbox_id, size.cpu_count, size.memory_mb, fates.pull.draw(self._random), self._draw_outcome()
        )
        self._fleet.create(decision.node.node_id, order, self._answer_of(sandbox_id, decision))
        self._judge.placed(decision.node.node_id)
        return True

    def _answer_of(self, sandbox_id: str, decision: Decision) -> Answer:
        """What follows once the node has answered the create."""
        node_id = decision.node.node_id

        async def answered(runs: bool) -> None:
            if runs:
                self._let_live(node_id, sandbox_id)
            if not self._options.ending.told_by_id or decision.reservation is None:
                return
            reservation_id = decision.reservation.reservation_id

            async def tell() -> None:
                try:
                    if runs:
                        await self._surface.confirm(reservation_id, sandbox_id)
                    else:
                        reason = "the node could not create it"
                        await self._surface.cancel(reservation_id, reason, CancelCause.NODE_REFUSED)
                except SchedulerError as failure:
                    call = "confirm" if runs else "cancel"
                    self.unexpected[f"{call}: {code_of(failure)}"] += 1

            self._agenda.after(self._options.answer_delay.draw(self._random), tell)

        return answered

    def _let_live(self, node_id: str, sandbox_id: str) -> None:
        """It runs now; perhaps it forks, and it ends after a life of its own."""
        fates = self._options.fates

        async def fork() -> None:
            for child in await self._fleet.fork(node_id, sandbox_id, (f"{sandbox_id}-child",)):
                self._let_end(node_id, child.sandbox_id)

        self._let_end(node_id, sandbox_id)
        if fates.forks > 0 and self._random.random() < fates.forks:
            self._agenda.after(fates.fork_after.draw(self._random), fork)

    def _let_end(self, node_id: str, sandbox_id: str) -> None:
        if self._options.fates.mean_life_ms == 0:
            return

        async def end() -> None:
            await self._fleet.delete(node_id, sandbox_id)

        self._agenda.after(round(self._random.expovariate(1 / self._options.fates.mean_life_ms)), end)

    def _draw_outcome(self) -> Outcome:
        drawn, fates = self._random.random(), self._options.fates
        if drawn < fates.pull_fails:
            return Outcome.PULL_FAILS
        return Outcome.BOOT_FAILS if drawn < fates.pull_fails + fates.boot_fails else Outcome.RUNS
