"""Resources beside CPUs and memory: any name, from configuration alone."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.domain.node import DiscoveryState, DiskMetric, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, OverLimit, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import Admission, GroupSettings, LedgerSettings, NodeResourceLimit
from scheduler.errors import InvalidRequest, NoNodes
from scheduler.inspection.recount import recount
from scheduler.inspection.repair import repair
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

FPGA = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, resources=("fpga", "gpu"))
Asked = dict[str, int]


async def node(ledger: Ledger, node_id: str, sandbox_ids: tuple[str, ...] | None = None, **loads: Any) -> None:
    """A node of 64 CPUs reports; `disks` are metrics, the rest (total, allocated)."""
    if node_id not in {address.node_id for address in await ledger.nodes.addresses()}:
        await ledger.nodes.set(node_id, f"http://{node_id}", DiscoveryState.ACTIVE)
    snapshot = NodeSnapshot(NodeStatus.READY, 64, 2**37, disks=loads.pop("disks", ()))
    resources = {name: ResourceLoad(*load) for name, load in loads.items()}
    await ledger.nodes.heartbeat(
        Heartbeat(node_id, "one", snapshot=snapshot, sandbox_ids=sandbox_ids, resources=resources)
    )


def asking(amounts: Asked, **more: Any) -> ScheduleRequest:
    return ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64, images=("app",), resources=amounts), **more)


async def placed(ledger: Ledger, amounts: Asked, **more: Any) -> tuple[str, str]:
    decision = await ledger.placements.schedule(asking(amounts, **more))
    assert decision.reservation is not None
    assert decision.reservation.resources == amounts
    return decision.node.node_id, decision.reservation.reservation_id


async def refused(ledger: Ledger, amounts: Asked, **more: Any) -> dict[str, int]:
    with pytest.raises(NoNodes) as refusal:
        await ledger.placements.schedule(asking(amounts, **more))
    return refusal.value.reasons


async def pending(ledger: Ledger, node_id: str, name: str) -> int:
    found = (await ledger.nodes.get(node_id)).resources
    return found[name].pending if name in found else 0


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_configured_name_is_admitted_under_every_strategy(
    strategy: Strategy, ledger: Ledger, backend: Backend
) -> None:
    await put_settings(ledger, LedgerSettings(strategy=strategy, resources=("fpga",), revision=1))
    for number in range(3):
        await node(ledger, f"n{number}", **({"fpga": (2, 1)} if number == 1 else {"fpga": (0, 0)} if number else {}))
    assert (await placed(ledger, {"fpga": 1}))[0] == "n1"
    assert await refused(ledger, {"fpga": 1}) == {"insufficient_fpga": 3}
    assert {(await placed(ledger, {"fpga": 0}))[0], (await placed(ledger, {"disk": 2**50}))[0]} <= {"n0", "n1", "n2"}
    explained = await ledger.placements.explain(asking({"fpga": 1}))
    assert [each.reason for each in explained.nodes] == ["insufficient_fpga"] * 3
    full, none = OverLimit("fpga", 1, 1, 1, 2), OverLimit("fpga", 0, 0, 1, 0)
    assert [each.over_limit for each in explained.nodes] == [none, full, none]
    with pytest.raises(NoNodes) as refusal:
        await ledger.placements.schedule(asking({"fpga": 1}))
    assert explained.over_limit == full, "none has one free, and this one has them at all"
    assert refusal.value.facts["over_limit"] == asdict(full)
    with pytest.raises(InvalidRequest, match=r"hint\.resources"):
        await ledger.placements.schedule(asking({"gpu": 1}))
    await assert_ledger_is_sound(ledger)


@FPGA
async def test_what_a_reservation_holds_is_free_with_each_of_its_ends(ledger: Ledger, clock: VirtualClock) -> None:
    await node(ledger, "a", (), fpga=(4, 0), gpu=(9, 0))

    async def left() -> int:
        await assert_ledger_is_sound(ledger)
        return 4 - await pending(ledger, "a", "fpga")

    _, cancelled = await placed(ledger, {"fpga": 3, "gpu": 1})
    assert await refused(ledger, {"fpga": 2}) == {"insufficient_fpga": 1}
    assert await left() == 1
    await ledger.reservations.cancel(cancelled)
    assert await left() == 4
    _, expired = await placed(ledger, {"fpga": 2}, reservation_ttl_ms=1_000)
    clock.advance(1_001)
    assert (await ledger.reservations.get(expired)).state is ReservationState.EXPIRED
    assert await left() == 4
    await ledger.reservations.confirm(expired, "s-late")
    assert await left() == 2
    await node(ledger, "a", ("s-late",), fpga=(4, 2))
    assert await left() == 4
    assert await refused(ledger, {"fpga": 3}) == {"insufficient_fpga": 1}
    _, confirmed = await placed(ledger, {"fpga": 1})
    await ledger.reservations.confirm(confirmed, "s-2")
    assert await left() == 3
    await ledger.nodes.record_events("a", "one", [SandboxEvent("s-2", SandboxEventType.DELETE)])
    assert await left() == 4
    await placed(ledger, {"fpga": 1}, lifecycle=Lifecycle.HEARTBEAT)
    await ledger.nodes.remove("a")
    await node(ledger, "a", fpga=(4, 3))
    assert await left() == 3
    assert await refused(ledger, {"fpga": 1}) == {"insufficient_fpga": 1}
    await ledger.client.command("HSET", ledger.keys.loads, "a", "nonsense")
    assert await refused(ledger, {"fpga": 1}) == {"insufficient_fpga": 1}
    assert await left() == 3


@FPGA
async def test_disks_count_each_device_once_and_fit_where_nobody_reports_any(ledger: Ledger) -> None:
    disk = DiskMetric("/", "vda", "ext4", used_bytes=60, total_bytes=100)
    await node(
        ledger, "a", disks=(disk, DiskMetric("/bound", "vda", "ext4", 60, 100), DiskMetric("/b", "vdb", "", 0, 10))
    )
    assert (await ledger.nodes.get("a")).resources == {"disk": ResourceLoad(110, 60)}
    await placed(ledger, {"disk": 50})
    assert await refused(ledger, {"disk": 1}) == {"insufficient_disk": 1}
    await node(ledger, "b")
    assert (await placed(ledger, {"disk": 10**12}))[0] == "b"
    assert await pending(ledger, "b", "disk") == 10**12
    await placed(ledger, {"disk": 2**53 - 1 - 10**12})
    assert await refused(ledger, {"disk": 1}) == {"insufficient_disk": 2}, "beyond 2^53 - 1 no sum is exact"
    await assert_ledger_is_sound(ledger)


@FPGA
async def test_a_refusal_among_many_nodes_without_it_is_proven_and_the_one_left_is_found(ledger: Ledger) -> None:
    for number in range(90):
        await node(ledger, f"n{number:02}", fpga=(1, int(number != 77)), disks=(DiskMetric("/", "a", "", 5, 6),))
    assert (await placed(ledger, {"fpga": 1, "disk": 1}))[0] == "n77"
    assert await refused(ledger, {"fpga": 1}) == {"insufficient_fpga": 90}
    assert await refused(ledger, {"disk": 2}) == {"insufficient_disk": 90}
    await ledger.nodes.set("unheard", "http://unheard", DiscoveryState.ACTIVE)
    assert (await placed(ledger, {"disk": 2}))[0] == "unheard"
    await assert_ledger_is_sound(ledger)


@pytest.mark.parametrize("strategy", [Strategy.LEAST_LOADED, Strategy.MOST_LOADED, Strategy.ROUND_ROBIN])
async def test_more_nodes_than_are_judged_that_are_short_of_disk_are_told_as_that(
    strategy: Strategy, ledger: Ledger
) -> None:
    await put_settings(ledger, LedgerSettings(strategy=strategy, revision=1))
    names = [f"n{number:03}" for number in range(259)]
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}") for name in names[2:]], [])
    for name in names[2:]:
        snapshot = NodeSnapshot(NodeStatus.READY, 4, 2**37, disks=(DiskMetric("/", "a", "", 0, 10),))
        await ledger.nodes.heartbeat(Heartbeat(name, "one", snapshot=snapshot))
    with pytest.raises(NoNodes) as refusal:
        await ledger.placements.schedule(asking({"disk": 11}))
    assert refusal.value.reasons == {"insufficient_disk": 257}
    assert refusal.value.facts["over_limit"] == asdict(OverLimit("disk", 0, 0, 11, 10))
    for name, state in (("n000", DiscoveryState.ACTIVE), ("n001", DiscoveryState.LINGERING)):
        await ledger.nodes.set(name, f"http://{name}", state)
    assert (await placed(ledger, {"disk": 11}))[0] == "n000", "of which it is not known"
    for name in names:
        await ledger.nodes.set(name, f"http://{name}", DiscoveryState.LINGERING)
    assert await refused(ledger, {"disk": 11}) == {"lingering": 259}
    await assert_ledger_is_sound(ledger)


@FPGA
async def test_other_settings_change_what_counts_and_keep_what_is_held(ledger: Ledger) -> None:
    await node(ledger, "a", fpga=(2, 0), tpu=(1, 0))
    await placed(ledger, {"fpga": 1})
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED, resources=("tpu",), revision=2))
    await placed(ledger, {"tpu": 1})
    assert (await ledger.nodes.get("a")).resources == {"fpga": ResourceLoad(0, 0, 1), "tpu": ResourceLoad(1, 0, 1)}
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED, resources=("fpga",), revision=3))
    await placed(ledger, {"fpga": 1})
    assert await refused(ledger, {"fpga": 1}) == {"insufficient_fpga": 1}
    await assert_ledger_is_sound(ledger)


@FPGA
async def test_what_is_left_of_a_resource_is_found_and_repaired(ledger: Ledger) -> None:
    for node_id, fpgas in (("a", (3, 0)), ("b", (2, 0)), ("none", (0, 0))):
        await node(ledger, node_id, fpga=fpgas)
    order = ledger.keys.named("resource:fpga")
    await ledger.client.command("ZADD", order, 9, "none", 9, "nobody", 9, "a")
    await ledger.client.command("ZREM", order, "b")
    await ledger.client.command("ZADD", ledger.keys.named("resource:tpu"), 9, "a")
    assert sorted(await recount(ledger)) == [
        "node a has 3 of fpga free, noted: 9",
        "node b has 2 of fpga free, noted: nothing",
        "node none has nothing of fpga free, noted: 9",
        "resource fpga leads to node nobody, which has none of it",
        "resource fpga leads to node none, which has none of it",
        "resource tpu leads to node a, which has none of it",
    ]
    assert not (await repair(ledger, apply=True)).left
    assert await ledger.client.command("ZRANGE", order, 0, -1, "WITHSCORES") == [b"b", b"2", b"a", b"3"]
    assert not await ledger.client.command("EXISTS", ledger.keys.named("resource:tpu"))


@FPGA
async def test_a_name_that_nodes_report_and_no_setting_lists_is_told_once(ledger: Ledger) -> None:
    services = build_services(ledger)
    await ledger.nodes.set("a", "http://a:8000", DiscoveryState.ACTIVE)
    report = Heartbeat("a", "one", snapshot=NodeSnapshot(NodeStatus.READY), resources={"fpga": ResourceLoad(1)})
    with capture_logs() as lines:
        await services.nodes.heartbeat(report)
        for _ in range(2):
            await services.nodes.heartbeat(
                replace(report, resources={"gpus": ResourceLoad(4), "disk": ResourceLoad(1)})
            )
    told = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["node_id"], line["reported"], line["listed"]) for line in told] == [("a", ["gpus"], ["fpga", "gpu"])]


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("asked", [{"gpu": 0}, {"disk": 0}, {"gpu": 0, "disk": 0}])
async def test_none_of_a_resource_asks_for_nothing_however_many_nodes_are_at_a_limit(
    ledger: Ledger, strategy: Strategy, asked: Asked
) -> None:
    limited = LedgerSettings(
        strategy=strategy, resources=("gpu",), groups=GroupSettings(9), admission=Admission.ALWAYS,
        node_resource_limit=NodeResourceLimit(max_sandbox_count=1), revision=1,
    )  # fmt: skip
    await put_settings(ledger, limited)
    names = [f"n{number:03}" for number in range(70)]
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}") for name in names], ())
    for name in names:
        snapshot = NodeSnapshot(NodeStatus.READY, 64, 2**37, sandbox_count=int(name != "n069"))
        await ledger.nodes.heartbeat(Heartbeat(name, "one", snapshot=snapshot))
    explained = await ledger.placements.explain(asking(asked))
    assert explained.node is not None
    assert (await placed(ledger, asked))[0] == explained.node.node_id == "n069"
    assert await refused(ledger, asked) == {"over_limit": 70}


@pytest.mark.parametrize(("strategy", "fill_to"), [(Strategy.MOST_LOADED, 0), (Strategy.LEAST_LOADED, 900)])
async def test_packing_goes_on_where_most_of_the_fuller_nodes_lack_the_resource(
    ledger: Ledger, strategy: Strategy, fill_to: int
) -> None:
    await put_settings(ledger, LedgerSettings(strategy=strategy, resources=("gpu",), fill_to=fill_to, revision=1))
    loads = {f"n{number:03}": (10, 4) for number in range(70)} | {"x": (1, 0), "y": (8, 0), "z": (5, 0)}
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}") for name in loads], ())
    for name, (cpus, taken) in loads.items():
        snapshot = NodeSnapshot(NodeStatus.READY, 16, 2**37, allocated_cpu=cpus)
        report = Heartbeat(name, "one", snapshot=snapshot, resources={"gpu": ResourceLoad(4, taken)})
        await ledger.nodes.heartbeat(report)
    explained = await ledger.placements.explain(asking({"gpu": 1}))
    ranks = {node.node_id: node.rank for node in explained.nodes if node.rank is not None}
    assert sorted(ranks, key=lambda name: ranks[name] or 0) == ["y", "z", "x"]
    assert (await placed(ledger, {"gpu": 1}))[0] == "y"
