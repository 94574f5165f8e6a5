"""Labels of nodes: who tells them, which stand, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, LabelMismatch, ScheduleRequest, Strategy
from scheduler.errors import Conflict, NoNodes
from scheduler.ledger.configured import ConfiguredBy
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.request_codec import fingerprint, former_fingerprint
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

LEAST_LOADED = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)


def address(node_id: str, labels: Mapping[str, str] | None = None) -> NodeAddress:
    return NodeAddress(node_id, f"http://{node_id}", labels)


async def put(ledger: Ledger, node_id: str, labels: Mapping[str, str] | None = None) -> None:
    await ledger.nodes.set(node_id, f"http://{node_id}", DiscoveryState.ACTIVE, labels)


async def report(ledger: Ledger, node_id: str, instance: str = "one", **labels: str) -> bool:
    """Whether it stays without labels."""
    snapshot = NodeSnapshot(NodeStatus.READY, 8, 2**33)
    return (await ledger.nodes.heartbeat(Heartbeat(node_id, instance, snapshot=snapshot, labels=labels))).unlabelled


async def labels_of(ledger: Ledger, node_id: str) -> dict[str, str]:
    return dict((await ledger.nodes.get(node_id)).labels)


def requiring(**labels: str) -> ScheduleRequest:
    require = {label: (value,) for label, value in labels.items()}
    return ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64, require=require))


async def test_configuration_stands_before_api_before_kubernetes_before_the_report(ledger: Ledger) -> None:
    by = ConfiguredBy("r", 0)
    await ledger.nodes.configure([address("a", {"one": "configured"})], by)
    told = {"one": "x", "two": "x", "three": "x", "four": "x"}
    await put(ledger, "a", {"one": "api", "two": "api"})
    await ledger.nodes.replace([address("a", {"one": "k", "two": "k", "three": "k"})], (), of_kubernetes=True)
    await report(ledger, "a", **{**told, "four": "reported"})
    assert await labels_of(ledger, "a") == {"one": "configured", "two": "api", "three": "k", "four": "reported"}
    await ledger.nodes.configure([address("a")], by)
    await put(ledger, "a", {})
    await put(ledger, "a")
    assert await labels_of(ledger, "a") == {"one": "k", "two": "k", "three": "k", "four": "reported"}
    await ledger.nodes.unregister("a", "one")
    assert await labels_of(ledger, "a") == {"one": "k", "two": "k", "three": "k"}
    await assert_ledger_is_sound(ledger)


async def test_a_node_that_leaves_the_list_comes_back_with_what_the_api_told_of_it(ledger: Ledger) -> None:
    await ledger.nodes.replace([address("a", {"zone": "k"})], (), of_kubernetes=True)
    await put(ledger, "a", {"rack": "1"})
    await report(ledger, "a", disk="ssd")
    assert (await ledger.placements.schedule(requiring(zone="k", rack="1", disk="ssd"))).node.node_id == "a"
    await ledger.nodes.remove("a")
    await put(ledger, "a")
    assert await labels_of(ledger, "a") == {"rack": "1"}
    with pytest.raises(NoNodes) as refused:
        await ledger.placements.schedule(requiring(zone="k"))
    assert refused.value.reasons == {"label": 1}
    assert (await ledger.placements.schedule(requiring(rack="1"))).node.node_id == "a"
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_explain_and_refusals_say_which_label_is_missing(ledger: Ledger) -> None:
    for node_id, labels in {"a": {"zone": "east"}, "b": {}, "c": {"zone": "west"}, "d": {"zone": "east"}}.items():
        await put(ledger, node_id, labels)
        await report(ledger, node_id)
    await ledger.nodes.set("d", "http://d", DiscoveryState.LINGERING)
    request = ScheduleRequest(
        hint=Hint(HintKind.COLD_SANDBOX, 1, 64, require={"zone": ("east", "north")}), exclude_nodes=("a", "c")
    )
    explained = await ledger.placements.explain(request)
    assert explained.node is None
    assert explained.reasons == {"excluded": 2, "label": 1, "lingering": 1}
    found = {node.node_id: (node.reason, node.label) for node in explained.nodes}
    assert found == {
        "a": ("excluded", None),
        "b": ("label", LabelMismatch("zone", ("east", "north"), None)),
        "c": ("excluded", None),
        "d": ("lingering", None),
    }
    other = await ledger.placements.explain(requiring(zone="east"))
    assert {node.node_id: node.rank for node in other.nodes} == {"a": 0, "b": None, "c": None, "d": None}
    assert other.nodes[2].label == LabelMismatch("zone", ("east",), "west")


async def fill_label_sets(ledger: Ledger) -> None:
    await ledger.nodes.replace([address(f"n{number:02}", {"rack": f"{number}"}) for number in range(64)], ())


async def test_a_sixty_fifth_label_set_is_refused_or_left_out_until_one_is_free(ledger: Ledger) -> None:
    await fill_label_sets(ledger)
    with pytest.raises(Conflict, match="64 different sets of labels"):
        await put(ledger, "late", {"rack": "64"})
    assert len(await ledger.nodes.list()) == 64
    await put(ledger, "late")
    assert await report(ledger, "late", rack="64")
    assert await labels_of(ledger, "late") == {}
    await assert_ledger_is_sound(ledger)
    assert not await report(ledger, "late", rack="63")
    assert await report(ledger, "late", rack="64")
    await put(ledger, "n00", {"rack": "1"})
    assert not await report(ledger, "late", rack="64")
    assert (await ledger.placements.schedule(requiring(rack="64"))).node.node_id == "late"
    with pytest.raises(NoNodes):
        await ledger.placements.schedule(requiring(rack="0"))
    await assert_ledger_is_sound(ledger)


async def test_a_row_that_cannot_be_read_is_made_anew_with_its_labels(ledger: Ledger) -> None:
    await put(ledger, "a", {"zone": "east"})
    await report(ledger, "a")
    await ledger.client.command("HSET", ledger.keys.loads, "a", "nonsense")
    assert (await ledger.placements.schedule(requiring(zone="east"))).node.node_id == "a"
    await assert_ledger_is_sound(ledger)


async def test_a_repair_gives_a_node_the_labels_that_its_sources_say(ledger: Ledger) -> None:
    await put(ledger, "a", {"zone": "east"})
    await report(ledger, "a", disk="ssd")
    node = ledger.keys.node("a")
    await ledger.client.command("HSET", node, "labels_api", "zone=west")
    with pytest.raises(AssertionError, match="its sources say"):
        await assert_ledger_is_sound(ledger)
    await ledger.runner.run("repair_node", "a")
    assert await labels_of(ledger, "a") == {"zone": "west", "disk": "ssd"}


@pytest.mark.ledger_settings(strategy=Strategy.ROUND_ROBIN, report_ttl_ms=1_000)
async def test_labels_bind_a_silent_fleet_and_avoided_nodes_too(ledger: Ledger, clock: VirtualClock) -> None:
    for node_id in "abc":
        await put(ledger, node_id, {"zone": "east" if node_id != "b" else "west"})
        await report(ledger, node_id)
    clock.advance(1_001)
    placed = [await ledger.placements.schedule(requiring(zone="east")) for _ in range(4)]
    assert [(each.node.node_id, each.degraded) for each in placed] == [("a", True), ("c", True)] * 2
    await assert_ledger_is_sound(ledger)


def test_requests_without_labels_keep_their_fingerprint() -> None:
    plain: Any = ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 2, 1024, images=("app",), metadata={"a": "b"}))
    assert former_fingerprint(plain) == "b1bc4c509b57db7fe03d0f22a2ba8f70"
    assert fingerprint(plain) == "d10450fcd49d5d4426e48e07d30239e8"
    assert fingerprint(requiring(zone="a")) != fingerprint(requiring(zone="b"))


@LEAST_LOADED
async def test_among_very_many_equal_nodes_that_never_reported_the_few_that_fit_are_found_at_every_turn(
    ledger: Ledger,
) -> None:
    names = [f"n{number:03}" for number in range(200)]
    await ledger.nodes.replace([address(name, {"zone": "a"} if name < "n002" else None) for name in names], ())
    for turn in range(8):
        for _ in range(turn % 3 * 40 + 1):  # wherever the turn stands
            await ledger.placements.schedule(ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64)))
        assert (await ledger.placements.schedule(requiring(zone="a"))).node.node_id in {"n000", "n001"}


@LEAST_LOADED
async def test_ordinary_routing_among_very_many_equal_nodes_passes_over_what_is_excluded(ledger: Ledger) -> None:
    names = [f"n{number:03}" for number in range(65)]
    await ledger.nodes.replace([address(name) for name in names], ())
    request = ScheduleRequest(hint=None, exclude_nodes=("n064",))
    chosen = {(await ledger.placements.schedule(request)).node.node_id for _ in range(140)}
    assert chosen == set(names[:64])
