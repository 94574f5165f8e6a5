"""An older ledger is converted: what it reserved is kept, and the older version writes nothing any more."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.exceptions

from scheduler.connection.keys import Keys
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import ReservationState
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes, StoreUnavailable, StoreUnusable
from scheduler.ledger.format import FORMAT
from scheduler.ledger.ledger import Ledger
from tests.conftest import OpenLedger
from tests.support.backends import Backend
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound
from tests.upgrade.old_ledger import OLD, SCRIPTS, contents, put_old_ledger

DOMAIN = "old"
KEYS = Keys(DOMAIN)
RESERVATIONS: dict[str, str] = OLD["reservations"]
SETTINGS = LedgerSettings(strategy=Strategy.LEAST_LOADED, revision=7, overcommit_cpu=2000)
SCRIPT_NAMES = pytest.mark.parametrize("name", SCRIPTS)


@pytest.fixture
async def raw(backend: Backend) -> AsyncIterator[Any]:
    client = backend.client()
    await put_old_ledger(client, KEYS)
    yield client
    await client.aclose()


@pytest.fixture
async def old(raw: Any, open_ledger_on: OpenLedger, clock: VirtualClock) -> Ledger:
    """Opened by this version, not converted."""
    clock.advance(OLD["now_ms"] - clock())
    return await open_ledger_on(domain=DOMAIN)


@pytest.fixture
async def converted(old: Ledger) -> Ledger:
    assert await old.conversion.convert()
    await old.settings.put(SETTINGS, "new")
    while await old.settings.refresh():
        pass
    return old


async def run_old(raw: Any, name: str) -> Any:
    return await raw.eval(SCRIPTS[name], 1, KEYS.fenced_settings, *OLD["arguments"][name])


async def stopped(raw: Any, name: str) -> None:
    """A recount only reads, and some of them read nothing that is fenced."""
    if name.startswith("recount_"):
        with contextlib.suppress(redis.exceptions.ResponseError):
            await run_old(raw, name)
        return
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        await run_old(raw, name)


async def test_the_old_ledger_is_refused_and_not_touched(old: Ledger, raw: Any) -> None:
    before = await contents(raw, KEYS)
    with pytest.raises(StoreUnusable, match=r"version 0\.1 .* inspect upgrade"):
        await old.settings.put(SETTINGS, "new")
    with pytest.raises(StoreUnavailable):
        await old.placements.schedule(ScheduleRequest())
    assert await contents(raw, KEYS) == before


async def test_looking_reports_what_is_there_and_writes_nothing(old: Ledger, raw: Any) -> None:
    before = await contents(raw, KEYS)
    found = await old.conversion.look()
    assert found is not None
    assert (found.converting, found.nodes, found.open_reservations, found.bindings) == (False, 3, 2, 4)
    assert await contents(raw, KEYS) == before


@SCRIPT_NAMES
async def test_a_script_of_the_old_version_runs_before_and_writes_nothing_after(
    name: str, old: Ledger, raw: Any
) -> None:
    await run_old(raw, name)
    await raw.flushall()
    await put_old_ledger(raw, KEYS)
    await old.conversion.convert()
    before = await contents(raw, KEYS)
    await stopped(raw, name)
    assert await contents(raw, KEYS) == before


@SCRIPT_NAMES
async def test_a_script_of_the_old_version_is_stopped_by_the_first_slice(name: str, old: Ledger, raw: Any) -> None:
    await old.runner.run("convert_ledger")
    before = await contents(raw, KEYS)
    await stopped(raw, name)
    assert await contents(raw, KEYS) == before
    with pytest.raises(StoreUnavailable, match="being converted"):
        await old.settings.put(SETTINGS, "new")


async def test_open_reservations_are_kept(converted: Ledger) -> None:
    states = {name: (await converted.reservations.get(id_)).state for name, id_ in RESERVATIONS.items()}
    assert states == {name: ReservationState(name) for name in RESERVATIONS}
    nodes = {node.node_id: node for node in await converted.nodes.list()}
    assert set(nodes) == {"node-a", "node-b", "node-c"}
    assert sum(node.pending.cpu_count for node in nodes.values()) == 2 + 3
    assert nodes["node-c"].discovery.value == "lingering"
    for sandbox_id in ("running-1", "confirmed-1", "settled-1", "assigned-1"):
        await converted.bindings.lookup(sandbox_id)
    assert (await converted.templates.get("base")).cpu_count == 2
    found = await converted.settings.get()
    assert found is not None
    assert found[0] == SETTINGS
    await assert_ledger_is_sound(converted)


async def test_no_capacity_is_given_twice(converted: Ledger) -> None:
    """32 CPUs on each of two nodes with overcommit: 2 + 5 reported, 2 + 3 reserved."""
    placed = 0
    with contextlib.suppress(NoNodes):
        while placed < 100:
            await converted.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64)))
            placed += 1
    reported = sum(int(OLD["keys"][f"node:{node_id}"]["value"]["allocated_cpu"]) for node_id in ("node-a", "node-b"))
    assert placed == 64 - reported - 2 - 3
    await assert_ledger_is_sound(converted)


async def test_a_reservation_goes_on_where_it_stood(converted: Ledger) -> None:
    confirmed = await converted.reservations.confirm(RESERVATIONS["pending"], "late-1")
    assert confirmed.reservation.state is ReservationState.CONFIRMED
    assert (await converted.bindings.lookup("late-1")).node.node_id == confirmed.reservation.node_id
    await assert_ledger_is_sound(converted)


async def test_converting_again_changes_nothing(converted: Ledger, raw: Any) -> None:
    before = await contents(raw, KEYS)
    assert await converted.conversion.look() is None
    assert not await converted.conversion.convert()
    assert await contents(raw, KEYS) == before


async def make_format_3(ledger: Ledger, raw: Any) -> None:
    """As it kept the same: rows and sets without labels, and none of the settings that came later."""
    await raw.hset(ledger.keys.settings, "format", 3)


async def make_format_2(ledger: Ledger, raw: Any) -> None:
    """As it kept the same: indexes by size of request, which follow a journal, and no rows."""
    keys = ledger.keys
    async for key in raw.scan_iter(keys.pattern):
        if keys.name_of(key).split(":")[0] in {"row", "unknown", "classes", "heads"}:
            await raw.delete(key)
    await raw.hset(keys.named("shapes"), "2:2048", "1,1700000000000,c")
    await raw.zadd(keys.named("shape:2:2048"), {"0" * 30 + "node-a": 0.5})
    await raw.rpush(keys.named("journal"), "0" * 30 + "node-a")
    await raw.hset(keys.rotations, "journal_base", 7)
    await raw.hset(keys.settings, "format", 2)


@pytest.mark.parametrize(("number", "make"), [(2, make_format_2), (3, make_format_3)])
async def test_a_ledger_of_an_earlier_format_is_converted(number: int, make: Any, converted: Ledger, raw: Any) -> None:
    held = {node.node_id: node.pending for node in await converted.nodes.list()}
    await make(converted, raw)
    with pytest.raises(StoreUnusable, match=rf"format {number} .* inspect upgrade"):
        await converted.placements.schedule(ScheduleRequest())
    found = await converted.conversion.look()
    assert found is not None
    assert (found.made_by, found.converting, found.nodes) == (f"format {number}", False, 3)
    assert await converted.conversion.convert()
    assert await converted.conversion.look() is None
    decision = await converted.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64)))
    assert decision.node.node_id in held
    await converted.reservations.cancel(decision.reservation.reservation_id if decision.reservation else "")
    assert {node.node_id: node.pending for node in await converted.nodes.list()} == held
    await assert_ledger_is_sound(converted)


@pytest.mark.parametrize("number", [2, 3])
async def test_a_script_of_an_earlier_format_refuses_in_words(number: int, converted: Ledger, raw: Any) -> None:
    text = converted.client.scripts.render("list_bindings")
    text = text.replace(f"local FORMAT = '{FORMAT}'", f"local FORMAT = '{number}'")
    before = await contents(raw, KEYS)
    reply = await raw.eval(text, 1, KEYS.settings, "", "", "10")
    assert reply == ["unknown", "format", str(FORMAT)]
    assert await contents(raw, KEYS) == before


async def test_an_empty_ledger_is_not_converted(open_ledger_on: OpenLedger) -> None:
    ledger = await open_ledger_on()
    assert await ledger.conversion.look() is None
    assert not await ledger.conversion.convert()
    assert await ledger.settings.get() is None
