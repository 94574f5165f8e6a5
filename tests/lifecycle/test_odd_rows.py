"""Rows that cannot be read, are gone, or count what is no more: made anew, counted, and never a defect."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.domain.node import DiscoveryState
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes, StoreUnusable
from scheduler.inspection.repair import repair
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.odd_hashes import NODE_NUMBERS
from scheduler.service import build_services
from tests.lifecycle.cluster import Cluster
from tests.support.backends import Backend
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

pytestmark = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)

SMALL = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64))
NEGATIVE = "r,16,34359738368,0,0,0,0,0,-2,0,-1"
ANOTHER_COLUMN = "r,16,34359738368,0,0,0,0,0,0,0,0,7"
UNREADABLE = pytest.mark.parametrize("row", [NEGATIVE, ANOTHER_COLUMN, "", "nonsense", "r", "z,1"])


async def break_row(backend: Backend, ledger: Ledger, node_id: str, row: str) -> None:
    client: Any = backend.client()
    await client.hset(ledger.keys.loads, node_id, row)
    await client.aclose()


async def two_nodes(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    await cluster.place(2)


async def fill(cluster: Cluster) -> int:
    """Place until no node takes more; how many."""
    for placed in range(100):
        try:
            await cluster.place(1, 64)
        except NoNodes:
            return placed
    pytest.fail("the nodes are never full")


@UNREADABLE
async def test_an_unreadable_row_is_made_anew_by_whoever_meets_it(
    row: str, ledger: Ledger, cluster: Cluster, backend: Backend
) -> None:
    await two_nodes(cluster)
    held = await cluster.pending("a")
    await break_row(backend, ledger, "a", row)
    assert await cluster.pending("a") == held
    assert {node.node_id for node in await ledger.nodes.list()} == {"a", "b"}
    await cluster.report("a")
    assert await cluster.pending("a") == held
    assert (await ledger.settings.stats())["rows_rebuilt"] >= 1
    await assert_ledger_is_sound(ledger)


@UNREADABLE
async def test_placements_go_on_beside_an_unreadable_row(
    row: str, ledger: Ledger, cluster: Cluster, backend: Backend
) -> None:
    await two_nodes(cluster)
    await break_row(backend, ledger, "a", row)
    placed = await fill(cluster)
    await cluster.report("a")
    placed += await fill(cluster)
    assert placed == 2 * 16 - 2
    await assert_ledger_is_sound(ledger)


@UNREADABLE
async def test_a_node_with_an_unreadable_row_can_be_put_and_removed(
    row: str, ledger: Ledger, cluster: Cluster, backend: Backend
) -> None:
    await two_nodes(cluster)
    await break_row(backend, ledger, "a", row)
    await cluster.discover("a")
    await break_row(backend, ledger, "a", row)
    await ledger.nodes.remove("a")
    assert {node.node_id for node in await ledger.nodes.list()} == {"b"}
    await assert_ledger_is_sound(ledger)


async def test_a_row_that_holds_too_much_is_right_with_the_next_report(
    ledger: Ledger, cluster: Cluster, backend: Backend
) -> None:
    await cluster.add("a")
    await cluster.place(2)
    await break_row(backend, ledger, "a", "r,16,34359738368,0,0,0,0,0,14,0,3")
    assert (await cluster.pending("a"))[0] == 14
    await cluster.report("a")
    assert (await cluster.pending("a"))[0] == 2
    await assert_ledger_is_sound(ledger)


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_node_that_is_chosen_without_being_there_is_taken_out(
    strategy: Strategy, open_ledger_on: Any, backend: Backend, clock: VirtualClock
) -> None:
    ledger = await open_ledger_on(LedgerSettings(strategy=strategy))
    cluster = Cluster(build_services(ledger), clock)
    await two_nodes(cluster)
    client: Any = backend.client()
    for ghost in ("a", "c"):
        await client.hdel(ledger.keys.loads, ghost)
        for name in (ledger.keys.candidates, ledger.keys.ready):
            await client.zadd(name, {ghost: 0})
        for kind in (ledger.keys.row, ledger.keys.unknown):
            async for name in client.scan_iter(kind("*")):
                await client.zadd(name, {"0" * 30 + ghost: 0})
    await client.aclose()
    for number in range(6):
        assert (await cluster.place(1, 64, idempotency_key=f"after-{number}")).node_id == "b"


async def test_repair_tells_first_and_writes_when_asked(ledger: Ledger, cluster: Cluster, backend: Backend) -> None:
    await two_nodes(cluster)
    await break_row(backend, ledger, "a", "r,16,34359738368,0,0,0,0,0,14,0,3")
    told = await repair(ledger, apply=False)
    assert "node a" in {finding.subject for finding in told.found}
    assert told.left == told.found
    assert (await cluster.pending("a"))[0] == 14
    done = await repair(ledger, apply=True)
    assert not done.left
    assert (await cluster.pending("a"))[0] + (await cluster.pending("b"))[0] == 2


LOST = pytest.mark.parametrize("what", ["row", "heads", "classes"])


@LOST
async def test_a_node_that_the_index_lost_comes_back_with_its_reports(
    what: str, ledger: Ledger, cluster: Cluster, backend: Backend
) -> None:
    await two_nodes(cluster)
    await lose(what, ledger, backend)
    for _ in range(64):  # one report in sixteen looks
        await cluster.report("a")
        await cluster.report("b")
    assert await fill(cluster) == 2 * 16 - 2
    await assert_ledger_is_sound(ledger)


@LOST
async def test_a_repair_brings_back_what_the_index_lost(
    what: str, ledger: Ledger, cluster: Cluster, backend: Backend
) -> None:
    await two_nodes(cluster)
    await lose(what, ledger, backend)
    assert not (await repair(ledger, apply=True)).left
    assert await fill(cluster) == 2 * 16 - 2


async def lose(what: str, ledger: Ledger, backend: Backend) -> None:
    client: Any = backend.client()
    if what == "row":
        async for name in client.scan_iter(ledger.keys.row("*")):
            await client.delete(name)
    else:
        await client.delete(ledger.keys.heads if what == "heads" else ledger.keys.classes)
    await client.aclose()


async def test_a_figure_that_was_changed_by_hand_is_named_whoever_stumbles_over_it(
    ledger: Ledger, cluster: Cluster
) -> None:
    await two_nodes(cluster)
    placed = await ledger.placements.schedule(SMALL)
    assert placed.reservation is not None
    node_id, reservation_id = placed.node.node_id, placed.reservation.reservation_id

    async def told(call: Callable[[], Awaitable[object]], key: str, field: str, found: str = "much") -> str:
        before = await ledger.client.command("HGET", key, field)
        await ledger.client.command("HSET", key, field, found)
        with pytest.raises(StoreUnusable) as raised:
            await call()
        restore = ("HDEL", key, field) if before is None else ("HSET", key, field, before)
        await ledger.client.command(*restore)
        return raised.value.detail

    node, instance = ledger.keys.node(node_id), (await ledger.nodes.get(node_id)).service_instance_id
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "roster_whole": lambda: cluster.report(node_id),
        "create_successes": lambda: cluster.report(node_id),
        "counts": lambda: ledger.nodes.unregister(node_id, instance),
        "last_seen_ms": lambda: ledger.nodes.set(node_id, "http://elsewhere:1", DiscoveryState.LINGERING),
    }
    for field, call in calls.items():
        for found in ("much", ""):
            assert await told(call, node, field, found) == (
                f"the ledger's node {node_id} cannot be read by this version: {field} is {found!r}, which is no number"
            )
    of_reservation = await told(
        lambda: ledger.reservations.cancel(reservation_id), ledger.keys.reservation(reservation_id), "held_cpu"
    )
    assert f"reservation {reservation_id} cannot be read" in of_reservation
    await cluster.report(node_id)
    await assert_ledger_is_sound(ledger)


def test_every_number_of_a_node_is_known() -> None:
    """Held to the scripts, which name them."""
    folder = Path(__file__).parents[2] / "lua" / "include"
    for file, name in (("account.lua", "ACCOUNT"), ("figure_names.lua", "FIGURES")):
        listed = (folder / file).read_text("utf-8").partition(f"local {name} = {{")[2].partition("}")[0]
        assert set(re.findall("'([a-z_]+)'", listed)) <= NODE_NUMBERS
