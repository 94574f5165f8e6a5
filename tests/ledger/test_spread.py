"""Spread: sandboxes with one key go where fewest of them are, and are counted through all that becomes of them."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import pytest

from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus, ResourceLoad
from scheduler.domain.placement import BatchRequest, Hint, HintKind, OverLimit, ScheduleRequest, Spread, Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle, ReservationState
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import AvoidSettings, GroupSettings, LedgerSettings
from scheduler.errors import NoNodes, Overloaded
from scheduler.inspection.repair import repair
from scheduler.ledger.ledger import Ledger
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

LEAST_LOADED = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
GIB = 2**30


async def fleet(ledger: Ledger, **zones: str) -> None:
    nodes = [NodeAddress(name, f"http://{name}", {"zone": zone} if zone else {}) for name, zone in zones.items()]
    for node in nodes:
        await ledger.nodes.set(node.node_id, node.endpoint, DiscoveryState.ACTIVE, node.labels)
        await report(ledger, node.node_id)


async def report(
    ledger: Ledger, node_id: str, *sandbox_ids: str, cpu_count: int = 8, labels: dict[str, str] | None = None
) -> None:
    snapshot = NodeSnapshot(NodeStatus.READY, cpu_count, 64 * GIB, sandbox_count=len(sandbox_ids))
    told = Heartbeat(node_id, "one", snapshot=snapshot, sandbox_ids=sandbox_ids, labels=labels or {})
    await ledger.nodes.heartbeat(told)


def spread(key: str = "app", cpu_count: int = 1, sandbox_id: str | None = None, **changes: Any) -> ScheduleRequest:
    bound = changes if "max" in changes or "skew" in changes else {"max": 100, **changes}
    hint = Hint(HintKind.COLD_SANDBOX, cpu_count, 64, images=("image",), spread=Spread(key, **bound))
    return ScheduleRequest(hint=hint, sandbox_id=sandbox_id)


async def place(ledger: Ledger, request: ScheduleRequest) -> str:
    return (await ledger.placements.schedule(request)).node.node_id


async def counts(ledger: Ledger, key: str = "app") -> dict[str, int]:
    flat = await ledger.client.command("HGETALL", ledger.keys.spread(key))
    return {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}


async def refusal(ledger: Ledger, request: ScheduleRequest) -> dict[str, int]:
    with pytest.raises(NoNodes) as refused:
        await ledger.placements.schedule(request)
    return dict(refused.value.reasons)


def under(strategy: Strategy) -> Any:
    settings = {"strategy": strategy, "groups": GroupSettings(max_sandbox_count=9)}
    return pytest.param(marks=pytest.mark.ledger_settings(**settings), id=strategy.value)


@pytest.mark.parametrize((), [under(strategy) for strategy in Strategy])
async def test_the_place_with_fewest_comes_first_and_full_places_are_refused(ledger: Ledger) -> None:
    await fleet(ledger, a="east", b="east", c="west")
    placed = [await place(ledger, spread(max=2)) for _ in range(6)]
    assert sorted(placed[:3]) == sorted(placed[3:]) == ["a", "b", "c"]
    assert await refusal(ledger, spread(max=2)) == {"spread": 3}
    assert await place(ledger, spread("other", max=1)) in "abc"
    zones = [await place(ledger, spread("zoned", over="zone", max=2)) for _ in range(4)]
    assert [len({*zones[:2]} & {"c"}), zones.count("c")] == [1, 2]
    assert await refusal(ledger, spread("zoned", over="zone", max=2)) == {"spread": 3}
    for refused in (spread(max=2), spread("zoned", over="zone", max=2)):
        explained = await ledger.placements.explain(refused)
        figures = [explained.over_limit, *(node.over_limit for node in explained.nodes)]
        assert figures == [OverLimit("spread", 2, 0, 1, 2)] * 4
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_a_sandbox_counts_once_from_its_reservation_until_it_is_gone(ledger: Ledger, clock: VirtualClock) -> None:
    await fleet(ledger, a="", b="")
    told = await ledger.placements.schedule(spread())
    cancelled = await ledger.placements.schedule(spread())
    assert await counts(ledger) == {"a": 1, "b": 1}
    assert cancelled.reservation is not None
    await ledger.reservations.cancel(cancelled.reservation.reservation_id)
    assert told.reservation is not None
    node = told.node.node_id
    await ledger.reservations.confirm(told.reservation.reservation_id, "s1")
    assert await counts(ledger) == {node: 1}
    await assert_ledger_is_sound(ledger)
    await report(ledger, node, "s1")
    await ledger.nodes.record_events(node, "one", [SandboxEvent("s1", SandboxEventType.PAUSE)])
    assert await counts(ledger) == {node: 1}, "settled, listed, paused: it is still there"
    await assert_ledger_is_sound(ledger)
    await ledger.nodes.record_events(node, "one", [SandboxEvent("s1", SandboxEventType.DELETE)])
    assert await counts(ledger) == {}
    await assert_ledger_is_sound(ledger)
    named = await ledger.placements.schedule(spread(sandbox_id="s2"))
    expired = await ledger.placements.schedule(spread(sandbox_id="s3"))
    await report(ledger, named.node.node_id, "s2")
    clock.advance(600_001)
    await ledger.reservations.sweep()
    assert expired.reservation is not None
    assert (await ledger.reservations.get(expired.reservation.reservation_id)).state is ReservationState.EXPIRED
    assert await counts(ledger) in ({named.node.node_id: 1}, {})
    await assert_ledger_is_sound(ledger)
    await ledger.reservations.confirm(expired.reservation.reservation_id, "s3")
    assert (await counts(ledger))[expired.node.node_id] >= 1, "a late confirm counts again"
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_names_that_turn_out_to_be_anothers_count_where_they_belong(ledger: Ledger) -> None:
    await fleet(ledger, a="")
    hint = Hint(HintKind.COLD_SANDBOX, 1, 64, spread=Spread("app", max=9))
    one = await ledger.placements.schedule(ScheduleRequest(hint=hint, lifecycle=Lifecycle.HEARTBEAT))
    two = await ledger.placements.schedule(spread("other"))
    create = SandboxEvent("s1", SandboxEventType.CREATE, 1, 64 * 2**20)
    await ledger.nodes.record_events("a", "one", [create])
    assert await counts(ledger) == {"a": 1}
    assert one.reservation is not None
    assert two.reservation is not None
    await ledger.reservations.confirm(two.reservation.reservation_id, "s1")
    assert (await counts(ledger), await counts(ledger, "other")) == ({"a": 1}, {"a": 1})
    await assert_ledger_is_sound(ledger)
    await ledger.bindings.record("s1", NodeAddress("a", "http://a"))
    await ledger.nodes.remove("a")
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_a_node_that_is_lost_takes_its_sandboxes_out_of_the_counts(ledger: Ledger, clock: VirtualClock) -> None:
    await fleet(ledger, a="", b="")
    placed = [await ledger.placements.schedule(spread(sandbox_id=f"s{number}")) for number in range(4)]
    for each in placed[:2]:
        assert each.reservation is not None
        await ledger.reservations.confirm(each.reservation.reservation_id, str(each.reservation.sandbox_id))
    await report(
        ledger,
        "a",
        *[str(each.reservation.sandbox_id) for each in placed if each.reservation and each.node.node_id == "a"],
    )
    assert await counts(ledger) == {"a": 2, "b": 2}
    for node_id in "ab":
        await ledger.nodes.remove(node_id)
    clock.advance(31_000)
    while await ledger.reservations.sweep():
        pass
    await assert_ledger_is_sound(ledger)
    clock.advance(600_000)
    while await ledger.reservations.sweep():
        pass
    assert (await counts(ledger), await ledger.client.command("HLEN", ledger.keys.spreads)) == ({}, 0)
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_skew_is_measured_from_the_place_with_fewest_also_when_it_is_full(ledger: Ledger) -> None:
    await fleet(ledger, a="", b="")
    assert {await place(ledger, spread(skew=1, cpu_count=6)) for _ in range(2)} == {"a", "b"}
    await report(ledger, "a", cpu_count=32)
    assert await place(ledger, spread(skew=1, cpu_count=6)) == "a"
    assert await refusal(ledger, spread(skew=1, cpu_count=6)) == {"spread": 1, "insufficient_cpu": 1}
    excluding = ScheduleRequest(hint=spread(skew=1, cpu_count=4).hint, exclude_nodes=("b",))
    assert await place(ledger, excluding) == "a", "an excluded node is no place"
    explained = await ledger.placements.explain(spread(skew=1))
    assert [(each.node_id, each.reason, each.rank) for each in explained.nodes] == [
        ("a", "spread", None),
        ("b", None, 0),
    ]
    wide = await ledger.placements.explain(spread(skew=3))
    assert [(each.node_id, each.rank) for each in wide.nodes] == [("a", 1), ("b", 0)], "fewest before least loaded"
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_a_node_without_the_label_is_no_place_and_labels_may_change(ledger: Ledger) -> None:
    await fleet(ledger, a="east", b="", c="west")
    zoned = spread(over="zone", skew=1)
    assert {await place(ledger, zoned) for _ in range(2)} == {"a", "c"}
    await ledger.nodes.set("b", "http://b", DiscoveryState.ACTIVE, {"zone": "north"})
    assert await place(ledger, zoned) == "b"
    await ledger.nodes.set("b", "http://b", DiscoveryState.ACTIVE, {"zone": "east"})
    assert await place(ledger, zoned) == "c", "east has two by now"
    await ledger.nodes.set("b", "http://b", DiscoveryState.ACTIVE, {})
    east = Hint(HintKind.COLD_SANDBOX, 1, 64, require={"zone": ("east",)}, spread=Spread("app", "zone", max=1))
    assert await refusal(ledger, ScheduleRequest(hint=east)) == {"label": 2, "spread": 1}
    assert await refusal(ledger, spread(over="rack", max=1)) == {"spread": 3}
    explained = await ledger.placements.explain(spread(over="zone", max=2))
    assert {each.node_id: each.reason for each in explained.nodes} == {"a": None, "b": "spread", "c": "spread"}
    await assert_ledger_is_sound(ledger)


@pytest.mark.parametrize("forgotten_by", ["discovery", "unregister"])
@pytest.mark.parametrize("told_by", ["api", "report"])
@LEAST_LOADED
async def test_a_node_counts_in_its_place_until_it_tells_another(
    ledger: Ledger, told_by: str, forgotten_by: str
) -> None:
    """Also while it is off the list, and back without a report."""
    zone = {"zone": "east"} if told_by == "report" else {}
    await fleet(ledger, a="" if zone else "east", b="east", c="west")
    await report(ledger, "a", labels=zone)
    request = ScheduleRequest(hint=spread(over="zone", max=1).hint, exclude_nodes=("b", "c"))
    assert await place(ledger, request) == "a"
    elsewhere = ScheduleRequest(hint=request.hint, exclude_nodes=("c",))
    for _ in range(2):
        await (ledger.nodes.remove("a") if forgotten_by == "discovery" else ledger.nodes.unregister("a", "one"))
        assert (await refusal(ledger, elsewhere))["spread"] >= 1
        await ledger.nodes.set("a", "http://a", DiscoveryState.ACTIVE)
        assert (await refusal(ledger, elsewhere))["spread"] >= 1
    if told_by == "report":
        await report(ledger, "a", labels={"zone": "west"})
        assert await refusal(ledger, dataclasses.replace(elsewhere, exclude_nodes=("b",))) == {
            "excluded": 1,
            "spread": 2,
        }
        assert await place(ledger, elsewhere) == "b"
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_of_a_node_that_never_tells_its_place_a_bounded_number_of_places_is_kept(ledger: Ledger) -> None:
    for turn in range(40):
        await ledger.nodes.set("a", "http://a", DiscoveryState.ACTIVE, {f"name{turn}": "x"})
        await ledger.nodes.remove("a")
    kept = (await ledger.client.command("HGET", ledger.keys.node("a"), "labels_before")).decode().split(";")
    assert kept == [f"name{turn}=x" for turn in range(39, 7, -1)]


@LEAST_LOADED
async def test_what_was_reserved_on_an_evicted_node_counts_in_no_place(ledger: Ledger, clock: VirtualClock) -> None:
    """Whether or not maintenance came to it. What runs there counts."""
    await fleet(ledger, a="east", b="east")
    request = spread(over="zone", max=2)
    on_a = ScheduleRequest(hint=request.hint, exclude_nodes=("b",))
    told = (await ledger.placements.schedule(on_a)).reservation
    assert told is not None
    await ledger.reservations.confirm(told.reservation_id, "s1")
    assert await place(ledger, on_a) == "a"
    await ledger.nodes.remove("a")
    clock.advance(29_999)
    await report(ledger, "b")
    assert await refusal(ledger, request) == {"spread": 1}
    clock.advance(1)
    assert await place(ledger, request) == "b"
    assert await refusal(ledger, request) == {"spread": 1}
    assert await counts(ledger) == {"a": 2, "b": 1}, "maintenance has not come"
    await ledger.reservations.sweep()
    assert await counts(ledger) == {"a": 1, "b": 1}
    assert await refusal(ledger, request) == {"spread": 1}
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_a_name_that_was_given_again_counts_once_when_its_first_node_lists_it(
    ledger: Ledger, clock: VirtualClock
) -> None:
    await fleet(ledger, a="", b="")
    named = spread(sandbox_id="s1")
    assert await place(ledger, dataclasses.replace(named, exclude_nodes=("b",))) == "a"
    clock.advance(600_000)
    await report(ledger, "b")
    assert await place(ledger, dataclasses.replace(named, exclude_nodes=("a",))) == "b"
    await report(ledger, "a", "s1")
    assert await counts(ledger) == {"a": 1}
    await assert_ledger_is_sound(ledger)
    await report(ledger, "a")
    assert await counts(ledger) == {"b": 1}
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_a_name_from_an_event_counts_once_though_its_sandbox_is_elsewhere(ledger: Ledger) -> None:
    await fleet(ledger, a="", b="")
    hint = Hint(HintKind.COLD_SANDBOX, 1, 64, spread=Spread("app", max=9))
    create = SandboxEvent("s1", SandboxEventType.CREATE, 1, 64 * 2**20)
    for node_id, other in (("b", "a"), ("a", "b")):
        request = ScheduleRequest(hint, exclude_nodes=(other,), lifecycle=Lifecycle.HEARTBEAT)
        made = (await ledger.placements.schedule(request)).reservation
        assert made is not None
        await ledger.nodes.record_events(node_id, "one", [create])
        assert (await ledger.reservations.get(made.reservation_id)).sandbox_id == "s1"
        if node_id == "b":
            await ledger.reservations.cancel(made.reservation_id)
    assert await counts(ledger) == {"b": 1}
    await assert_ledger_is_sound(ledger)
    await ledger.nodes.record_events("b", "one", [SandboxEvent("s1", SandboxEventType.DELETE)])
    assert await counts(ledger) == {"a": 1}
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_a_batch_is_spread_one_by_one_and_an_undone_one_counts_nothing(ledger: Ledger) -> None:
    await fleet(ledger, a="", b="")
    decision = await ledger.placements.schedule_batch(BatchRequest((spread(max=2),) * 5, False, None))
    assert sorted(each.node.node_id for each in decision.placed) == ["a", "a", "b", "b"]
    assert [dict(each.reasons) for each in decision.refused] == [{"spread": 2}]
    with pytest.raises(NoNodes):
        await ledger.placements.schedule_batch(BatchRequest((spread("all", max=1),) * 3, True, None))
    assert await counts(ledger, "all") == {}
    await assert_ledger_is_sound(ledger)


@LEAST_LOADED
async def test_keys_and_holders_are_bounded_and_counts_can_be_repaired(ledger: Ledger) -> None:
    await fleet(ledger, a="", b="")
    long_key = "k" * 200
    await place(ledger, spread(long_key))
    await place(ledger, spread())
    assert await ledger.client.command("HLEN", ledger.keys.spread(long_key)) == 0, "a digest stands for it"
    await ledger.client.command("HSET", ledger.keys.spreads, *[part for n in range(10_000) for part in (f"x{n}", 1)])
    with pytest.raises(Overloaded, match="10,000 spread keys"):
        await ledger.placements.schedule(spread("new"))
    with pytest.raises(Overloaded, match="10,000 spread keys"):
        await ledger.placements.explain(spread("new"))
    holders = [part for number in range(1_023) for part in (f"gone-{number:04}", 1)]
    await ledger.client.command("HSET", ledger.keys.spread("app"), *holders)
    holder = next(node_id for node_id in await counts(ledger) if node_id in "ab")
    assert [await place(ledger, spread()) for _ in range(2)] == [holder] * 2, "no further node may hold the key"
    assert await refusal(ledger, spread(max=3)) == {"spread": 2}
    await ledger.client.command("DEL", ledger.keys.spreads)
    await ledger.client.command("HSET", ledger.keys.spreads, "x1", 1)
    done = await repair(ledger, apply=True)
    assert done.found
    assert not done.left
    assert await counts(ledger) == {holder: 3}


class Plain:
    """The rule read plainly: nodes with 4 to 16 CPUs, every sandbox a reservation of one size."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cpus = {f"n{number}": self.dice.choice((4, 8, 16)) for number in range(7)}
        self.zones = {node_id: self.dice.choice(("east", "west", "")) for node_id in self.cpus}
        self.draining = {"n3"}
        self.held: dict[str, Counter[str]] = {key: Counter() for key in ("x", "y")}

    def load(self, node_id: str) -> int:
        return sum(held[node_id] for held in self.held.values())

    def ask(self) -> ScheduleRequest:
        bound: dict[str, Any] = {self.dice.choice(("max", "skew")): self.dice.choice((1, 2, 3))}
        over = self.dice.choice(("node", "node", "zone"))
        require = self.dice.choice(({}, {}, {"zone": ("west",)}))
        hint = Hint(HintKind.COLD_SANDBOX, 1, 64, require=require, spread=Spread(self.dice.choice("xy"), over, **bound))
        excluded = tuple(self.dice.sample(sorted(self.cpus), self.dice.choice((0, 0, 2))))
        return ScheduleRequest(hint=hint, exclude_nodes=excluded)

    def allowed(self, request: ScheduleRequest, admits: bool) -> set[str]:
        """The nodes of which one must be chosen."""
        assert request.hint is not None
        assert request.hint.spread is not None
        spread, require = request.hint.spread, request.hint.require
        held, places = self.held[spread.key], {node_id: node_id for node_id in self.cpus}
        if spread.over == "zone":
            places = {node_id: zone for node_id, zone in self.zones.items() if zone}
        counts = Counter(dict.fromkeys(places.values(), 0))
        for node_id, place in places.items():
            counts[place] += held[node_id]
        candidates = {
            node_id
            for node_id in places
            if node_id not in (*self.draining, *request.exclude_nodes)
            and (not require or self.zones[node_id] == "west")
        }
        if not candidates:
            return set()
        least = min(counts[places[node_id]] for node_id in candidates)
        most = spread.max - 1 if spread.max is not None else least + (spread.skew or 0) - 1
        fit = {
            node_id
            for node_id in candidates
            if counts[places[node_id]] <= most and (not admits or self.load(node_id) < self.cpus[node_id])
        }
        fewest = min((counts[places[node_id]] for node_id in fit), default=0)
        return {node_id for node_id in fit if counts[places[node_id]] == fewest}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize((), [under(Strategy.LEAST_LOADED), under(Strategy.ROUND_ROBIN), under(Strategy.RANDOM)])
