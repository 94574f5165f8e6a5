"""The summary: sums that are kept say what walking through everything would say, whoever changed it and how."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import replace

import pytest

from scheduler.domain.node import DiscoveryState, Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.settings import Admission, LedgerSettings, NodeResourceLimit
from scheduler.domain.summary import Amount
from scheduler.errors import NoNodes, SchedulerError
from scheduler.inspection.recount import recount
from scheduler.inspection.repair import repair
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger
from tests.support.backends import put_settings
from tests.support.clock import VirtualClock
from tests.support.half_way import Stop, StoppingLibrary, stopped

GIB = 2**30
SMALL = ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, cpu_count=2, memory_mb=4096))


async def list_node(ledger: Ledger, node_id: str, cpus: int = 16, used: int = 0, **figures: int) -> None:
    await ledger.nodes.set(node_id, f"http://{node_id}:8000", DiscoveryState.ACTIVE)
    await report(ledger, node_id, cpus, used, **figures)


async def report(ledger: Ledger, node_id: str, cpus: int = 16, used: int = 0, **figures: int) -> None:
    snapshot = NodeSnapshot(
        NodeStatus.READY, cpu_count=cpus, memory_total_bytes=4 * cpus * GIB, allocated_cpu=used,
        allocated_memory_bytes=2 * used * GIB + used, **figures,
    )  # fmt: skip
    await ledger.nodes.heartbeat(Heartbeat(node_id, f"svc-{node_id}", snapshot=snapshot, sandbox_ids=()))


async def test_an_empty_ledger_is_all_zero(ledger: Ledger) -> None:
    found = await ledger.summary.read()
    assert (found.nodes, found.reservations, found.largest_free, found.oldest_pending_ms) == ({}, {}, {}, None)
    assert found.capacity == found.allocated == found.reserved == found.free == Amount(0, 0)
    assert (found.rates.placed, found.rates.refused) == (0, {})


@pytest.mark.parametrize("strategy", [Strategy.LEAST_LOADED, Strategy.ROUND_ROBIN])
async def test_what_is_placed_is_reserved_and_counted_at_once(
    ledger: Ledger, clock: VirtualClock, strategy: Strategy
) -> None:
    await ledger.settings.put(LedgerSettings(revision=1, strategy=strategy, admission=Admission.ALWAYS), "r")
    await list_node(ledger, "a", used=4)
    await list_node(ledger, "b", cpus=32)
    began = clock.now_ms
    made = []
    for _ in range(3):
        made.append((await ledger.placements.schedule(SMALL)).reservation)
        clock.advance(1000)
    with pytest.raises(NoNodes):
        await ledger.placements.schedule(replace(SMALL, hint=replace(SMALL.hint, cpu_count=65_537)))
    await ledger.nodes.set("c", "http://c:8000", DiscoveryState.ACTIVE)
    found = await ledger.summary.read()
    assert found.nodes == {"connecting": 1, "ready": 2}
    assert found.capacity == Amount(48, 192 * GIB)
    assert found.allocated == Amount(4, 8 * GIB + 4)
    assert found.reserved == Amount(6, 12 * GIB)
    assert found.free == Amount(38, 172 * GIB - 4)
    assert found.reservations == {"pending": 3}
    assert found.oldest_pending_ms == began
    assert (found.rates.placed, found.rates.refused) == (3 / 60, {"too_large": 1 / 60})
    assert made[0] is not None
    assert made[1] is not None
    await ledger.reservations.cancel(made[0].reservation_id)
    await ledger.reservations.confirm(made[1].reservation_id, "s-1")
    await ledger.reservations.sweep()
    found = await ledger.summary.read()
    assert found.reservations == {"pending": 1, "confirmed": 1, "cancelled": 1}
    assert (found.reserved, found.oldest_pending_ms) == (Amount(4, 8 * GIB), began + 2000)
    clock.advance(60_000)
    found = await ledger.summary.read()
    assert (found.rates.placed, found.rates.refused, found.nodes["unhealthy"]) == (0, {}, 2)
    assert await recount(ledger) == []


async def test_sums_are_exact_whatever_leaves_together(ledger: Ledger) -> None:
    await ledger.settings.put(LedgerSettings(revision=1, strategy=Strategy.LEAST_LOADED), "r")
    for node_id, memory in (("x", 2**53 - 1), ("y", 64 * GIB), ("z", 2**53 - 1)):
        await ledger.nodes.set(node_id, f"http://{node_id}:8000", DiscoveryState.ACTIVE)
        snapshot = NodeSnapshot(NodeStatus.READY, cpu_count=1, memory_total_bytes=memory)
        await ledger.nodes.heartbeat(Heartbeat(node_id, "i", snapshot=snapshot, sandbox_ids=()))
    assert (await ledger.summary.read()).capacity.memory_bytes == 2 * (2**53 - 1) + 64 * GIB
    await ledger.nodes.replace([], [])
    found = await ledger.summary.read()
    assert found.capacity == found.free == Amount(0, 0)
    assert await recount(ledger) == []


async def test_refusals_of_one_second_keep_every_character_of_their_reasons(ledger: Ledger) -> None:
    names = ("gpu", "vendor.example/gpu-a", "x_y")
    await ledger.settings.put(LedgerSettings(revision=1, resources=names), "r")
    await list_node(ledger, "a")
    for name in (*names, *names):
        with pytest.raises(NoNodes):
            await ledger.placements.schedule(
                ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64, resources={name: 1}))
            )
    assert (await ledger.summary.read()).rates.refused == {f"insufficient_{name}": 2 / 60 for name in names}


async def test_the_largest_free_slot_is_told_by_class(ledger: Ledger) -> None:
    await ledger.settings.put(LedgerSettings(revision=1, strategy=Strategy.LEAST_LOADED), "r")
    for node_id, cpus, used in (("a", 16, 4), ("b", 16, 10), ("c", 64, 70)):
        await list_node(ledger, node_id, cpus, used)
    await ledger.placements.schedule(SMALL)
    largest = (await ledger.summary.read()).largest_free
    assert largest == {
        "16 CPUs, 64 GiB": Amount(10, 52 * GIB - 4),
        "64 CPUs, 256 GiB": Amount(0, 116 * GIB - 70),
    }


async def test_limits_close_what_capacity_leaves(ledger: Ledger) -> None:
    limit = NodeResourceLimit(max_sandbox_count=2, max_allocated_cpu_including_paused=10)
    await ledger.settings.put(
        LedgerSettings(revision=1, strategy=Strategy.LEAST_LOADED, node_resource_limit=limit), "r"
    )
    await list_node(ledger, "a", used=4, sandbox_count=1)
    await list_node(ledger, "b", used=4, sandbox_count=3)
    found = await ledger.summary.read()
    assert (found.capacity.cpu_count, found.allocated.cpu_count, found.free.cpu_count) == (32, 8, 6)
    assert found.nodes == {"ready": 2}
    assert await recount(ledger) == []


async def test_draining_and_silent_nodes_are_of_one_status_each(ledger: Ledger, clock: VirtualClock) -> None:
    for node_id in "abcd":
        await list_node(ledger, node_id)
    for node_id in "ab":
        await ledger.nodes.set(node_id, f"http://{node_id}:8000", DiscoveryState.LINGERING)
    assert (await ledger.summary.read()).nodes == {"lingering": 2, "ready": 2}
    clock.advance(20_000)
    await report(ledger, "a")
    await report(ledger, "c")
    clock.advance(20_000)
    found = await ledger.summary.read()
    assert found.nodes == {"lingering": 1, "ready": 1, "unhealthy": 2}
    assert found.nodes == Counter(node.status.value for node in await ledger.nodes.list())
    assert found.capacity.cpu_count == 16


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, resources=("gpu",))
async def test_further_resources_are_summed_as_they_are_held_and_freed(ledger: Ledger) -> None:
    for node_id, load in (("a", ResourceLoad(8, 3)), ("b", ResourceLoad(4, 4)), ("c", ResourceLoad(2, 0))):
        await list_node(ledger, node_id)
        snapshot = NodeSnapshot(NodeStatus.READY, 16, 64 * GIB)
        await ledger.nodes.heartbeat(Heartbeat(node_id, f"svc-{node_id}", snapshot=snapshot, resources={"gpu": load}))
    await ledger.nodes.set("c", "http://c:8000", DiscoveryState.LINGERING)
    hint = Hint(HintKind.COLD_SANDBOX, 1, 64, resources={"gpu": 2, "disk": 5})
    made = (await ledger.placements.schedule(ScheduleRequest(hint=hint))).reservation
    assert made is not None

    async def gpus() -> list[dict[str, int]]:
        found = await ledger.summary.read()
        assert await recount(ledger) == []
        return [dict(part.resources) for part in (found.capacity, found.allocated, found.reserved, found.free)]

    assert await gpus() == [{"gpu": 12}, {"gpu": 7}, {"gpu": 2}, {"gpu": 3}], "nobody says what disk it has"
    await ledger.client.command("HSET", ledger.keys.tallies, "counted", 1)
    assert await gpus() == [{"gpu": 12}, {"gpu": 7}, {"gpu": 2}, {"gpu": 3}], "sums of before are counted anew"
    await ledger.reservations.cancel(made.reservation_id)
    assert (await gpus())[2:] == [{"gpu": 0}, {"gpu": 5}]
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED, revision=2))
    await ledger.placements.schedule(SMALL)
    assert await gpus() == [{}] * 4


async def count_a_slice(ledger: Ledger, size: int) -> str:
    """Count so many rows or reservations anew; the status."""
    text = StoppingLibrary({"SLICE": size}).get("count_tallies").text
    reply = await ledger.client.command("EVAL", text, 1, ledger.keys.settings, "")
    return codec.text(reply[0])


@pytest.mark.parametrize("slices", [0, 1, 2], ids=["never", "one by one", "a few at a time"])
async def test_sums_follow_whatever_happens(ledger: Ledger, clock: VirtualClock, slices: int) -> None:
    """Placements, reports, cancels, confirms, drains and removals in a random order; then all of it is counted.
    Also while the sums are counted anew, in slices between the others."""
    chance, counts = random.Random(7), 0
    await ledger.settings.put(LedgerSettings(revision=1, strategy=Strategy.LEAST_LOADED), "r")
    names, made = [f"n{number}" for number in range(6)], []
    for node_id in names:
        await list_node(ledger, node_id)
    for step in range(120):
        node_id, kind = chance.choice(names), chance.randrange(9)
        if kind < 4:
            with contextlib.suppress(NoNodes):
                made.append((await ledger.placements.schedule(SMALL)).reservation)
        elif kind == 4 and made:
            await ledger.reservations.cancel(made.pop(chance.randrange(len(made))).reservation_id)
        elif kind == 5 and made:
            await ledger.reservations.confirm(made.pop(chance.randrange(len(made))).reservation_id, f"s{step}")
        elif kind == 6:
            state = chance.choice([DiscoveryState.ACTIVE, DiscoveryState.LINGERING])
            await ledger.nodes.set(node_id, f"http://{node_id}:8000", state)
        elif kind == 7:
            await list_node(ledger, node_id, used=chance.randrange(20))
        elif chance.randrange(4) == 0:
            await ledger.nodes.remove(node_id)
            await list_node(ledger, node_id, cpus=chance.choice([8, 16, 24]))
        clock.advance(chance.choice([0, 100, 5000]))
        if slices and chance.random() < 0.7 and await count_a_slice(ledger, slices) == "counted":
            counts += 1
            assert await recount(ledger) == [], f"step {step}"
            await ledger.client.command("HDEL", ledger.keys.tallies, "counted")
        if step % 40 == 39:
            found = await ledger.summary.read()
            assert found.nodes == Counter(node.status.value for node in await ledger.nodes.list())
            assert await recount(ledger) == []
    assert counts > 2 or not slices
    for _ in range(2):  # what is open ends, and an hour later nothing of it can be read any more
        clock.advance(4_000_000)
        while await ledger.reservations.sweep():
            pass
    found = await ledger.summary.read()
    assert (found.reservations, found.reserved) == ({}, Amount(0, 0))
    assert await recount(ledger) == []


async def test_a_count_that_is_stopped_half_way_begins_anew(ledger: Ledger) -> None:
    for node_id in ("a", "b", "c"):
        await list_node(ledger, node_id, used=4)
    for _ in range(3):
        made = (await ledger.placements.schedule(SMALL)).reservation
        assert made is not None
    await ledger.reservations.cancel(made.reservation_id)
    before, stopped_at = await ledger.summary.read(), 0
    for failing in range(1, 30):
        await ledger.client.command("HDEL", ledger.keys.tallies, "counted")
        async with stopped(ledger.client, Stop("count_tallies", failing), {"SLICE": 2}):
            with contextlib.suppress(SchedulerError):
                await ledger.summary.read()
                break
        stopped_at = failing
        assert await ledger.summary.read() == before, f"stopped at command {failing}"
        assert await recount(ledger) == []
    assert stopped_at > 10


async def test_sums_that_were_lost_are_counted_again(ledger: Ledger) -> None:
    await list_node(ledger, "a", used=4)
    await ledger.placements.schedule(SMALL)
    before = await ledger.summary.read()
    command, keys = ledger.client.command, ledger.keys
    await command("DEL", keys.tallies)
    assert await ledger.summary.read() == before
    await command("HINCRBY", keys.tallies, "allocated_cpu", 5)
    assert await recount(ledger) == ["tallies allocated_cpu is 9, counted: 4"]
    await repair(ledger, apply=True)
    assert await ledger.summary.read() == before
