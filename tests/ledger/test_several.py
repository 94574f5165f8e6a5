"""Placements of one turn of the event loop are one call, and each is decided as if it had been asked for alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler.deadline import within
from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Decision, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import ReservationState
from scheduler.domain.settings import Admission, AffinitySettings, GroupSettings, LedgerSettings, NodeResourceLimit
from scheduler.errors import InvalidRequest, NoNodes, SchedulerError
from scheduler.inspection.repair import repair
from scheduler.ledger import codec, request_codec
from scheduler.ledger.ledger import Ledger
from tests.conftest import OpenLedger
from tests.support.clock import VirtualClock
from tests.support.half_way import Stop, stopped
from tests.support.recount import assert_ledger_is_sound

GIB = 1024 * MIB
# The script, its arguments, and the reply.
Made = tuple[str, tuple[Any, ...], list[Any]]


def together(ledger: Ledger) -> list[Made]:
    """Placements of one turn go as one call from now on, embedded or not. The calls, as they are made."""
    several, run, send, calls = ledger.placements._several, ledger.runner.run, ledger.runner.send_at_once, []
    several.possible = several._crowded = True

    def note(script: str, arguments: tuple[Any, ...], reply: Any) -> None:
        if isinstance(reply, list):
            calls.append((script, arguments, [codec.text(reply[0]), *reply[1:]]))

    async def recorded(script: str, *arguments: Any, **how: Any) -> tuple[str, list[Any]]:
        status, reply = await run(script, *arguments, **how)
        note(script, arguments, [status, *reply])
        return status, reply

    def recorded_at_once(script: str, *arguments: Any, ends_at: float) -> asyncio.Future[Any] | None:
        replied = send(script, *arguments, ends_at=ends_at)
        if replied is not None:
            replied.add_done_callback(lambda done: note(script, arguments, done.result()))
        return replied

    ledger.runner.run = recorded  # type: ignore[method-assign]
    ledger.runner.send_at_once = recorded_at_once  # type: ignore[method-assign]
    return calls


async def fleet(ledger: Ledger, snapshots: Sequence[NodeSnapshot]) -> None:
    names = [f"node-{number:02}" for number in range(len(snapshots))]
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in names], ())
    for name, snapshot in zip(names, snapshots, strict=True):
        await ledger.nodes.heartbeat(Heartbeat(name, "instance", snapshot=snapshot))


def nodes_of(chance: Random) -> list[NodeSnapshot]:
    sizes = [(chance.choice([4, 8, 16]), chance.choice([8, 16, 65]) * GIB) for _ in range(chance.choice([1, 1, 3]))]
    snapshots = []
    for _ in range(chance.choice([2, 5, 12])):
        cpu, memory = chance.choice(sizes)
        load = chance.choice([0, 0, 0, cpu // 2, cpu])
        snapshots.append(
            NodeSnapshot(
                chance.choice([NodeStatus.READY] * 9 + [NodeStatus.CONNECTING]),
                cpu,
                memory,
                allocated_cpu=load,
                allocated_memory_bytes=load * GIB // 2,
                sandbox_count=chance.choice([0, 0, 1, 3]),
            )
        )
    return snapshots


def requests_of(chance: Random, turn: int) -> list[ScheduleRequest]:
    requests = []
    for number in range(chance.choice([2, 7, 40])):
        kind = chance.choice([HintKind.COLD_SANDBOX] * 3 + [HintKind.SANDBOX])
        size = chance.choice([(1, 256), (1, 256), (2, 1024), (8, 3000), (0, 64), (64, 64)])
        named = {"images": ("app",)} if kind is HintKind.COLD_SANDBOX else {"template_id": "t"}
        # A key that comes twice in one turn is one placement; of another size it is a conflict.
        key = f"{turn} {number - chance.choice([0] * 9 + [1])}"
        more: dict[str, Any] = chance.choice([{}] * 15 + [{"sandbox_id": f"named-{turn}-{number}"}])
        hint = Hint(kind, *size, **named)  # type: ignore[arg-type]
        ttl = chance.choice([None, 90_000])
        requests.append(ScheduleRequest(hint=hint, idempotency_key=key, reservation_ttl_ms=ttl, caller="c", **more))
    return requests


SETTINGS = (
    {},
    {},
    {},
    {"fill_to": 800},
    {"strategy": Strategy.MOST_LOADED},
    {"overcommit_cpu": 1500, "affinity": AffinitySettings(slack=50)},
    {"node_resource_limit": NodeResourceLimit(max_sandbox_count=3)},
    {"strategy": Strategy.ROUND_ROBIN, "admission": Admission.ALWAYS},
)


async def outcome(ledger: Ledger, request: ScheduleRequest) -> Decision | str:
    try:
        return await ledger.placements.schedule(request)
    except NoNodes as refused:
        return f"refused {refused.candidates} {sorted(refused.reasons.items())} {refused.facts}"
    except SchedulerError as error:
        return f"{error.code} {error.detail}"


async def contents(ledger: Ledger) -> dict[str, Any]:
    """Every key of the domain but its settings, which name the ledger."""
    command, found = ledger.client.command, {}
    reads = {"hash": ("HGETALL",), "string": ("GET",), "zset": ("ZRANGE", 0, -1, "WITHSCORES"), "set": ("SMEMBERS",)}
    for name in set(await command("KEYS", f"{ledger.keys.tag}*")) - {ledger.keys.settings.encode()}:
        kind = (await command("TYPE", name)).decode()
        verb, *more = reads[kind]
        value = await command(verb, name, *more)
        if kind == "hash":
            value = dict(zip(value[::2], value[1::2], strict=True))
        found[name.decode().removeprefix(ledger.keys.tag)] = value
    return found


@pytest.mark.parametrize("seed", range(8))
async def test_what_goes_together_is_decided_as_one_after_another(
    open_ledger_on: OpenLedger, clock: VirtualClock, seed: int
) -> None:
    chance = Random(f"several {seed}")
    changes = {"strategy": Strategy.LEAST_LOADED, "groups": GroupSettings(max_sandbox_count=3), **SETTINGS[seed % 8]}
    settings = LedgerSettings(**changes)  # type: ignore[arg-type]
    one, other = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    snapshots = nodes_of(chance)
    for each in (one, other):
        each.runner.entropy = lambda: 7
        await fleet(each, snapshots)
    calls, shared = together(one), 0
    for turn in range(4):
        one.placements._several._off_until = 0.0
        requests = requests_of(chance, turn)
        calls.clear()
        answers = await asyncio.gather(*(outcome(one, request) for request in requests))
        singly = {}
        for index in order_of(calls, requests):
            singly[index] = await outcome(other, requests[index])
        shared += sum(len(reply) - 1 for script, _, reply in calls if script == "schedule_sandboxes")
        assert answers == [singly[index] for index in range(len(requests))], f"seed {seed}, turn {turn}"
        clock.advance(chance.choice([0, 700, 2500]))
    assert shared or seed % 8 == 7
    assert await contents(one) == await contents(other), f"seed {seed}"
    await assert_ledger_is_sound(one)


@pytest.mark.parametrize("seed", range(8))
async def test_a_batch_leaves_what_its_creations_leave_one_after_another(
    open_ledger_on: OpenLedger, clock: VirtualClock, seed: int
) -> None:
    chance = Random(f"batch {seed}")
    changes = {"strategy": Strategy.LEAST_LOADED, **SETTINGS[seed % 8]}
    settings = LedgerSettings(**changes)  # type: ignore[arg-type]
    one, other = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    snapshots = nodes_of(chance) * chance.choice([1, 1, 4])
    for each in (one, other):
        each.runner.entropy = lambda: 7
        await fleet(each, snapshots)
    placed = 0
    for turn in range(4):
        asked = [replace(each, idempotency_key=None, reservation_ttl_ms=None) for each in requests_of(chance, turn)]
        if chance.random() < 0.7:
            asked = [replace(each, sandbox_id=None) for each in asked]
        all_or_none = chance.random() < 0.4
        batch, before = BatchRequest(tuple(asked), all_or_none, str(turn)), await contents(one)
        clock.advance(chance.choice([0, 700, 2500]))
        try:
            decided = await one.placements.schedule_batch(batch)
        except NoNodes:
            assert all_or_none
            after = await contents(one)
            for name in (":stats", ":rates", ":sequence"):
                before.pop(name, None), after.pop(name, None)
            assert after == before, f"seed {seed}, turn {turn}"
            # Whatever a refused batch has drawn is not given back.
            drawn = await one.client.command("GET", one.keys.named("sequence"))
            await other.client.command("SET", other.keys.named("sequence"), drawn)
            continue
        base_id, fingerprint = request_codec.batch_id("c", str(turn)), request_codec.batch_fingerprint(batch)
        refused = {each.index: each.reasons for each in decided.refused}
        chosen = {each.index: each.node for each in decided.placed}
        for index, request in enumerate(asked):
            single: Any
            try:
                single = (await other.placements._schedule(request, f"{base_id}-{index}", fingerprint)).node
                placed += 1
            except NoNodes as why:
                single = why.reasons
            assert (chosen if isinstance(single, NodeAddress) else refused).pop(index) == single, f"seed {seed}, {turn}"
        assert not chosen
        assert not refused
    assert placed
    found, expected = [
        {name: value for name, value in (await contents(each)).items() if name not in (":stats", ":rates")}
        for each in (one, other)
    ]
    for sums in (found, expected):
        tallies, rotations = sums.setdefault(":tallies", {}), sums[":rotations"]
        for name, unit in (("cpu", 1), ("mib", MIB)):
            straight = int(rotations.pop(f"straight_{name}".encode(), 0)) * unit
            total = b"reserved_" + (b"cpu" if name == "cpu" else b"memory")
            tallies[total] = int(tallies.get(total, 0)) + straight
        # A batch that places nobody tells the time all the same.
        rotations.pop(b"now")
    assert {name: value for name, value in found.items() if not name.startswith(":batch:")} == expected, f"seed {seed}"
    await assert_ledger_is_sound(one)


async def test_a_batch_meets_who_comes_among_many_nodes_of_one_row(open_ledger_on: OpenLedger) -> None:
    """More nodes of a row than are read at first may tie by their CPUs, also with who comes among them."""
    chance, settings = Random("crowded rows 0"), LedgerSettings(strategy=Strategy.LEAST_LOADED)
    one, other = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    loads = [(chance.randint(0, 8), chance.randint(0, 4096) * MIB) for _ in range(40)]
    for each in (one, other):
        await fleet(each, [NodeSnapshot(NodeStatus.READY, 16, 8 * GIB, cpu, memory) for cpu, memory in loads])
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 400))
    decided = await one.placements.schedule_batch(BatchRequest((request,) * 96))
    singles = [(await other.placements.schedule(request)).node for _ in range(96)]
    assert [placed.node for placed in decided.placed] == singles


@pytest.mark.parametrize(
    ("fill_to", "turns", "sizes"),
    [(500, 0, (17, 64)), (0, 30, (39, 2, 3, 2, 2)), (0, 10**6 + 7, (3, 36, 2, 2, 41))],
    ids=["fills", "takes turns far behind the first", "takes turns anywhere"],
)
async def test_batches_on_equal_nodes_are_what_single_calls_would_be(
    open_ledger_on: OpenLedger, fill_to: int, turns: int, sizes: tuple[int, ...]
) -> None:
    settings = LedgerSettings(strategy=Strategy.LEAST_LOADED, fill_to=fill_to)
    one, other = await open_ledger_on(settings, domain="one"), await open_ledger_on(settings, domain="other")
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 4, 256))
    for each in (one, other):
        await fleet(each, [NodeSnapshot(NodeStatus.READY, 16, 64 * GIB)] * (20 if fill_to else 40))
        await each.client.command("HSET", each.keys.named("rotations"), "ties", turns)
    for size in sizes:
        decided = await one.placements.schedule_batch(BatchRequest((request,) * size))
        singles = [(await outcome(other, request)) for _ in range(size)]
        expected = [single.node for single in singles if isinstance(single, Decision)]
        assert [placed.node for placed in decided.placed] == expected


async def test_a_call_stopped_at_any_command_is_made_again_for_each_alone(open_ledger_on: OpenLedger) -> None:
    settings = LedgerSettings(strategy=Strategy.LEAST_LOADED)
    ledger = await open_ledger_on(settings)
    await fleet(ledger, [NodeSnapshot(NodeStatus.READY, 200, 200 * GIB)] * 3)
    # Each stop is another text to compile, which the embedded ledger is slow at.
    calls, failing, step, rounds, whole = together(ledger), 0, 5 if ledger.client.embedded else 1, 0, 0
    while whole < 4:  # how many commands there are differs a little from one turn to the next
        failing, rounds = failing + step, rounds + 1
        calls.clear()
        requests = [
            ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64), idempotency_key=f"{failing}-{n}") for n in range(3)
        ]
        async with stopped(ledger.client, Stop("schedule_sandboxes", failing)):
            decided = await asyncio.gather(*(ledger.placements.schedule(request) for request in requests))
        whole = whole + 1 if calls[0][0] == "schedule_sandboxes" else 0
        for decision in decided:
            assert decision.reservation is not None
            read = await ledger.reservations.get(decision.reservation.reservation_id)
            assert (read.node_id, read.state) == (decision.node.node_id, ReservationState.PENDING)
    nodes = await ledger.nodes.list()
    assert sum(node.pending.cpu_count for node in nodes) >= 3 * rounds
    assert failing > 20
    await repair(ledger, apply=True)
    await assert_ledger_is_sound(ledger)
    assert sum(node.pending.cpu_count for node in await ledger.nodes.list()) == 3 * rounds


async def test_a_batch_stopped_at_any_command_and_asked_for_again_reserves_each_creation_once(
    open_ledger_on: OpenLedger,
) -> None:
    ledger = await open_ledger_on(LedgerSettings(strategy=Strategy.LEAST_LOADED))
    await fleet(ledger, [NodeSnapshot(NodeStatus.READY, 200, 200 * GIB)] * 3)
    failing, step, rounds, whole = 0, 7 if ledger.client.embedded else 1, 0, 0
    while whole < 4:  # how many commands there are differs a little from one batch to the next
        failing, rounds = failing + step, rounds + 1
        asked = BatchRequest((ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64)),) * 4, True, str(failing))
        async with stopped(ledger.client, Stop("schedule_batch", failing)):
            try:
                await ledger.placements.schedule_batch(asked)
                whole += 1
            except SchedulerError:
                whole = 0
        decided = await ledger.placements.schedule_batch(asked)
        assert [placed.index for placed in decided.placed] == [0, 1, 2, 3]
        for name in await ledger.client.command("KEYS", f"{ledger.keys.tag}:batch:*"):
            assert await ledger.client.command("PTTL", name) > 0, f"stopped at command {failing}"
        for placed in decided.placed:
            read = await ledger.reservations.get(placed.reservation.reservation_id)
            assert (read.node_id, read.state) == (placed.node.node_id, ReservationState.PENDING)
    assert failing > 30
    await repair(ledger, apply=True)
    await assert_ledger_is_sound(ledger)
    assert sum(node.pending.cpu_count for node in await ledger.nodes.list()) == 4 * rounds


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_one_that_cannot_be_sent_or_is_cancelled_disturbs_no_other(ledger: Ledger) -> None:
    await fleet(ledger, [NodeSnapshot(NodeStatus.READY, 16, 16 * GIB)] * 2)
    calls = together(ledger)

    def ask(caller: str = "c", cpu_count: int = 1) -> asyncio.Task[Decision]:
        request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, cpu_count, 64), caller=caller)
        return asyncio.create_task(ledger.placements.schedule(request))

    asked = [ask(), ask(cpu_count=17), ask(), ask(), ask()]
    await asyncio.sleep(0)
    asked[2].cancel()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in outcomes] == [Decision, NoNodes, asyncio.CancelledError, Decision, Decision]
    assert [script for script, _, _ in calls] == ["schedule_sandboxes", "schedule_sandbox"]
    assert sum(node.pending.cpu_count for node in await ledger.nodes.list()) == 3
    # A text that no server can be sent fails the call, and then only its own request.
    outcomes = await asyncio.gather(ask(), ask("\ud800"), ask(), return_exceptions=True)
    assert [type(each) for each in outcomes] == [Decision, InvalidRequest, Decision]
    assert sum(node.pending.cpu_count for node in await ledger.nodes.list()) == 5


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_placement_by_itself_is_sent_as_ever_and_of_many_half_leaves_while_half_comes(ledger: Ledger) -> None:
    await fleet(ledger, [NodeSnapshot(NodeStatus.READY, 200, 200 * GIB)] * 2)
    calls = together(ledger)
    ledger.placements._several._crowded = False
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64))
    for _ in range(2):
        await ledger.placements.schedule(request)
    assert [script for script, _, _ in calls] == ["schedule_sandbox"] * 2
    # A call leaves with eight, or with half of those that are under way, or with thirty-two; the last with the turn.
    for seconds, expected in ((3_600, [2, 8, 9, 18, 32]), (60, [6, 8, 8, 16, 32])):
        calls.clear()
        with within(seconds):
            await asyncio.gather(*(ledger.placements.schedule(request) for _ in range(70)))
        sizes = sorted(len(arguments) // 12 for script, arguments, _ in calls if script == "schedule_sandboxes")
        assert sizes == expected
    ledger.placements._several._crowded = True
    calls.clear()
    await ledger.placements.schedule(request)
    assert [script for script, _, _ in calls] == ["schedule_sandbox"]


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_calls_of_a_forgotten_script_or_a_lost_connection_place_each_sandbox_once(ledger: Ledger) -> None:
    await fleet(ledger, [NodeSnapshot(NodeStatus.READY, 200, 200 * GIB)] * 2)
    calls = together(ledger)
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64))

    def ask(number: int) -> list[asyncio.Task[Decision]]:
        return [asyncio.create_task(ledger.placements.schedule(request)) for _ in range(number)]

    await ledger.client.command("SCRIPT", "FLUSH")
    await asyncio.gather(*ask(40))
    assert {script for script, _, _ in calls} == {"schedule_sandboxes"}
    calls.clear()
    asked = ask(40)
    await asyncio.sleep(0)
    connection = ledger.client._attempts.open_connection(ledger.keys.settings)
    assert (connection is None) == ledger.client.embedded
    if connection is not None:
        connection.close()
    await asyncio.gather(*asked)
    assert sum(node.pending.cpu_count for node in await ledger.nodes.list()) == 80
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.ROUND_ROBIN)
async def test_a_strategy_that_takes_turns_is_asked_alone(ledger: Ledger) -> None:
    await fleet(ledger, [NodeSnapshot(NodeStatus.READY, 16, 16 * GIB)] * 2)
    calls = together(ledger)
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64))
    for _ in range(2):
        await asyncio.gather(*(ledger.placements.schedule(request) for _ in range(3)))
    assert [script for script, _, _ in calls] == ["schedule_sandboxes", *["schedule_sandbox"] * 6]


def order_of(calls: Sequence[Made], requests: Sequence[Any]) -> list[int]:
    """The places of the requests in the order in which the ledger has decided them."""
    left: dict[tuple[str, str], list[int]] = {}
    for index, request in enumerate(requests):
        identity = (
            request_codec.keyed_reservation_id(request.caller, request.idempotency_key),
            request_codec.fingerprint(request),
        )
        left.setdefault(identity, []).append(index)
    order: list[int] = []
    for script, arguments, (status, *reply) in calls:
        if script == "schedule_sandbox" and status != "refresh" and left.get(arguments[:2]):
            order.append(left[arguments[:2]].pop(0))
        elif status == "several":
            for place, answer in enumerate(reply):
                identity = arguments[12 * place], arguments[12 * place + 1]
                if answer[0] != b"alone":
                    order.append(left[identity].pop(0))
    return order
