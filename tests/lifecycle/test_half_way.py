"""Every single command of every script fails once: nothing acknowledged loses its hold, nothing stays held.

Each flow is run again and again, stopped at its first command, its second, and so on until it comes through. After
every stop its caller repeats the call; then all that was acknowledged must fit on the nodes together with whatever
else can still be placed. After one report of each node and `inspect repair` the ledger adds up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Reservation, ReservationState
from scheduler.domain.settings import Admission, GroupSettings, LedgerSettings
from scheduler.errors import NoNodes, NotFound, SchedulerError, ScriptError, WritesRefused
from scheduler.inspection.repair import repair
from scheduler.service import build_services
from scheduler.store.ledger import Ledger
from scheduler.store.nodes import ConfiguredBy
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import REPORT_TTL_MS, Cluster, address, event
from tests.support.backends import Backend
from tests.support.clock import VirtualClock
from tests.support.half_way import stopped

NODES = ("a", "b")
CPUS = 8
# One report in sixteen counts anew even what looks right; most errors do not.
REPORTS_AT_MOST = 64
OPEN = {ReservationState.PENDING, ReservationState.CONFIRMED}


@dataclass
class Story:
    """One ledger, its nodes, and what callers were told."""

    ledger: Ledger
    cluster: Cluster
    acknowledged: dict[str, Reservation] = field(default_factory=dict)
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

    async def promised(self) -> dict[str, int]:
        """CPUs that callers count on, by node: acknowledged, and open by what the ledger says."""
        cpus = dict.fromkeys(NODES, 0)
        for reservation_id in self.acknowledged:
            try:
                found = await self.ledger.reservations.get(reservation_id)
            except NotFound:
                continue
            if found.state in OPEN:
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
    """`prepare` runs untouched, `act` is stopped. `script` is where it is stopped."""

    name: str
    script: str
    act: Callable[[Story], Awaitable[object]]
    prepare: Callable[[Story], Awaitable[object]] | None = None
    strategy: Strategy = Strategy.LEAST_LOADED
    # A node that has not reported since takes whatever comes.
    reports_first: bool = False


async def placed(story: Story) -> None:
    await story.place("first")


async def confirmed(story: Story) -> None:
    await story.cluster.confirm(await story.place("first"))


async def due(story: Story) -> None:
    await story.place("first", reservation_ttl_ms=1_000)
    story.cluster.wait(1_000)


async def expired(story: Story) -> None:
    await due(story)
    await story.cluster.sweep()


async def listed(story: Story) -> None:
    reservation = await story.place("first")
    await story.cluster.confirm(reservation)
    story.running[reservation.node_id] = ("s1",)
    story.reported_cpus[reservation.node_id] = 2


def first(story: Story) -> Reservation:
    return next(iter(story.acknowledged.values()))


async def remove_and_bring_back(story: Story) -> None:
    node_id = first(story).node_id
    await story.ledger.nodes.remove(node_id)
    await story.cluster.discover(node_id)


async def configured(story: Story) -> None:
    await placed(story)
    await story.ledger.nodes.configure([address(first(story).node_id)], ConfiguredBy("replica", 1))


async def leave_the_file_and_return(story: Story) -> None:
    await story.ledger.nodes.configure((), ConfiguredBy("replica", 2))
    await story.ledger.nodes.configure([address(first(story).node_id)], ConfiguredBy("replica", 2))


FLOWS = [
    Flow("schedule", "schedule_sandbox", lambda story: story.place("acted")),
    Flow("schedule a second", "schedule_sandbox", lambda story: story.place("acted"), placed),
    Flow("schedule in turn", "schedule_sandbox", lambda story: story.place("acted"), placed, Strategy.ROUND_ROBIN),
    Flow("schedule by chance", "schedule_sandbox", lambda story: story.place("acted"), placed, Strategy.RANDOM),
    Flow(
        "schedule in a group", "schedule_sandbox", lambda story: story.place("acted"), placed,
        Strategy.GROUPED_ROUND_ROBIN,
    ),
    Flow("schedule what is due", "schedule_sandbox", lambda story: story.place("acted"), due),
    Flow("confirm", "confirm_reservation", lambda story: story.cluster.confirm(first(story)), placed),
    Flow("confirm late", "confirm_reservation", lambda story: story.cluster.confirm(first(story)), expired),
    Flow("confirm what is due", "confirm_reservation", lambda story: story.cluster.confirm(first(story)), due),
    Flow("cancel", "cancel_reservation", lambda story: story.cluster.cancel(first(story)), placed),
    Flow("renew", "renew_reservation", lambda story: story.cluster.renew(first(story)), placed),
    Flow("sweep", "sweep_ledger", lambda story: story.cluster.sweep(), due),
    Flow("report", "record_heartbeat", lambda story: story.report(), placed),
    Flow("report a sandbox", "record_heartbeat", lambda story: story.report(), listed),
    Flow(
        "tell of a create", "record_events",
        lambda story: story.cluster.tell(first(story).node_id, event("create", "s1", 2, 64)), placed,
    ),
    Flow(
        "tell of a delete", "record_events",
        lambda story: story.cluster.tell(first(story).node_id, event("delete", "s1")), confirmed,
    ),
    Flow("record a binding", "record_binding", lambda story: story.cluster.record("s2"), placed),
    Flow("a node leaves and returns", "set_nodes", remove_and_bring_back, placed, reports_first=True),
    Flow(
        "a node leaves the file and returns", "configure_nodes", leave_the_file_and_return, configured,
        reports_first=True,
    ),
    Flow("read the nodes", "read_nodes", lambda story: story.ledger.nodes.list(), due),
]  # fmt: skip


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
    return [str(finding) for finding in (await repair(story.ledger, apply=False)).found if finding.rule == "pending"]


async def judge(story: Story, flow: Flow) -> None:
    await act(story, flow)
    if flow.reports_first:
        await story.report()
    await story.fill()
    promised = await story.promised()
    for node_id in NODES:
        assert promised[node_id] + story.reported_cpus[node_id] <= CPUS, f"{node_id} holds {promised[node_id]} CPUs"
    await story.report()
    await story.report()
    story.cluster.wait(REPORT_TTL_MS // 2)
    await story.cluster.sweep()
    await story.report()
    for _ in range(REPORTS_AT_MOST):
        if not await unhealed(story):
            break
        await story.report()
    assert not await unhealed(story), "what is held comes right with reports, without a repair"
    mended = await repair(story.ledger, apply=True)
    assert not mended.left, [str(finding) for finding in mended.left]
    assert (await story.ledger.settings.stats()).get("rows_rebuilt", 0) == 0
    promised = await story.promised()
    for node_id in NODES:
        assert promised[node_id] + story.reported_cpus[node_id] <= CPUS


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
async def test_every_command_may_fail_once(
    flow: Flow, open_ledger_on: OpenLedger, backend: Backend, clock: VirtualClock
) -> None:
    settings = LedgerSettings(
        strategy=flow.strategy,
        admission=Admission.ALWAYS,
        groups=GroupSettings(max_sandbox_count=3),
        report_ttl_ms=REPORT_TTL_MS,
    )
    # The embedded ledger takes its time to compile; there every third command tells the same.
    step = 1 if backend.name == "real" else 3
    for failing in count(1, step):
        ledger = await open_ledger_on(settings, domain=f"d{failing}")
        story = await start(ledger, clock)
        if flow.prepare is not None:
            await flow.prepare(story)
        with stopped(ledger.client, flow.script, failing):
            try:
                await flow.act(story)
            except WritesRefused:
                pass
            except SchedulerError as other:
                pytest.fail(f"{flow.script} at {failing}: {other!r}")
            else:
                break
        ledger.client.writes_refused = None
        try:
            await judge(story, flow)
        except AssertionError as wrong:
            raise AssertionError(f"{flow.script} stopped at its command number {failing}: {wrong}") from wrong
    assert failing > 1
