"""The straight line of record_heartbeat does what the rest of the script does, and the usual report takes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scheduler.connection.scripts import ScriptLibrary, find_folder
from scheduler.domain.node import DiscoveryState, Heartbeat, HeartbeatResult, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings, NodeResourceLimit
from scheduler.errors import NoNodes, SchedulerError
from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import Ledger
from tests.conftest import OpenLedger
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.upgrade.old_ledger import contents

GIB = 2**30
NODES = ("a", "b", "c")
SETTINGS = LedgerSettings(strategy=Strategy.LEAST_LOADED)
STEPS = 50
SEED = int(os.environ.get("SCHEDULER_TEST_SEED", "0"))


def scripts_with(folder: Path, **changed: str) -> ScriptLibrary:
    """The product's scripts, some files of them replaced."""
    shutil.copytree(find_folder(), folder)
    for name, text in changed.items():
        (folder / f"{name.replace('__', '/')}.lua").write_text(text, encoding="utf-8")
    return ScriptLibrary(folder)


@pytest.fixture
def without_line(tmp_path: Path) -> ScriptLibrary:
    return scripts_with(tmp_path / "lua", inline__straight_report="-- Left out.\n")


def cut_after_line() -> str:
    whole = (find_folder() / "record_heartbeat.lua").read_text(encoding="utf-8")
    head, line, _ = whole.partition('-- @inline "inline/straight_report"\n')
    return f"{head}{line}return redis.error_reply('LEDGER left the line')\n"


@pytest.fixture
def line_alone(tmp_path: Path) -> ScriptLibrary:
    return scripts_with(tmp_path / "lua", record_heartbeat=cut_after_line())


@pytest.fixture
def unchanged_alone(tmp_path: Path) -> ScriptLibrary:
    """The line without what a report may change."""
    return scripts_with(
        tmp_path / "unchanged", record_heartbeat=cut_after_line(), inline__changed_report="if true then break end\n"
    )


