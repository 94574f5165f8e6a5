"""A fleet of simulated nodes: it runs what is placed on it and reports as real nodes do.

Reports. A node reports at its own beat (an offset and an interval, so that the fleet does not
report all at once). With `idle_reports` off, a beat at which nothing has changed is skipped: such a
report would say what the last one said. Two things follow. The ledger must not take the silence
for an outage, so a run with idle reports off is given a `report_ttl` longer than the run. And a
sandbox that came and went between two reports leaves a reservation that only a later report can
settle, so its node goes on reporting for `settle_ms` after that.

Creation. Pulling the image comes first and shows nowhere. Then the VM starts, which the next report
shows as starting and allocated; `boot_ms` later it runs and counts as a success. A node that restarts
loses the creates it was working on: their callers get an error in place of an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from scheduler.domain.limits import MIB
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.lab.clock import Agenda
from scheduler.lab.node import SimulatedNode, SimulatedSandbox
from scheduler.lab.surface import Surface
from scheduler.lab.trace import NodeSpec


class Outcome(StrEnum):
    """What becomes of a create. A failed pull touches no counter of the node."""

    RUNS = "runs"
    PULL_FAILS = "pull_fails"
    BOOT_FAILS = "boot_fails"


@dataclass(frozen=True, slots=True)
class SandboxOrder:
    sandbox_id: str
    cpu_count: int
    memory_mb: int
    pull_ms: int = 0
    outcome: Outcome = Outcome.RUNS


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """`sends_events`: creates, deletes and forks are told one by one, as `ReportSandboxEvent` does."""

    report_interval_ms: int = 5_000
    boot_ms: int = 2_000
    idle_reports: bool = True
    reports_roster: bool = True
    sends_events: bool = False
    settle_ms: int = 20_000


# Told once a create has ended: True when the sandbox runs, False when it never will.
Answer = Callable[[bool], Awaitable[None]]


class Fleet:
    def __init__(self, specs: Iterable[NodeSpec], surface: Surface, agenda: Agenda, options: FleetOptions) -> None:
        self._surface = surface
        self._agenda = agenda
        self._options = options
        self.nodes = {spec.node_id: SimulatedNode(spec, reports_roster=options.reports_roster) for spec in specs}
        self._offset_ms = {
            node_id: index * options.report_interval_ms // len(self.nodes) for index, node_id in enumerate(self.nodes)
        }
        self._awaited: set[str] = set()
        self._attentive_until_ms = dict.fromkeys(self.nodes, 0)

    async def join(self) -> None:
        """Enter the list and report once, everybody, before anything is placed."""
        await self._surface.discover([node.address for node in self.nodes.values()])
        for node in self.nodes.values():
            await self._report(node)

    def create(self, node_id: str, order: SandboxOrder, answer: Answer) -> None:
        """Carry out a placement; `answer` is called when the sandbox runs, or when it never will."""
        node = self.nodes[node_id]
        instance = node.service_instance_id

        async def start_vm() -> None:
            if order.outcome is Outcome.PULL_FAILS or node.service_instance_id != instance:
                await answer(False)
                return
            node.boot(order.sandbox_id, order.cpu_count, order.memory_mb)
            self._expect_report(node)
            self._agenda.after(self._options.boot_ms, finish_boot)

        async def finish_boot() -> None:
            if order.outcome is Outcome.BOOT_FAILS:
                node.fail_boot(order.sandbox_id)
                self._expect_report(node)
                await answer(False)
                return
            runs = node.become_ready(order.sandbox_id)
            self._expect_report(node)
            if runs:
                await self._tell(node, SandboxEventType.CREATE, node.sandboxes[order.sandbox_id])
            await answer(runs)

        self._agenda.after(order.pull_ms, start_vm)

    async def delete(self, node_id: str, sandbox_id: str) -> bool:
        """End a sandbox; False when it is gone already."""
        node = self.nodes[node_id]
        was_reported = sandbox_id in node.reported_ids
        sandbox = node.delete(sandbox_id)
        if sandbox is None:
            return False
        if not was_reported:
            self._attentive_until_ms[node_id] = self._agenda.now_ms + self._options.settle_ms
        self._expect_report(node)
        await self._tell(node, SandboxEventType.DELETE, sandbox)
        return True

    async def fork(self, node_id: str, parent_id: str, child_ids: tuple[str, ...]) -> tuple[SimulatedSandbox, ...]:
        node = self.nodes[node_id]
        children = node.fork(parent_id, child_ids)
        self._expect_report(node)
        for child in children:
            await self._tell(node, SandboxEventType.FORK, child)
        return children

    async def pause(self, node_id: str, sandbox_id: str) -> bool:
        node = self.nodes[node_id]
        paused = node.pause(sandbox_id)
        if paused:
            self._expect_report(node)
            await self._tell(node, SandboxEventType.PAUSE, node.sandboxes[sandbox_id])
        return paused

    async def resume(self, node_id: str, sandbox_id: str) -> bool:
        node = self.nodes[node_id]
        if not node.resume(sandbox_id):
            return False

        async def finish() -> None:
            if node.become_ready(sandbox_id):
                self._expect_report(node)
                await self._tell(node, SandboxEventType.RESUME, node.sandboxes[sandbox_id])

        self._expect_report(node)
        self._agenda.after(self._options.boot_ms, finish)
        return True

    def restart(self, node_id: str) -> None:
        """The node's process starts anew and loses what it ran; its next report shows it."""
        node = self.nodes[node_id]
        node.restart()
        self._expect_report(node)

    def _expect_report(self, node: SimulatedNode) -> None:
        if node.node_id in self._awaited:
            return
        self._awaited.add(node.node_id)

        async def beat() -> None:
            self._awaited.discard(node.node_id)
            await self._report(node)

        self._agenda.at(self._next_beat_ms(node.node_id), beat)

    async def _report(self, node: SimulatedNode) -> None:
        await self._surface.heartbeat(node.heartbeat(self._agenda.now_ms))
        if self._options.idle_reports or self._agenda.now_ms < self._attentive_until_ms[node.node_id]:
            self._expect_report(node)

    def _next_beat_ms(self, node_id: str) -> int:
        interval_ms = self._options.report_interval_ms
        since_beat_ms = (self._agenda.now_ms - self._offset_ms[node_id]) % interval_ms
        return self._agenda.now_ms + interval_ms - since_beat_ms

    async def _tell(self, node: SimulatedNode, event_type: SandboxEventType, sandbox: SimulatedSandbox) -> None:
        if not self._options.sends_events:
            return
        event = SandboxEvent(sandbox.sandbox_id, event_type, sandbox.cpu_count, sandbox.memory_mb * MIB)
        await self._surface.report_events(node.node_id, node.service_instance_id, (event,))
