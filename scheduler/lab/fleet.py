"""A fleet of simulated nodes: it runs what is placed on it and reports as real nodes do.

Reports. A node reports at its own beat (an offset and an interval, so that the fleet does not
report all at once). With `idle_reports` off, a beat at which nothing has changed is skipped: such a
report would say what the last one said. Three things follow. The ledger must not take the silence
for an outage, so a run with idle reports off is given a `report_ttl` longer than the run. A
sandbox that came and went between two reports leaves a reservation that only a later report can
settle, so its node goes on reporting for `settle_ms` after that. And the ledger must not take the silence for
the node's report interval, by which it judges what is absent: so such reports acknowledge the answer before
them, and two of them prove what two do that come at every beat. A report may be under way for a while
after it was sampled; a late one for seconds. A node waits for its report to arrive, but no longer than
`GIVE_UP_MS`: then it samples anew, and the old report may still arrive afterwards.

Creation. Pulling the image comes first and shows nowhere. Then the VM starts, which the next report
shows as starting and allocated; `boot_ms` later it runs and counts as a success. A node that restarts
loses the creates it was working on: their callers get an error in place of an answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.errors import SchedulerError
from scheduler.lab.clock import Agenda, Spread, always
from scheduler.lab.node import SimulatedNode, SimulatedSandbox, Size
from scheduler.lab.surface import Surface, code_of
from scheduler.lab.trace import NodeSpec

GIVE_UP_MS = 10_000


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
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Every node draws a report interval of its own. `late_reports` is the share of reports that are under way for
    `late_by` instead of `report_delay`. `sends_events`: creates, deletes and forks are told one by one, as
    `ReportSandboxEvent` does; a create when its VM starts or, without `create_events_at_start`, when it runs."""

    report_interval: Spread = always(5_000)
    report_delay: Spread = always(0)
    late_reports: float = 0.0
    late_by: Spread = Spread(2_000, 15_000)
    boot: Spread = always(2_000)
    idle_reports: bool = True
    reports_roster: bool = True
    sends_sequence: bool = True
    sends_events: bool = False
    create_events_at_start: bool = False
    event_delay: Spread = always(0)
    lost_events: float = 0.0
    settle_ms: int = 20_000
    seed: int = 1


# Told once a create has ended: True when the sandbox runs, False when it never will.
Answer = Callable[[bool], Awaitable[None]]