async def test_random_requests_are_placed_by_the_rule_read_plainly(
    ledger: Ledger, ledger_settings: LedgerSettings, seed: int
) -> None:
    plain, admits = Plain(seed), ledger_settings.strategy is Strategy.LEAST_LOADED
    await fleet(ledger, **plain.zones)
    for node_id, cpu_count in plain.cpus.items():
        await report(ledger, node_id, cpu_count=cpu_count)
    await ledger.nodes.set("n3", "http://n3", DiscoveryState.LINGERING)
    refused = 0
    for _ in range(60):
        request = plain.ask()
        allowed = plain.allowed(request, admits)
        assert request.hint is not None
        assert request.hint.spread is not None
        try:
            chosen = await place(ledger, request)
        except NoNodes:
            refused += 1
            assert not allowed
            continue
        assert chosen in allowed
        if admits:
            pressures = {node_id: (plain.load(node_id) + 1) / plain.cpus[node_id] for node_id in allowed}
            assert pressures[chosen] == min(pressures.values())
        plain.held[request.hint.spread.key][chosen] += 1
    assert refused
    assert await counts(ledger, "x") == dict(plain.held["x"])
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=1_000, avoid=AvoidSettings(refusals=1))
async def test_avoided_nodes_come_last_and_the_last_resort_is_spread_too(ledger: Ledger, clock: VirtualClock) -> None:
    await fleet(ledger, a="", b="")
    refused = await ledger.placements.schedule(spread("other"))
    assert refused.reservation is not None
    await ledger.reservations.cancel(refused.reservation.reservation_id, cause=CancelCause.NODE_REFUSED)
    good = "b" if refused.node.node_id == "a" else "a"
    assert [await place(ledger, spread(max=2)) for _ in range(3)] == [good, good, refused.node.node_id]
    await assert_ledger_is_sound(ledger)
    clock.advance(40_000)
    degraded = await ledger.placements.schedule(spread(max=2))
    assert (degraded.node.node_id, degraded.degraded) == (refused.node.node_id, True)
    assert await refusal(ledger, spread(max=2)) == {"spread": 2}
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, resources=("gpu",), avoid=AvoidSettings(share_percent=100))
async def test_every_node_of_a_refusal_has_one_reason_though_some_are_avoided(ledger: Ledger) -> None:
    """Places that only avoided nodes have do not say how far the others may be filled."""
    gpus = {"good": 0, "first": 0, "second": 4}
    await fleet(ledger, **dict.fromkeys(gpus, ""))
    for name in ("first", "second"):
        await ledger.nodes.heartbeat(Heartbeat(name, "one", snapshot=NodeSnapshot(NodeStatus.READY, create_fails=9)))
    for name, count in gpus.items():
        snapshot = NodeSnapshot(NodeStatus.READY, 8, 64 * GIB, create_fails=0 if name == "good" else 18)
        resources = {"gpu": ResourceLoad(count)} if count else {}
        await ledger.nodes.heartbeat(Heartbeat(name, "one", snapshot=snapshot, sandbox_ids=(), resources=resources))
    for name in ("good", "second"):
        request = spread(max=9)
        others = tuple({*gpus} - {name})
        assert await place(ledger, dataclasses.replace(request, exclude_nodes=others)) == name
    wanted = spread(skew=1)
    wanted = dataclasses.replace(wanted, hint=dataclasses.replace(wanted.hint, resources={"gpu": 1}))
    assert await place(ledger, wanted) == "second", "as many as on the only good node are allowed"
    assert await refusal(ledger, wanted) == {"insufficient_gpu": 2, "spread": 1}
    explained = await ledger.placements.explain(wanted)
    assert Counter(node.reason for node in explained.nodes) == {"insufficient_gpu": 2, "spread": 1}
