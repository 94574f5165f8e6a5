"""Batches: many creations decided in one step, each as if it had been asked for after the one before it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause, ReservationState
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.settings import Admission, AvoidSettings, GroupSettings, LedgerSettings
from scheduler.errors import Conflict, InvalidRequest, NoNodes, Overloaded
from scheduler.ledger.ledger import Ledger
from tests.conftest import OpenLedger
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound


async def fleet(ledger: Ledger, *cpus: int) -> None:
    names = [f"node-{number}" for number in range(len(cpus))]
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in names], ())
    for name, cpu_count in zip(names, cpus, strict=True):
        snapshot = NodeSnapshot(NodeStatus.READY, cpu_count, 64 * 1024 * MIB)
        await ledger.nodes.heartbeat(Heartbeat(name, "instance", snapshot=snapshot))


def creation(cpu_count: int = 1, image: str = "", sandbox_id: str | None = None) -> ScheduleRequest:
    hint = Hint(HintKind.COLD_SANDBOX, cpu_count, 512, images=(image,) if image else ())
    return ScheduleRequest(hint=hint, sandbox_id=sandbox_id)


def batch(*requests: ScheduleRequest, all_or_none: bool = False, key: str | None = None) -> BatchRequest:
    return BatchRequest(requests, all_or_none, key)


async def pending(ledger: Ledger) -> dict[str, tuple[int, int]]:
    return {node.node_id: (node.pending.cpu_count, node.pending.sandbox_count) for node in await ledger.nodes.list()}


async def open_groups(ledger: Ledger) -> list[tuple[str, str, int]]:
    _, groups, _ = await ledger.groups.list()
    return [(group.key, group.node_id, group.sandbox_count) for group in groups]


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_each_creation_sees_what_the_ones_before_it_hold(ledger: Ledger) -> None:
    await fleet(ledger, 8, 4)
    decision = await ledger.placements.schedule_batch(batch(*[creation()] * 14))
    assert [placed.index for placed in decision.placed] == list(range(12))
    assert await pending(ledger) == {"node-0": (8, 8), "node-1": (4, 4)}
    assert [(refused.index, refused.reasons) for refused in decision.refused] == [
        (12, {"insufficient_cpu": 2}),
        (13, {"insufficient_cpu": 2}),
    ]
    assert (decision.strategy, decision.replayed) == (Strategy.LEAST_LOADED, False)
    for placed in decision.placed:
        read = await ledger.reservations.get(placed.reservation.reservation_id)
        assert (read.node_id, read.state) == (placed.node.node_id, ReservationState.PENDING)
    await assert_ledger_is_sound(ledger)


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_batch_chooses_what_single_calls_would(open_ledger_on: OpenLedger, strategy: Strategy) -> None:
    requests = [creation(1 + number % 3, f"image-{number % 2}") for number in range(12)]
    settings = LedgerSettings(strategy=strategy, groups=GroupSettings(max_sandbox_count=3))
    one, other = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    for each in (one, other):
        each.runner.entropy = lambda: 7
        await fleet(each, 16, 8, 8)
    together = await one.placements.schedule_batch(batch(*requests))
    singly = [await other.placements.schedule(request) for request in requests]
    assert len(together.placed) == 12
    if strategy is not Strategy.RANDOM:
        assert [placed.node.node_id for placed in together.placed] == [each.node.node_id for each in singly]
        assert await pending(one) == await pending(other)
        assert await open_groups(one) == await open_groups(other)
    else:
        assert len({placed.node.node_id for placed in together.placed}) > 1
    await assert_ledger_is_sound(one)


@pytest.mark.parametrize("asked", [3, 5, 9])
async def test_an_entry_that_a_stopped_script_left_in_the_index_is_no_second_node(
    open_ledger_on: OpenLedger, asked: int
) -> None:
    settings = LedgerSettings(strategy=Strategy.LEAST_LOADED)
    one, other = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    for ledger in (one, other):
        await fleet(ledger, 8, 8, 8)
        (name,) = await ledger.client.command("HKEYS", ledger.keys.classes)
        row = f"row:{name.decode()}:"
        (_, score) = await ledger.client.command("ZRANGE", ledger.keys.named(row + "0"), 0, 0, "WITHSCORES")
        # What the next placement on node-1 writes first.
        entry = float(score) + 512 * MIB, f"{1:010}{0:010}{0:010}node-1"
        await ledger.client.command("ZADD", ledger.keys.named(row + "1"), *entry)
    together = await one.placements.schedule_batch(batch(*[creation()] * asked))
    singly = [await other.placements.schedule(creation()) for _ in range(asked)]
    assert [placed.node.node_id for placed in together.placed] == [each.node.node_id for each in singly]


@pytest.mark.parametrize("strategy", [Strategy.LEAST_LOADED, Strategy.GROUPED_ROUND_ROBIN])
async def test_all_or_none_reserves_nothing_unless_every_one_fits(
    open_ledger_on: OpenLedger, strategy: Strategy
) -> None:
    ledger = await open_ledger_on(LedgerSettings(strategy=strategy, admission=Admission.ALWAYS))
    await fleet(ledger, 4, 4)
    await ledger.placements.schedule(creation(1, "a"))
    before = await pending(ledger), await open_groups(ledger)
    with pytest.raises(NoNodes) as refused:
        await ledger.placements.schedule_batch(batch(*[creation(1, "a")] * 8, all_or_none=True, key="k"))
    assert refused.value.reasons == {"insufficient_cpu": 2}
    assert (await pending(ledger), await open_groups(ledger)) == before
    await assert_ledger_is_sound(ledger)
    decision = await ledger.placements.schedule_batch(batch(*[creation(1, "a")] * 7, all_or_none=True, key="k"))
    assert len(decision.placed) == 7


@pytest.mark.ledger_settings(
    strategy=Strategy.GROUPED_ROUND_ROBIN, admission=Admission.ALWAYS, groups=GroupSettings(50, max_open_groups=2)
)
async def test_what_a_refused_batch_did_to_groups_is_undone(ledger: Ledger) -> None:
    """Those it charged keep their place in the order of use, and those that made room for others are open again."""

    async def groups() -> list[tuple[bytes, float]]:
        command, keys = ledger.runner.client.command, ledger.runner.keys
        return [await command("ZRANGE", keys.groups_recent, 0, -1, "WITHSCORES"), await open_groups(ledger)]

    await fleet(ledger, 8, 8)
    for image in ("a", "b", "a"):
        await ledger.placements.schedule(creation(1, image))
    before = await groups()
    for asked in ([creation(1, "a")] * 20, [creation(1, "c"), creation(1, "d"), creation(100, "e")]):
        with pytest.raises(NoNodes):
            await ledger.placements.schedule_batch(batch(*asked, all_or_none=True))
        assert await groups() == before
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, avoid=AvoidSettings(refusals=1, share_percent=50))
async def test_a_refused_batch_has_tried_no_avoided_node(ledger: Ledger, clock: VirtualClock) -> None:
    await fleet(ledger, 8, 8)
    placed = await ledger.placements.schedule(creation())
    assert placed.reservation is not None
    await ledger.reservations.cancel(placed.reservation.reservation_id, cause=CancelCause.NODE_REFUSED)
    clock.advance(10_000)
    await ledger.placements.explain(creation())  # whose look works off that its time is up

    async def trial() -> list[object]:
        command, keys = ledger.runner.client.command, ledger.runner.keys
        node = keys.node(placed.node.node_id)
        return [
            await command("ZRANGE", keys.avoided_until, 0, -1, "WITHSCORES"),
            await command("HMGET", node, "avoid_tried", "avoid_level"),
        ]

    before = await trial()
    for _ in range(2):
        with pytest.raises(NoNodes):
            await ledger.placements.schedule_batch(batch(*[creation(8)] * 3, all_or_none=True))
        assert await trial() == before
    await assert_ledger_is_sound(ledger)
    decided = await ledger.placements.schedule_batch(batch(*[creation(8)] * 2, all_or_none=True))
    assert len(decided.placed) == 2


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_repeated_batch_is_told_again_with_what_became_of_it(ledger: Ledger, clock: VirtualClock) -> None:
    await fleet(ledger, 2, 2)
    asked = batch(*[creation()] * 6, key="once")
    first = await ledger.placements.schedule_batch(asked)
    await ledger.reservations.confirm(first.placed[0].reservation.reservation_id, "sandbox")
    await ledger.reservations.cancel(first.placed[1].reservation.reservation_id, "")
    again = await ledger.placements.schedule_batch(asked)
    assert again.replayed
    assert [placed.node for placed in again.placed] == [placed.node for placed in first.placed]
    states = [placed.reservation.state for placed in again.placed]
    assert states == [ReservationState.CONFIRMED, ReservationState.CANCELLED] + [ReservationState.PENDING] * 2
    assert again.refused == first.refused, "capacity that came free since is not used by a repeated call"
    with pytest.raises(Conflict):
        await ledger.placements.schedule_batch(batch(*[creation()] * 5, key="once"))


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_what_is_over_is_told_as_that_though_nobody_has_swept(ledger: Ledger, clock: VirtualClock) -> None:
    await fleet(ledger, 8)
    asked = batch(*[replace(creation(), reservation_ttl_ms=10_000)] * 2, key="due")
    first = await ledger.placements.schedule_batch(asked)
    await ledger.reservations.confirm(first.placed[0].reservation.reservation_id, "sandbox")
    clock.advance(10_001)
    again = await ledger.placements.schedule_batch(asked)
    states = [placed.reservation.state for placed in again.placed]
    assert (again.replayed, states) == (True, [ReservationState.CONFIRMED, ReservationState.EXPIRED])
    assert await pending(ledger) == {"node-0": (1, 1)}
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_what_was_stopped_half_way_is_decided_anew_and_keeps_what_it_has(ledger: Ledger) -> None:
    await fleet(ledger, 4)
    asked = batch(*[creation()] * 4, key="stopped")
    first = await ledger.placements.schedule_batch(asked)
    [record] = await ledger.runner.client.command("KEYS", "*:batch:*")
    await ledger.runner.client.command("DEL", record)
    again = await ledger.placements.schedule_batch(asked)
    assert [each.reservation.reservation_id for each in again.placed] == [
        each.reservation.reservation_id for each in first.placed
    ]
    assert await pending(ledger) == {"node-0": (4, 4)}


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_sandbox_id_that_is_anothers_stops_the_whole_batch(ledger: Ledger) -> None:
    await fleet(ledger, 8)
    await ledger.placements.schedule(creation(sandbox_id="mine"))
    with pytest.raises(Conflict):
        await ledger.placements.schedule_batch(batch(creation(), creation(sandbox_id="mine")))
    assert await pending(ledger) == {"node-0": (1, 1)}
    decision = await ledger.placements.schedule_batch(batch(creation(sandbox_id="a"), creation(sandbox_id="b")))
    assert [placed.reservation.sandbox_id for placed in decision.placed] == ["a", "b"]
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_key_is_of_a_batch_or_of_a_placement_and_a_batch_is_not_taken_back_by_it(ledger: Ledger) -> None:
    await fleet(ledger, 8)
    await ledger.reservations.cancel_by_key(creation().caller, "given-up")
    with pytest.raises(Conflict, match="a reservation that is cancelled"):
        await ledger.placements.schedule_batch(batch(creation(), key="given-up"))
    await ledger.placements.schedule(replace(creation(), idempotency_key="single"))
    with pytest.raises(Conflict, match="another request"):
        await ledger.placements.schedule_batch(batch(creation(), key="single"))
    decided = await ledger.placements.schedule_batch(batch(creation(), creation(), key="batch"))
    with pytest.raises(Conflict, match="belongs to a batch; cancel its reservations by their ids"):
        await ledger.reservations.cancel_by_key(creation().caller, "batch")
    for single in (creation(), replace(creation(), exclude_nodes=("other",))):
        with pytest.raises(Conflict, match="belongs to a batch"):
            await ledger.placements.schedule(replace(single, idempotency_key="batch"))
    both = [ledger.placements.schedule(replace(creation(), idempotency_key="batch")) for _ in range(2)]
    assert [type(each) for each in await asyncio.gather(*both, return_exceptions=True)] == [Conflict, Conflict]
    assert await pending(ledger) == {"node-0": (3, 3)}
    assert (await ledger.placements.schedule_batch(batch(creation(), creation(), key="batch"))).replayed
    for placed in decided.placed:
        await ledger.reservations.cancel(placed.reservation.reservation_id)
    assert await pending(ledger) == {"node-0": (1, 1)}


@pytest.mark.ledger_settings(strategy=Strategy.GROUPED_ROUND_ROBIN, groups=GroupSettings(9), resources=("gpu",))
async def test_what_a_caller_may_not_ask_for_is_said_before_anything_of_a_batch_is_reserved(ledger: Ledger) -> None:
    await fleet(ledger, 8)
    unlisted = creation(image="b")
    assert unlisted.hint is not None
    unlisted = replace(unlisted, hint=replace(unlisted.hint, resources={"tpu": 1}))
    for all_or_none in (False, True):
        with pytest.raises(InvalidRequest):
            await ledger.placements.schedule_batch(batch(creation(image="a"), unlisted, all_or_none=all_or_none))
    assert await pending(ledger) == {"node-0": (0, 0)}
    assert await open_groups(ledger) == []
    assert await ledger.settings.stats() == {}


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, resources=("gpu",))
async def test_a_batch_that_is_overloaded_half_way_holds_nothing(ledger: Ledger) -> None:
    """Too many nodes of the other zone have the resource to be looked at."""
    names = [f"away-{number:03}" for number in range(520)] + [f"home-{number:02}" for number in range(71)]
    zone = {name: {"zone": name[:4]} for name in names}
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}", zone[name]) for name in names], ())
    for name in names:
        taken = {"away": 0, "home": 4}[name[:4]] if name != "home-70" else 3
        snapshot = NodeSnapshot(NodeStatus.READY, 8, 64 * 1024 * MIB, allocated_cpu=int(name == "home-70"))
        report = Heartbeat(name, "instance", snapshot=snapshot, resources={"gpu": ResourceLoad(4, taken)})
        await ledger.nodes.heartbeat(report)
    rare = creation()
    assert rare.hint is not None
    rare = replace(rare, hint=replace(rare.hint, resources={"gpu": 1}, require={"zone": ("home",)}))
    with pytest.raises(Overloaded):
        await ledger.placements.schedule_batch(batch(creation(), rare))
    assert set((await pending(ledger)).values()) == {(0, 0)}