class Fleet:
    def __init__(self, specs: Iterable[NodeSpec], surface: Surface, agenda: Agenda, options: FleetOptions) -> None:
        self._surface = surface
        self._agenda = agenda
        self._options = options
        self._random = random.Random(options.seed)
        tells = {"reports_roster": options.reports_roster, "sends_sequence": options.sends_sequence}
        self.nodes = {spec.node_id: SimulatedNode(spec, **tells) for spec in specs}
        self._interval_ms = {node_id: options.report_interval.draw(self._random) for node_id in self.nodes}
        self._offset_ms = {
            node_id: index * self._interval_ms[node_id] // len(self.nodes) for index, node_id in enumerate(self.nodes)
        }
        self.refused_reports: Counter[str] = Counter()
        self.refused_events: Counter[str] = Counter()
        self._awaited: set[str] = set()
        self._attentive_until_ms = dict.fromkeys(self.nodes, 0)

    async def join(self) -> None:
        """Enter the list and report once, everybody, before anything is placed. Raises what refuses a first report:
        nothing is known of a fleet whose nodes have not reported, so it would be no fleet to judge."""
        await self._surface.discover([node.address for node in self.nodes.values()])
        for node in self.nodes.values():
            heartbeat = node.heartbeat(self._agenda.now_ms)
            await self._surface.heartbeat(heartbeat)
            node.arrived(heartbeat)
            self._expect_next_report(node, self._agenda.now_ms)

    def create(self, node_id: str, order: SandboxOrder, answer: Answer) -> None:
        """Carry out a placement; `answer` is called when the sandbox runs, or when it never will."""
        node = self.nodes[node_id]
        node.coming[order.sandbox_id] = Size(order.cpu_count, order.memory_mb)

        async def start_vm() -> None:
            lost_in_restart = node.coming.pop(order.sandbox_id, None) is None
            if lost_in_restart or order.outcome is Outcome.PULL_FAILS:
                await answer(False)
                return
            node.boot(order.sandbox_id, order.cpu_count, order.memory_mb)
            node.sandboxes[order.sandbox_id].resources = order.resources
            self._expect_report(node)
            self._agenda.after(self._options.boot.draw(self._random), finish_boot)
            if self._options.create_events_at_start:
                await self._tell(node, SandboxEventType.CREATE, node.sandboxes[order.sandbox_id])

        async def finish_boot() -> None:
            if order.outcome is Outcome.BOOT_FAILS:
                node.fail_boot(order.sandbox_id)
                self._expect_report(node)
                await answer(False)
                return
            runs = node.become_ready(order.sandbox_id)
            self._expect_report(node)
            if runs and not self._options.create_events_at_start:
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
        self._agenda.after(self._options.boot.draw(self._random), finish)
        return True

    def restart(self, node_id: str) -> None:
        """The node's process starts anew and loses what it ran; its next report shows it."""
        node = self.nodes[node_id]
        node.restart()
        self._expect_report(node)

    def _expect_report(self, node: SimulatedNode, not_before_ms: int = 0) -> None:
        """At the node's next beat, unless one is expected already."""
        if node.node_id in self._awaited:
            return
        self._awaited.add(node.node_id)

        async def beat() -> None:
            self._awaited.discard(node.node_id)
            await self._report(node)

        self._agenda.at(self._next_beat_ms(node.node_id, max(not_before_ms, self._agenda.now_ms)), beat)

    async def _report(self, node: SimulatedNode) -> None:
        """Sample now; the report arrives when its time under way is over."""
        heartbeat = node.heartbeat(self._agenda.now_ms)
        late = self._options.late_reports > 0 and self._random.random() < self._options.late_reports
        under_way_ms = (self._options.late_by if late else self._options.report_delay).draw(self._random)
        self._expect_next_report(node, self._agenda.now_ms + min(under_way_ms, GIVE_UP_MS))
        if under_way_ms == 0:
            await self._deliver(node, heartbeat)
            return

        async def arrive() -> None:
            await self._deliver(node, heartbeat)

        self._agenda.after(under_way_ms, arrive)

    async def _deliver(self, node: SimulatedNode, heartbeat: Heartbeat) -> None:
        try:
            generation = await self._surface.heartbeat(heartbeat)
        except SchedulerError as refusal:
            self.refused_reports[code_of(refusal)] += 1
        else:
            node.arrived(heartbeat)
            if not self._options.idle_reports and heartbeat.service_instance_id == node.service_instance_id:
                node.acknowledged = generation

    def _expect_next_report(self, node: SimulatedNode, not_before_ms: int) -> None:
        if self._options.idle_reports or self._agenda.now_ms < self._attentive_until_ms[node.node_id]:
            self._expect_report(node, not_before_ms)

    def _next_beat_ms(self, node_id: str, after_ms: int) -> int:
        interval_ms = self._interval_ms[node_id]
        return after_ms + interval_ms - (after_ms - self._offset_ms[node_id]) % interval_ms

    async def _tell(self, node: SimulatedNode, event_type: SandboxEventType, sandbox: SimulatedSandbox) -> None:
        options = self._options
        if not options.sends_events or (options.lost_events > 0 and self._random.random() < options.lost_events):
            return
        instance = node.service_instance_id
        event = SandboxEvent(sandbox.sandbox_id, event_type, sandbox.cpu_count, sandbox.memory_mb * MIB)

        async def arrive() -> None:
            try:
                await self._surface.report_events(node.node_id, instance, (event,))
            except SchedulerError as refusal:  # a node logs that and goes on; nothing is sent again
                self.refused_events[code_of(refusal)] += 1

        if delay_ms := options.event_delay.draw(self._random):
            self._agenda.after(delay_ms, arrive)
        else:
            await arrive()