class Nodes:
    """What the nodes of one example report, and what else happens to them; everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.reports = {
            name: Heartbeat(name, f"{name}-1", sequence=1, snapshot=NodeSnapshot(NodeStatus.READY, 16, 64 * GIB))
            for name in NODES
        }
        self.keys = 0
        self.open: list[str] = []

    def next_report(self) -> Heartbeat:
        chance, name = self.random.random, self.random.choice(NODES)
        before = self.reports[name]
        if chance() < 0.4:
            self.reports[name] = replace(before, sequence=(before.sequence or 0) + 1)
            return self.reports[name]
        snapshot = before.snapshot
        assert snapshot is not None
        if chance() < 0.4:
            grown = self.random.randint(0, 2)
            snapshot = replace(
                snapshot,
                allocated_cpu=self.random.randint(0, 12),
                allocated_memory_bytes=self.random.randint(0, 48) * GIB,
                sandbox_starting_count=self.random.randint(0, 2),
                sandbox_count=self.random.randint(0, 3),
                paused_sandbox_count=int(chance() < 0.1),
                create_successes=snapshot.create_successes + grown,
                create_fails=snapshot.create_fails + int(chance() < 0.1),
                cpu_percent=self.random.randint(0, 100),
                reported_at_unix_ms=snapshot.reported_at_unix_ms + self.random.choice((0, 5_000, 5_000, -1_000)),
            )
        if chance() < 0.05:
            snapshot = replace(
                snapshot, status=self.random.choice(list(NodeStatus)), cpu_count=self.random.choice((0, 16, 32))
            )
        report = replace(before, sequence=None if chance() < 0.1 else (before.sequence or 0) + 1, snapshot=snapshot)
        if chance() < 0.3:
            ids = [f"{name}-{number}" for number in range(4)]
            report = replace(report, sandbox_ids=self.random.choice((None, (), tuple(self.random.sample(ids, 2)))))
        if chance() < 0.08:
            report = replace(report, labels=self.random.choice(({}, {"zone": "a"})))
        if chance() < 0.04:
            report = replace(report, service_instance_id=f"{name}-{self.random.randint(1, 9)}", sequence=1)
        if report.sequence is None:
            self.reports[name] = replace(report, sequence=before.sequence)
        else:
            self.reports[name] = report
        late = chance() < 0.05
        return replace(report, sequence=(report.sequence or 1) - 1, hung_up=late) if late else report

    def next_request(self) -> ScheduleRequest:
        self.keys += 1
        lifecycle = self.random.choice(list(Lifecycle))
        hint = Hint(HintKind.COLD_SANDBOX, self.random.randint(1, 4), 1024)
        return ScheduleRequest(hint, lifecycle, idempotency_key=f"k{self.keys}", reservation_ttl_ms=20_000)


async def outcome_of(ledger: Ledger, step: Any) -> Any:
    try:
        result = await step(ledger)
    except SchedulerError as error:
        return error.code, error.detail
    return result


def about_a_node(nodes: Nodes) -> Any:
    """What makes a node another than an ordinary one, or an ordinary one again."""
    name, chance = nodes.random.choice(NODES), nodes.random.random()
    instance, cordoned = nodes.reports[name].service_instance_id, chance < 0.2
    if chance < 0.4:
        return lambda ledger: ledger.nodes.cordons.set(name, instance, cordoned=cordoned)
    if chance < 0.5:
        return lambda ledger: ledger.nodes.unregister(name, instance)
    if chance < 0.6:
        return lambda ledger: ledger.bindings.record(f"{name}-0", NodeAddress(name, f"http://{name}:1"))
    state = DiscoveryState.LINGERING if chance < 0.7 else DiscoveryState.ACTIVE
    labels = {"zone": "b"} if chance < 0.85 else {}
    return lambda ledger: ledger.nodes.set(name, f"http://{name}:1", state, labels)


def next_step(nodes: Nodes) -> Any:
    if nodes.random.random() < 0.12:
        return about_a_node(nodes)
    chance = nodes.random.random()
    if chance < 0.75 or not nodes.open:
        report = nodes.next_report()
        return lambda ledger: ledger.nodes.heartbeat(report)
    if chance < 0.85:
        request = nodes.next_request()
        return lambda ledger: ledger.placements.schedule(request)
    reservation_id, sandbox_id = (
        nodes.random.choice(nodes.open),
        f"{nodes.random.choice(NODES)}-{nodes.random.randint(0, 3)}",
    )
    if chance < 0.91:
        return lambda ledger: ledger.reservations.confirm(reservation_id, sandbox_id)
    if chance < 0.95:
        cause = nodes.random.choice(list(CancelCause))
        return lambda ledger: ledger.reservations.cancel(reservation_id, cause=cause)
    node_id = sandbox_id[0]
    event = SandboxEvent(sandbox_id, nodes.random.choice(list(SandboxEventType)), 1, GIB)
    return lambda ledger: ledger.nodes.record_events(node_id, nodes.reports[node_id].service_instance_id, [event])


@pytest.fixture
async def raw(backend: Backend) -> AsyncIterator[Any]:
    client = backend.client()
    yield client
    await client.aclose()


async def kept_by(ledger: Ledger, raw: Any) -> dict[str, Any]:
    """All that is stored, without what the line alone remembers."""
    found = await contents(raw, ledger.keys)
    for name in NODES:
        found.get(f"{ledger.keys.node(name)}", {}).pop("still", None)
    return {key.partition("}")[2]: value for key, value in found.items() if not key.endswith("shared_settings")}


@pytest.mark.parametrize("seed", range(SEED, SEED + 6))
async def test_both_do_the_same_whatever_happens_in_between(
    seed: int, open_ledger_on: OpenLedger, without_line: ScriptLibrary, clock: VirtualClock, raw: Any
) -> None:
    limits = NodeResourceLimit(max_sandbox_count=4) if seed % 6 == 5 else NodeResourceLimit()
    settings = replace(SETTINGS, node_resource_limit=limits, binding_grace_ms=0 if seed % 2 else 15_000)
    with_line, plain = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    plain.client.scripts = without_line
    nodes = Nodes(seed)
    for ledger in (with_line, plain):
        ledger.runner.entropy = lambda: 7
        await ledger.nodes.replace([NodeAddress(name, f"http://{name}:1") for name in NODES], [])
    for number in range(STEPS):
        clock.advance(nodes.random.choice((0, 500, 5_000, 5_000, 40_000)) if nodes.random.random() < 0.9 else 0)
        step = next_step(nodes)
        one, other = await outcome_of(with_line, step), await outcome_of(plain, step)
        assert one == other, f"seed {seed}, step {number}"
        if getattr(one, "reservation", None) is not None:
            nodes.open.append(one.reservation.reservation_id)
        if number % 5 == 4:
            assert await kept_by(with_line, raw) == await kept_by(plain, raw), f"seed {seed}, step {number}"
    assert await recount(with_line) == []


async def test_the_usual_report_takes_it(
    open_ledger_on: OpenLedger, line_alone: ScriptLibrary, clock: VirtualClock
) -> None:
    ledger = await open_ledger_on(SETTINGS)
    await ledger.nodes.replace([NodeAddress("a", "http://a:1")], [])
    report = Heartbeat(
        "a", "a-1", sequence=1, snapshot=NodeSnapshot(NodeStatus.READY, 16, 64 * GIB), sandbox_ids=("s1",)
    )
    await ledger.nodes.heartbeat(report)
    ledger.client.scripts = line_alone
    for sequence in range(2, 40):
        clock.advance(5_000)
        snapshot = NodeSnapshot(
            NodeStatus.READY,
            16,
            64 * GIB,
            allocated_cpu=sequence % 5,
            sandbox_count=sequence % 3,
            create_successes=sequence // 4,
        )
        told = replace(report, sequence=sequence, snapshot=snapshot, sandbox_ids=("s1",) if sequence < 20 else None)
        result = await ledger.nodes.heartbeat(told)
        assert isinstance(result, HeartbeatResult)
        assert not result.stale
    node = await ledger.nodes.get("a")
    assert (node.snapshot.allocated_cpu, node.snapshot.create_successes) == (39 % 5, 39 // 4)


async def test_what_says_nothing_new_is_not_looked_at_again(
    open_ledger_on: OpenLedger, unchanged_alone: ScriptLibrary, clock: VirtualClock
) -> None:
    ledger = await open_ledger_on(SETTINGS)
    await ledger.nodes.replace([NodeAddress("a", "http://a:1")], [])
    whole = ledger.client.scripts
    snapshot = NodeSnapshot(NodeStatus.READY, 16, 64 * GIB, sandbox_count=1, create_successes=1)
    sequence = 0

    async def report(scripts: ScriptLibrary, **changed: Any) -> None:
        nonlocal sequence
        sequence += 1
        clock.advance(5_000)
        ledger.client.scripts = scripts
        told = Heartbeat("a", "a-1", sequence=sequence, snapshot=replace(snapshot, **changed), sandbox_ids=("s1",))
        await ledger.nodes.heartbeat(told)

    for _ in range(3):
        await report(whole)
    await report(unchanged_alone, cpu_percent=7)
    assert (await ledger.nodes.get("a")).snapshot.cpu_percent == 7
    with pytest.raises(SchedulerError):
        await report(unchanged_alone, allocated_cpu=1)
    await report(whole, allocated_cpu=1)
    await report(unchanged_alone, allocated_cpu=1)
    # Placed and cancelled, so that the row is the same again: what the next reports may show is waited for.
    ledger.client.scripts = whole
    hint = Hint(HintKind.COLD_SANDBOX, 1, 1024)
    placed = await ledger.placements.schedule(ScheduleRequest(hint, idempotency_key="k"))
    assert placed.reservation is not None
    await ledger.reservations.cancel(placed.reservation.reservation_id)
    with pytest.raises(SchedulerError):
        await report(unchanged_alone, allocated_cpu=1)


async def two_alike(open_ledger_on: OpenLedger, without_line: ScriptLibrary) -> tuple[Ledger, Ledger]:
    """Two ledgers that list one node: with the line, and without."""
    with_line, plain = await open_ledger_on(SETTINGS, domain="one"), await open_ledger_on(SETTINGS, domain="other")
    plain.client.scripts = without_line
    for ledger in (with_line, plain):
        await ledger.nodes.replace([NodeAddress("a", "http://a:1")], [])
    return with_line, plain


READY = Heartbeat("a", "a-1", snapshot=NodeSnapshot(NodeStatus.READY, 16, 64 * GIB, create_successes=1))


async def test_a_node_that_tells_no_resources_any_more_has_none_once_they_are_configured(
    open_ledger_on: OpenLedger, without_line: ScriptLibrary, clock: VirtualClock
) -> None:
    """While `gpu` is not among the settings the node's row says nothing of it, so it looks like any other."""
    for ledger in await two_alike(open_ledger_on, without_line):
        for sequence, resources in enumerate(({"gpu": ResourceLoad(4, 0)}, {}, {}), 1):
            await ledger.nodes.heartbeat(replace(READY, sequence=sequence, resources=resources))
            clock.advance(5_000)
        await put_settings(ledger, replace(SETTINGS, resources=("gpu",), revision=1))
        while await ledger.settings.refresh():
            pass
        hint = Hint(HintKind.COLD_SANDBOX, 1, 1024, resources={"gpu": 1})
        with pytest.raises(NoNodes):
            await ledger.placements.schedule(ScheduleRequest(hint))
        assert await recount(ledger) == []


async def test_a_report_ends_what_a_fork_of_a_listed_sandbox_explained(
    open_ledger_on: OpenLedger, without_line: ScriptLibrary, clock: VirtualClock, raw: Any
) -> None:
    """Told of before, and of the same size, it changes nothing else of the node's account."""
    ledgers = with_line, plain = await two_alike(open_ledger_on, without_line)
    created, forked = (SandboxEvent("s1", kind, 1, GIB) for kind in (SandboxEventType.CREATE, SandboxEventType.FORK))
    for ledger in ledgers:
        await ledger.nodes.record_events("a", "a-1", [created])
    for sequence in range(1, 5):
        clock.advance(5_000)
        for ledger in ledgers:
            if sequence == 4:
                await ledger.nodes.record_events("a", "a-1", [forked])
            await ledger.nodes.heartbeat(replace(READY, sequence=sequence, sandbox_ids=("s1",)))
    assert await raw.hget(with_line.keys.node("a"), "explained_count") is None
    assert await kept_by(with_line, raw) == await kept_by(plain, raw)
