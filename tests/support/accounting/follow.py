"""Asks a real ledger what the model's ledger is asked, and compares what both hold, believe and bind."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from scheduler import errors
from scheduler.domain.limits import MIB
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger as RealLedger
from tests.support.accounting import ledger as calls
from tests.support.accounting import reports
from tests.support.accounting.ledger import Ledger, believed, held
from tests.support.accounting.life import Step, next_steps
from tests.support.accounting.reports import Report
from tests.support.accounting.rules import NEXT, Size
from tests.support.accounting.world import Features, beginning, sandbox, size_of
from tests.support.clock import VirtualClock

NODE = NodeAddress("n", "http://n:8000")
CPUS = 64
MEMORY_MB_EACH = 1024  # of memory go with each CPU where sizes have one dimension
INTERVAL_MS = 10_000
HOUR_MS = 3_600_000
# A sandbox that is always there, so that no roster is empty: those are read by counters, as in 0.1.
STRANGER = "stranger"
SETTINGS = LedgerSettings(
    strategy=Strategy.LEAST_LOADED,
    report_ttl_ms=HOUR_MS,
    binding_ttl_ms=24 * HOUR_MS,
    placement_reservation_ttl_ms=24 * HOUR_MS,
)


def walk(features: Features, seed: int, steps: int) -> list[Step]:
    """A random story of the model; each step that asks something of the ledger is as likely as all others."""
    random, world, taken = Random(seed), beginning(features), list[Step]()
    for _ in range(steps):
        choices = [step for step in next_steps(features, NEXT, world) if _can_be_asked(step)]
        if not choices:
            break
        asking = [step for step in choices if step.call]
        step = random.choice(asking if asking and random.random() < 0.5 else choices)
        taken.append(step)
        world = step.world
    return taken


def _can_be_asked(step: Step) -> bool:
    """A deadline that comes is made a short one, and with it the time in which the create may still begin."""
    return not step.said.endswith("can begin no more")


class Follower:
    """The model's ledger and a real one, side by side."""

    def __init__(self, features: Features, real: RealLedger, clock: VirtualClock) -> None:
        self.features, self.real, self.clock = features, real, clock
        self.model: Ledger = beginning(features).ledger
        self.ids: dict[str, str] = {}
        self.unbound: set[str] = set()  # confirmed, and judged on though their node has unregistered

    async def begin(self) -> None:
        await self.real.nodes.set(NODE.node_id, NODE.endpoint, DiscoveryState.ACTIVE)
        nothing = Report("i1", 0, frozenset(), (0,) * len(self.model.zero))
        await self._heartbeat(nothing)

    async def ask(self, step: Step) -> None:
        if step.call:
            await getattr(self, "_" + step.call[0])(*step.call[1:])

    # Callers

    async def _schedule(self, index: int) -> None:
        size, lifecycle = self.features.sizes[index], Lifecycle(self.features.lifecycle(index))
        name = f"r{index + 1}"
        named = sandbox(index) if index < self.features.named else ""
        cpu, memory_mb = _figures(size)
        request = ScheduleRequest(
            Hint(HintKind.COLD_SANDBOX, cpu_count=cpu, memory_mb=memory_mb),
            lifecycle=lifecycle,
            sandbox_id=named or None,
        )
        decision = await self.real.placements.schedule(request)
        assert decision.reservation is not None
        self.ids[name] = decision.reservation.reservation_id
        made = calls.schedule(self.model, name, size, lifecycle.value, named)
        assert made is not None
        self.model = made

    async def _confirm(self, name: str, sandbox_id: str) -> None:
        confirmed = calls.confirm(self.model, NEXT, name, sandbox_id, self.clock.now_ms)
        try:
            await self.real.reservations.confirm(self.ids[name], sandbox_id)
        except errors.Conflict:
            assert confirmed is None, f"confirm {name} is a conflict"
            return
        assert confirmed is not None, f"confirm {name} should be a conflict"
        self.model = confirmed

    async def _cancel(self, name: str, known: bool) -> None:
        cause = CancelCause.NODE_REFUSED if known else CancelCause.CALLER
        await self.real.reservations.cancel(self.ids[name], cause=cause)
        self.model = calls.cancel(self.model, name, known)

    async def _expire(self, name: str) -> None:
        await self.real.reservations.renew(self.ids[name], 1)
        self.clock.advance(2)
        self.model = calls.doubt_is_over(calls.expire(self.model, name), name)

    async def _assign(self, sandbox_id: str) -> None:
        await self.real.bindings.record(sandbox_id, NODE)
        self.model = calls.assign(self.model, sandbox_id, self.clock.now_ms)

    # The node

    async def _report(self, report: Report) -> None:
        self.clock.advance(INTERVAL_MS)
        stale = await self._heartbeat(report)
        assert stale == reports.is_stale(self.model, NEXT, report), report
        if stale and report.instance != self.model.instance:
            await self._is_ignored(report.instance)
        report = report._replace(acknowledged=-1)
        self.model = reports.accept(self.model, NEXT, report, self.clock.now_ms)

    async def _is_ignored(self, instance: str) -> None:
        """What else a process says that another has replaced: nothing changes until that one is silent."""
        if self.model.instance and not self.model.silent:
            late = SandboxEvent(STRANGER, SandboxEventType.DELETE, 0, 0)
            assert not await self.real.nodes.record_events(NODE.node_id, instance, [late])
        if self.model.instance:
            with pytest.raises(errors.InstanceMismatch):
                await self.real.nodes.unregister(NODE.node_id, instance)

    async def _unregister(self, instance: str) -> None:
        try:
            await self.real.nodes.unregister(NODE.node_id, instance)
        except errors.InstanceMismatch:
            assert instance != self.model.instance
        self.model = reports.unregistered(self.model, instance)
        if not self.model.instance:
            self.unbound |= {record.sandbox for record in reports.confirmed_records(self.model)}

    async def _silent(self) -> None:
        self.clock.advance(SETTINGS.report_ttl_ms + 1)
        self.model = self.model._replace(silent=True)

    async def _heartbeat(self, report: Report) -> bool:
        cpu, memory_mb = _figures(report.load)
        snapshot = NodeSnapshot(
            status=NodeStatus.READY,
            cpu_count=CPUS,
            memory_total_bytes=CPUS * MEMORY_MB_EACH * MIB,
            allocated_cpu=cpu,
            allocated_memory_bytes=memory_mb * MIB,
            sandbox_count=len(report.roster) + 1 - report.starting - report.paused,
            paused_sandbox_count=report.paused,
            sandbox_starting_count=report.starting,
            create_successes=report.successes,
            create_fails=report.fails,
            reported_at_unix_ms=1,
        )
        more: dict[str, Any] = {"hung_up": True} if report.given_up else {}
        result = await self.real.nodes.heartbeat(
            Heartbeat(
                NODE.node_id,
                report.instance,
                snapshot=snapshot,
                sequence=report.sequence + 1,
                sandbox_ids=(STRANGER, *sorted(report.roster)),
                **more,
            ),
            None,
        )
        return result.stale

    async def _event(self, kind: str, sandbox_id: str) -> None:
        size = size_of(self.features, sandbox_id)
        cpu, memory_mb = _figures(size)
        event = SandboxEvent(sandbox_id, SandboxEventType(kind), cpu, memory_mb * MIB)
        await self.real.nodes.record_events(NODE.node_id, "i1", [event])
        if kind == "create":
            self.model = reports.created(self.model, NEXT, sandbox_id, size, self.clock.now_ms)
        elif kind == "delete":
            self.model = reports.deleted(self.model, NEXT, sandbox_id)
        elif kind == "fork":
            self.model = reports.forked(self.model, sandbox_id, size)
        else:
            told = reports.paused if kind == "pause" else reports.resumed
            self.model = told(self.model, sandbox_id)

    # What must be equal

    async def compare(self) -> None:
        node = await self.real.nodes.get(NODE.node_id)
        cpu, memory_mb = _figures(held(self.model, NEXT))
        assert (node.pending.cpu_count, node.pending.memory_bytes) == (cpu, memory_mb * MIB), "held"
        cpu, memory_mb = _figures(believed(self.model, NEXT))
        if self.model.instance:
            assert node.pressure is not None
            assert node.pressure.cpu == cpu / CPUS, f"believed {cpu} of {CPUS} CPUs, found pressure {node.pressure.cpu}"
            assert node.pressure.memory == memory_mb / (CPUS * MEMORY_MB_EACH), "believed memory"
        for name, reservation_id in self.ids.items():
            expected = self.model.reservation(name)
            found = await self.real.reservations.get(reservation_id)
            assert found.state.value == expected.state, f"{name} is {found.state.value}, {found.reason}: {expected}"
        for record in self.model.records:
            if record.told and record.sandbox not in self.unbound and await self._is_unbound(record.sandbox):
                raise AssertionError(f"{record.sandbox} has no binding")

    async def _is_unbound(self, sandbox_id: str) -> bool:
        if sandbox_id in self.model.deleted:
            return False
        if any(
            r.sandbox == sandbox_id and r.state in ("pending", "cancelled", "expired") for r in self.model.reservations
        ):
            return False  # named in a schedule, and nobody said that it runs
        try:
            await self.real.bindings.lookup(sandbox_id)
        except errors.NotFound:
            return True
        return False


def _figures(size: Size) -> tuple[int, int]:
    """CPUs and MiB; of one dimension memory goes with the CPUs."""
    return size[0], size[-1] * MEMORY_MB_EACH


async def follow(features: Features, real: RealLedger, clock: VirtualClock, steps: list[Step]) -> None:
    """AssertionError tells the story up to where the two part."""
    follower = Follower(features, real, clock)
    await follower.begin()
    told: list[str] = []
    for step in steps:
        told.append(step.said)
        try:
            await follower.ask(step)
            if step.call:
                await follower.compare()
        except AssertionError as failure:
            lines = "\n".join(f"  {number}. {said}" for number, said in enumerate(told, 1))
            raise AssertionError(f"{features}\n{lines}\n  => {failure}\n{follower.model}") from failure
