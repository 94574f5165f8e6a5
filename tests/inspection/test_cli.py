"""`inspect` as an operator types it, against a real server and no replica at all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from scheduler import cli
from scheduler.domain.settings import LedgerSettings
from scheduler.inspection.where import Where, ledger_at
from scheduler.ledger.ledger import open_ledger
from scheduler.operating.words import age, bar, size
from tests.inspection.busy import SETTINGS, Busy, make_busy
from tests.support.backends import put_settings
from tests.support.servers import RedisServer, free_port

DOMAIN = "inspected"


@pytest.fixture
def busy(real_server: RedisServer) -> Busy:
    async def fill() -> Busy:
        ledger = await open_ledger(real_server.address, domain=DOMAIN)
        await put_settings(ledger, SETTINGS)
        made = await make_busy(ledger)
        await ledger.close()
        return made

    return asyncio.run(fill())


class Inspect:
    """Runs one command and keeps its exit status."""

    def __init__(self, server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.capsys = server, capsys
        self.status = 0
        self.errors = ""

    def __call__(self, *arguments: str) -> str:
        try:
            cli.main(["inspect", *arguments, "--redis-addr", self.server.address, "--domain", DOMAIN])
        except SystemExit as end:
            self.status = int(end.code or 0)
        shown = self.capsys.readouterr()
        self.errors = shown.err
        return shown.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def inspect(real_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> Inspect:
    return Inspect(real_server, capsys)


def test_nodes_show_what_is_pending_and_why_one_is_not_chosen(inspect: Inspect, busy: Busy) -> None:
    nodes = {node["node_id"]: node for node in inspect.json("nodes")["nodes"]}
    assert list(nodes) == ["a", "b:1", "c", "drained"]
    assert nodes["drained"]["ineligible_reason"] == "lingering"
    assert nodes[busy.node("pending")]["pending"]["cpu_count"] == 1
    table = inspect("nodes")
    assert "drained  draining" in table
    assert "1: 1 CPU, 1 GiB" in table


def test_a_node_tells_how_full_it_is_and_of_what(inspect: Inspect, busy: Busy) -> None:
    page = inspect("node", busy.node("pending"))
    assert "0 active + 0 paused + 1 pending = 1 of 64, 63 left" in page
    assert busy.id("pending") in page
    found = inspect.json("node", busy.node("pending"))
    assert found["cpu_capacity"] == 64
    assert [entry["reservation_id"] for entry in found["open"]] == [busy.id("pending")]


def test_both_views_of_a_node_go_by_what_it_has_after_overcommit(inspect: Inspect, busy: Busy) -> None:
    async def overcommit() -> None:
        ledger = await open_ledger(inspect.server.address, domain=DOMAIN)
        await ledger.settings.put(replace(SETTINGS, overcommit_cpu=2000, revision=SETTINGS.revision + 1), "replica")
        while await ledger.settings.refresh():
            pass
        await ledger.close()

    asyncio.run(overcommit())
    node_id = busy.node("pending")
    assert "0 of 128  0 B of 64 GiB" in inspect("nodes")
    assert "= 1 of 128 (advertised 64), 127 left" in inspect("node", node_id)
    listed = {node["node_id"]: node["cpu_capacity"] for node in inspect.json("nodes")["nodes"]}
    assert listed[node_id] == inspect.json("node", node_id)["cpu_capacity"] == 128


def test_reservations_are_filtered_by_node_state_and_age(inspect: Inspect, busy: Busy) -> None:
    def ids(*filters: str) -> set[str]:
        return {entry["reservation_id"] for entry in inspect.json("reservations", *filters)["reservations"]}

    assert ids() == {reservation.reservation_id for reservation in busy.placed.values()}
    assert ids("--state", "cancelled") == {busy.id("cancelled")}
    assert ids("--state", "settled") == {busy.id("settled"), busy.id("counted")}
    on_node = {name for name, reservation in busy.placed.items() if reservation.node_id == busy.node("pending")}
    assert ids("--node", busy.node("pending")) == {busy.id(name) for name in on_node}
    assert ids("--older-than", "1h") == set()
    assert ids("--older-than", "1ms") == ids()
    assert len(ids("--limit", "2")) == 2


def test_what_is_no_duration_is_a_mistake_of_the_caller(inspect: Inspect, busy: Busy) -> None:
    inspect("reservations", "--older-than", "soon")
    assert inspect.status == 2
    assert "--older-than must be a duration" in inspect.errors


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pending", ["placed on node", "asked by anonymous, request request-pending", "still open", "holds"]),
        ("confirmed", ["sandbox s-confirmed came of it", "bound to node", "told by a caller"]),
        ("settled", ["settled: report ", "lists sandbox s-settled"]),
        ("cancelled", ["given back (changed my mind)", "1024 MiB, given back"]),
        ("counted", ["settled: the counters in report ", "grew by as much"]),
        ("named", ["told of the create of sandbox s-named", "suggested by an event", "bound to node c now"]),
    ],
)
def test_a_reservation_tells_its_whole_story(name: str, told: list[str], inspect: Inspect, busy: Busy) -> None:
    story = inspect("reservation", busy.id(name))
    assert all(part in story for part in told), story or inspect.errors


def test_the_story_names_the_report_that_settled_it(inspect: Inspect, busy: Busy, real_server: RedisServer) -> None:
    story = inspect.json("reservation", busy.id("settled"))
    with real_server.client() as client:
        reports = client.hget(f"aenv:{{{DOMAIN}}}:node:b%3A1", "generation")
    assert 0 < int(story["report_generation"]) <= int(reports)
    assert [moment["what"].split(":")[0].split(" ")[0] for moment in story["moments"]] == [
        "placed",
        "confirmed",
        "settled",
    ]
    assert story["binding_node_id"] == busy.node("settled")


def test_an_unknown_reservation_or_node_is_told_as_such(inspect: Inspect, busy: Busy) -> None:
    inspect("reservation", "nobody")
    assert (inspect.status, "is not known" in inspect.errors) == (1, True)
    inspect("node", "nobody")
    assert (inspect.status, "is not known" in inspect.errors) == (1, True)


def test_the_index_tells_its_classes(inspect: Inspect, busy: Busy) -> None:
    found = inspect.json("index")["classes"]
    ranked = next(each for each in found if each["name"] == "r,-,64,68719476736,-,")
    assert (ranked["kind"], ranked["pool"], ranked["nodes"], ranked["cpu_capacity"]) == ("class", "r", 3, 64)
    assert ranked["least_memory_bytes"] == ranked["most_memory_bytes"] == 68_719_476_736
    assert "r,-,64,68719476736,-," in inspect("index")


def test_groups_show_how_full_each_budget_is(inspect: Inspect, busy: Busy) -> None:
    found = inspect.json("groups")
    assert found["total"] == len(found["groups"]) == 6
    table = inspect("groups", "--limit", "3")
    assert "█░░░░░░░░░ 1 of 10" in table
    assert "3 more are open" in inspect.errors


def test_a_sound_ledger_is_told_to_be_one(inspect: Inspect, busy: Busy) -> None:
    report = inspect.json("check")
    assert (report["ok"], report["violations"], inspect.status) == (True, [], 0)
    assert "all of it adds up" in inspect("check")


def test_what_does_not_add_up_ends_with_status_1(inspect: Inspect, busy: Busy, real_server: RedisServer) -> None:
    with real_server.client() as client:
        client.set(f"aenv:{{{DOMAIN}}}:leftover", 1)
        client.srem(f"aenv:{{{DOMAIN}}}:node:a:sandboxes", "old-a")
    report = inspect.json("check")
    assert inspect.status == 1
    assert not report["ok"]
    assert report["violations"] == [
        "key aenv:{inspected}:leftover is one that nothing explains",
        "node a baseline_ids is 1, its roster adds up to 0",
        "sandbox old-a is bound to node a, which neither lists nor awaits it as recorded",
    ]
    assert "3 things do not add up" in inspect("check")


def test_a_server_that_may_lose_the_ledger_is_noted_and_no_violation(
    inspect: Inspect, busy: Busy, real_server: RedisServer
) -> None:
    with real_server.client() as client:
        before = client.config_get("appendonly")["appendonly"]
        client.config_set("appendonly", "no")
        try:
            assert [note.partition(":")[0] for note in inspect.json("check")["notes"]] == ["appendonly is no"]
            assert "note: appendonly is no" in inspect("check")
        finally:
            client.config_set("appendonly", before)
    assert inspect.status == 0


@pytest.mark.parametrize("what", ["nodes", "groups", "index", "reservations"])
def test_a_ledger_that_was_never_opened_is_told_as_such(what: str, inspect: Inspect) -> None:
    assert inspect(what) == ""
    assert inspect.status == 1
    assert f"the ledger at redis://{inspect.server.address} of domain {DOMAIN} holds no settings yet" in inspect.errors


def test_a_check_that_could_not_look_ends_with_status_2(inspect: Inspect, capsys: pytest.CaptureFixture[str]) -> None:
    inspect("check")
    assert (inspect.status, "holds no settings yet" in inspect.errors) == (2, True)
    with pytest.raises(SystemExit) as end:
        cli.main(["inspect", "check", "--redis-addr", f"127.0.0.1:{free_port()}"])
    assert end.value.code == 2
    assert "127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["groups"], "no open groups\n"),
        (["reservations"], "no reservations\n"),
        (["reservations", "--state", "pending"], "no reservations like that\n"),
        (["index"], "no node is ranked\n"),
        (["nodes"], "no nodes\n"),
    ],
)
def test_an_empty_list_is_told_in_words(arguments: list[str], told: str, inspect: Inspect) -> None:
    async def open_one() -> None:
        ledger = await open_ledger(inspect.server.address, domain=DOMAIN)
        await put_settings(ledger, SETTINGS)
        await ledger.close()

    asyncio.run(open_one())
    assert inspect(*arguments) == told
    assert inspect.status == 0


def test_the_embedded_ledger_cannot_be_looked_into(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["inspect", "nodes", "--redis-addr", "embedded"])
    assert end.value.code == 2
    assert "--redis-addr" in capsys.readouterr().err


def test_settings_are_not_changed_by_looking(inspect: Inspect, busy: Busy, real_server: RedisServer) -> None:
    async def stored() -> LedgerSettings | None:
        ledger = await open_ledger(real_server.address, domain=DOMAIN)
        found = await ledger.settings.get()
        await ledger.close()
        return found[0] if found else None

    inspect("nodes")
    assert asyncio.run(stored()) == SETTINGS


@pytest.mark.parametrize(("ms", "shown"), [(0, "0s"), (250, "250ms"), (1_999, "1s"), (5_430_000, "1h30m30s")])
def test_ages_are_told_in_whole_seconds(ms: int, shown: str) -> None:
    assert age(ms) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**36, "64 GiB")])
def test_sizes_are_told_in_powers_of_two(count: int, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("used", "budget", "shown"), [(3, 0, "3"), (4, 10, "████░░░░░░ 4 of 10"), (12, 10, "██████████ 12 of 10")]
)
def test_a_bar_shows_what_is_used_of_a_budget(used: int, budget: int, shown: str) -> None:
    assert bar(used, budget) == shown


async def test_a_look_waits_longer_for_a_busy_server_than_a_request_and_never_shorter_than_configured(
    real_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ledger_at(Where(real_server.address), settled=False) as ledger:
        options = ledger.client.options
        assert (options.attempt_timeout_ms, options.operation_timeout_ms) == (10_000, 15_000)
        assert options.connect_timeout_ms == 5_000
    monkeypatch.setenv("SCHEDULER_STORE_OPERATION_TIMEOUT", "60s")
    async with ledger_at(Where(real_server.address), settled=False) as ledger:
        assert ledger.client.options.operation_timeout_ms == 60_000
