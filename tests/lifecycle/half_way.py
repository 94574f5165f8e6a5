"""A ledger whose scripts stop at any one command, and what must hold after every such stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Reservation, ReservationState
from scheduler.domain.settings import Admission, GroupSettings, LedgerSettings
from scheduler.errors import NoNodes, NotFound, SchedulerError, ScriptError, WritesRefused
from scheduler.inspection.finding import Finding, findings_in
from scheduler.inspection.recount import Look, check
from scheduler.inspection.repair import repair
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import REPORT_TTL_MS, Cluster
from tests.support.backends import Backend
from tests.support.clock import VirtualClock
from tests.support.half_way import Stop, StoppingLibrary, stopped

NODES = ("a", "b")
CPUS = 4
# One report in sixteen counts anew even what looks right; most errors do not.
REPORTS_AT_MOST = 64
OPEN = {ReservationState.PENDING, ReservationState.CONFIRMED}


@dataclass
class Story:
    """One ledger, its nodes, and what callers were told."""

    ledger: Ledger
    cluster: Cluster
    acknowledged: dict[str, Reservation] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # what a node says in its reports beside its figures
    running: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(NODES, ()))
    reported_cpus: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))

    async def place(self, key: str, cpu_count: int = 2, **request: object) -> Reservation:
        reservation = await self.cluster.place(cpu_count, 64, idempotency_key=key, **request)
        self.acknowledged[reservation.reservation_id] = reservation
        return reservation

    async def report(self) -> None:
        for node_id in NODES:
            try:
                await self.cluster.report(
                    node_id,
                    self.running[node_id],
                    allocated_cpu=self.reported_cpus[node_id],
                    sandbox_count=len(self.running[node_id]),
                )
            except NotFound:
                continue  # not discovered now

    async def reserved(self) -> dict[str, int]:
        """CPUs that callers count on, by node: acknowledged, and open by what the ledger says."""
        cpus = dict.fromkeys(NODES, 0)
        for reservation_id in self.acknowledged:
            try:
                found = await self.ledger.reservations.get(reservation_id)
            except NotFound:
                continue
            # What its node runs is in the load that it reports.
            if found.state in OPEN and found.sandbox_id not in self.running[found.node_id]:
                cpus[found.node_id] += found.held_cpu_count
        return cpus

    async def fill(self) -> None:
        for number in range(2 * len(NODES) * CPUS):
            try:
                await self.place(f"fill-{number}", 1)
            except NoNodes:
                return
        pytest.fail("the nodes are never full")


async def start(ledger: Ledger, clock: VirtualClock) -> Story:
    story = Story(ledger, Cluster(build_services(ledger), clock))
    for node_id in NODES:
        await story.cluster.add(node_id, cpu_count=CPUS)
    return story


@dataclass(frozen=True)
class Flow:
    """`prepare` runs untouched, `act` is stopped. `script` is where it is stopped, the `run`-th time that it runs.

    `holds`: what must be true once the call was repeated, and once everything was repaired. `bounds`: numbers of the
    scripts' own, made small so that few things are many. `places` False: nothing of this touches what nodes hold."""

    name: str
    script: str
    act: Callable[[Story], Awaitable[object]]
    prepare: Callable[[Story], Awaitable[object]] | None = None
    strategy: Strategy = Strategy.LEAST_LOADED
    # A node that has not reported since takes whatever comes.
    reports_first: bool = False
    run: int = 1
    holds: Callable[[Story], Awaitable[object]] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    places: bool = True


async def act(story: Story, flow: Flow) -> None:
    """As its caller would, who knows what a refusal means. A defect is none."""
    try:
        await flow.act(story)
    except ScriptError as defect:
        pytest.fail(f"{flow.name}: {defect.detail}")
    except SchedulerError:
        return


async def unhealed(story: Story) -> list[str]:
    """Rows that hold something else than their open reservations do."""
    rows = await story.ledger.client.command("HKEYS", story.ledger.keys.loads)
    found: list[Finding] = []
    for row in rows:
        status, reply = await story.ledger.runner.run("recount_node", codec.text(row))
        found += findings_in(reply) if status == "recounted" else []
    return [str(finding) for finding in found if finding.rule == "pending"]


async def judge(story: Story, flow: Flow, *, repeated: bool) -> None:
    """`repeated`: the caller calls again. One that is gone leaves nothing that a repair cannot bring right either."""
    # Whoever looks, or counts anew, is answered.
    await story.ledger.nodes.list()
    await Look(story.ledger).everything()
    if repeated:
        await act(story, flow)
        if flow.holds is not None:
            await flow.holds(story)
    # A node that is to be put on the list, and whose report is refused until somebody does, takes whatever comes.
    if flow.places and (repeated or not flow.reports_first):
        await judge_holds(story, flow)
    repaired = await repair(story.ledger, apply=True)
    assert not repaired.left, [str(finding) for finding in repaired.left]
    if repeated and flow.holds is None:
        return  # nothing came after the count that ends a repair
    if not repeated:
        await act(story, flow)
    if flow.holds is not None:
        await flow.holds(story)
    wrong = (await check(story.ledger)).violations
    assert not wrong, [str(finding) for finding in wrong]


async def judge_holds(story: Story, flow: Flow) -> None:
    if flow.reports_first:
        await story.report()
    await story.fill()
    reserved = await story.reserved()
    for node_id in NODES:
        assert reserved[node_id] + story.reported_cpus[node_id] <= CPUS, f"{node_id} holds {reserved[node_id]} CPUs"
    await story.report()
    await story.report()
    story.cluster.wait(REPORT_TTL_MS // 2)
    await story.cluster.sweep()
    await story.report()
    for _ in range(REPORTS_AT_MOST):
        if not await unhealed(story):
            break
        await story.report()
    else:
        assert not await unhealed(story), "what is held comes right with reports, without a repair"
    assert (await story.ledger.settings.stats()).get("rows_rebuilt", 0) == 0, "a row could not be read"


def settings_of(flow: Flow) -> LedgerSettings:
    return LedgerSettings(
        **{
            "strategy": flow.strategy,
            "admission": Admission.ALWAYS,
            "groups": GroupSettings(max_sandbox_count=3),
            "report_ttl_ms": REPORT_TTL_MS,
            **flow.settings,
        }
    )


async def stop_everywhere(
    flow: Flow,
    open_ledger_on: OpenLedger,
    backend: Backend,
    clock: VirtualClock,
    *,
    step: int = 1,
    callers: tuple[bool, ...] = (True,),
) -> None:
    """Stops the flow at each of its commands (each `step`-th), on an empty store each time, since a check looks at all
    keys there are. `callers`: whether the caller repeats the call, by turns."""
    repeats = cycle(callers)
    for failing in count(1, step):
        await backend.flush()
        ledger = await open_ledger_on(settings_of(flow), domain=f"d{failing}")
        if flow.bounds:
            ledger.client.scripts = StoppingLibrary(flow.bounds)
        story = await start(ledger, clock)
        if flow.prepare is not None:
            await flow.prepare(story)
        async with stopped(ledger.client, Stop(flow.script, failing, flow.run), flow.bounds):
            try:
                await flow.act(story)
            except WritesRefused:
                pass
            except SchedulerError as other:
                pytest.fail(f"{flow.script} at {failing}: {other!r}")
        if ledger.client.refusals.writes_refused is None:
            break
        ledger.client.refusals.writes_refused = None
        try:
            await judge(story, flow, repeated=next(repeats))
        except AssertionError as wrong:
            raise AssertionError(f"{flow.script} stopped at its command number {failing}: {wrong}") from wrong
    assert failing > 1, "the script was never run"
