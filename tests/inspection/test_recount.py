"""A check that cannot fail is worth nothing: every invariant is broken by hand, and must be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.connection.keys import Keys
from scheduler.domain.settings import LedgerSettings
from scheduler.inspection.key_table import KEY_TABLE, explain_key
from scheduler.inspection.recount import check, recount
from scheduler.ledger.ledger import Ledger
from tests.inspection.busy import SETTINGS, Busy, make_busy
from tests.support.backends import Backend

Commands = list[tuple[Any, ...]]


@pytest.fixture
def ledger_settings() -> LedgerSettings:
    return SETTINGS


# By ledger, what `make_busy` made: its keys as they are dumped, with the milliseconds they have left.
_made: dict[str, tuple[Busy, list[tuple[str, bytes, int]]]] = {}


@pytest.fixture
async def busy(ledger: Ledger, backend: Backend) -> Busy:
    """Made once, and put back for every test: making it takes longer than a test."""
    command, pipeline = ledger.client.command, ledger.client.pipeline
    if backend.name not in _made:
        busy = await make_busy(ledger)
        keys = sorted(await command("KEYS", "*"))
        dumps = await pipeline([("DUMP", key) for key in keys])
        left = await pipeline([("PTTL", key) for key in keys])
        _made[backend.name] = busy, [(key, dump, int(ms)) for key, dump, ms in zip(keys, dumps, left, strict=True)]
    busy, dumped = _made[backend.name]
    await backend.flush()
    await pipeline([("RESTORE", key, max(ms, 0), dump) for key, dump, ms in dumped])
    return busy


@dataclass(frozen=True)
class Break:
    """`commands` break what `named` then says, in part of one violation."""

    name: str
    named: str
    commands: Callable[[Keys, Busy], Commands]


def breaking(name: str, named: str, commands: Callable[[Keys, Busy], Commands]) -> Any:
    return pytest.param(Break(name, named, commands), id=name.replace(" ", "_"))


CLASS = "r,-,64,68719476736,-,"
ROW_OF_PENDING = f"{CLASS}:1"
ROW = "r,64,68719476736,0,0,0,0,0,{},{},{}"

BREAKS = [
    # Numbers.
    breaking("a figure that is text", "node a has 'much' as cpu_percent, which is no number", lambda k, b: [
        ("HSET", k.node("a"), "cpu_percent", "much")]),
    breaking("a sum that is text", "node a has '' as told_cpu, which is no number", lambda k, b: [
        ("HSET", k.node("a"), "told_cpu", "")]),
    breaking("a size that is text", "has 'two' as cpu_count, which is no number", lambda k, b: [
        ("HSET", k.reservation(b.id("pending")), "cpu_count", "two")]),
    # Nodes: the list, the row, the sets, the sightings.
    breaking("a row without its node", "node ghost has a row but is not listed", lambda k, b: [
        ("HSET", k.loads, "ghost", ROW.format(0, 0, 0))]),
    breaking("a node without its row", "node a is listed but has no row", lambda k, b: [("HDEL", k.loads, "a")]),
    breaking("a node that is not discovered", "node a is among the nodes but not discovered", lambda k, b: [
        ("HDEL", k.node("a"), "discovery")]),
    breaking("a node off the list", "node a is discovered but not among the nodes", lambda k, b: [
        ("ZREM", k.nodes, "a")]),
    breaking("a candidate missing", "node a is missing from candidates", lambda k, b: [("ZREM", k.candidates, "a")]),
    breaking("a node in a set too many", "node a does not belong in lingering", lambda k, b: [
        ("ZADD", k.lingering, 0, "a")]),
    breaking("a stranger among the ready", "node ghost does not belong in ready", lambda k, b: [
        ("ZADD", k.ready, 0, "ghost")]),
    breaking("a sighting of the wrong time", "node a last seen 1700000000000, listed with 5", lambda k, b: [
        ("ZADD", k.seen, 5, "a")]),
    breaking("a node seen and silent", "node a last seen 1700000000000, but in seen", lambda k, b: [
        ("ZADD", k.silent, 1_700_000_000_000, "a")]),
    breaking("a node nobody sees", "in seen: nothing, in silent: nothing", lambda k, b: [("ZREM", k.seen, "a")]),
    breaking("a stranger that is seen", "node ghost last seen nothing", lambda k, b: [("ZADD", k.seen, 5, "ghost")]),
    breaking("a report the row does not follow", "node a cpu_capacity is 64, its report says 32", lambda k, b: [
        ("HSET", k.node("a"), "cpu_count", 32)]),
    breaking("a load the report does not say", "node a memory_load is 0, its report says 7", lambda k, b: [
        ("HSET", k.node("a"), "allocated_memory_bytes", 7)]),
    breaking("a capacity that is missing", "68719476736 bytes with its 64 CPUs, kept: nothing", lambda k, b: [
        ("ZREM", k.capacity("64"), "a")]),
    breaking("a capacity of nobody", "capacities of nodes: there are", lambda k, b: [
        ("ZADD", k.capacity("64"), 7, "ghost")]),
    breaking("a capacity no node has", "names 7 CPUs, which no node has", lambda k, b: [
        ("ZADD", k.capacities, 7, "7")]),
    breaking("capacities that are not listed", "is not listed in capacities", lambda k, b: [
        ("ZADD", k.capacity("7"), 7, "ghost")]),
    breaking("an avoided node nobody watches", "node a is avoided at level 1, until nothing", lambda k, b: [
        ("HSET", k.node("a"), "avoid_level", 1)]),
    breaking("a stranger that is watched", "node ghost is avoided at level nothing, until 7", lambda k, b: [
        ("ZADD", k.avoided_until, 7, "ghost")]),
    breaking("a stranger among the avoided", "node ghost does not belong in avoided", lambda k, b: [
        ("ZADD", k.avoided, 0, "ghost")]),
    breaking("a pool the report contradicts", "node a is in pool r", lambda k, b: [
        ("HSET", k.node("a"), "status", "unhealthy")]),
    breaking("a limit nobody exceeds", "exceeds nothing, noted: max_sandbox_count", lambda k, b: [
        ("HSET", k.node("a"), "over_limit", "max_sandbox_count")]),
    breaking("a limit nobody noted", "exceeds max_sandbox_count, noted: nothing", lambda k, b: [
        ("HSET", k.settings, "max_sandbox_count", 2)]),
    breaking("settings the rows do not follow", "node a cpu_capacity is 64, its report says 128", lambda k, b: [
        ("HSET", k.settings, "overcommit_cpu", 2000)]),
    # What is pending.
    breaking("pending too high", "its row counts 9 CPUs, 1073741824 bytes, 1 sandboxes as pending", lambda k, b: [
        ("HSET", k.loads, b.node("pending"), ROW.format(9, 1_073_741_824, 1))]),
    breaking("pending too low", "its open reservations hold 1, 1073741824, 1", lambda k, b: [
        ("HSET", k.loads, b.node("pending"), ROW.format(1, 0, 1))]),
    breaking("a reservation that holds more than its node knows", "its open reservations hold 5,", lambda k, b: [
        ("HSET", k.reservation(b.id("pending")), "held_cpu", 5)]),
    breaking("a node that lists what ended", "as open; it is cancelled on a", lambda k, b: [
        ("ZADD", k.node_reservations(b.node("cancelled")), 1, b.id("cancelled"))]),
    breaking("a node that lists what never was", "lists reservation ghost as open; it is nothing", lambda k, b: [
        ("ZADD", k.node_reservations("a"), 1, "ghost")]),
    breaking("a claim missing", "on sandbox s-confirmed", lambda k, b: [
        ("HDEL", k.node_claims(b.node("confirmed")), "s-confirmed")]),
    breaking("a claim of nobody", "sandbox s-ghost is claimed by reservation ghost, which is nothing", lambda k, b: [
        ("HSET", k.node_claims("a"), "s-ghost", "ghost")]),
    breaking("an acknowledged one that is open", "is no longer one that counters settled unnamed", lambda k, b: [
        ("ZADD", k.node_acknowledged("a"), 1, b.id("pending"))]),
    breaking("an acknowledged one that is gone", "reservation ghost is no longer one that counters", lambda k, b: [
        ("ZADD", k.node_acknowledged("a"), 1, "ghost")]),
    breaking("an account its roster denies", "told_cpu is 9, its roster adds up to 0", lambda k, b: [
        ("HSET", k.node("a"), "told_cpu", 9)]),
    breaking("a discount of nothing", "its load is taken to hold 3 CPUs, 0 bytes, 0 sandboxes", lambda k, b: [
        ("HSET", k.node("a"), "discount_cpu", 3)]),
    breaking("an unnamed one that is not weighed", "has no sandbox and stands there as nothing", lambda k, b: [
        ("HDEL", k.node_unnamed(b.node("pending")), b.id("pending"))]),
    breaking("an unnamed one that is none", "reservation ghost is not open or has a sandbox", lambda k, b: [
        ("HSET", k.node_unnamed("a"), "ghost", "e,1,1,1,1")]),
    breaking("a delete that no record tells", "in its record or in the list, not in both", lambda k, b: [
        ("ZADD", k.node_deleted("a"), 5, "old-a")]),
    breaking("doubts of nobody", "ghost is not listed, and nothing will ever clear its doubts", lambda k, b: [
        ("HSET", k.node_doubts("ghost"), "r", "k,2,0,1,1")]),
    breaking("a CPU template that takes no part", "takes part in its cluster's CPU template", lambda k, b: [
        ("HSET", k.node_cpu_config("a"), "listed", 0)]),
    # What a node leaves behind.
    breaking("a roster of nobody", "is not listed, and nothing will ever clear its sandboxes", lambda k, b: [
        ("ZREM", k.forgotten, "gone")]),
    breaking("artifacts of nobody", "ghost is not listed, and nothing will ever clear its artifacts", lambda k, b: [
        ("SADD", k.node_artifacts("ghost"), "4:east|5:store|layer")]),
    breaking("reservations of nobody", "ghost is not listed, and nothing will ever clear its ack", lambda k, b: [
        ("ZADD", k.node_acknowledged("ghost"), 1, b.id("counted"))]),
    # Reservations and their lists.
    breaking("an open one that never expires", "expires at 1700000600000, due at nothing", lambda k, b: [
        ("ZREM", k.expiry, b.id("pending"))]),
    breaking("an open one due at another time", "expires at 1700000600000, due at 7", lambda k, b: [
        ("ZADD", k.expiry, 7, b.id("pending"))]),
    breaking("an open one its node does not list", "lists it with nothing", lambda k, b: [
        ("ZREM", k.node_reservations(b.node("pending")), b.id("pending"))]),
    breaking("a finished one its node does not list", "lists it as finished with nothing", lambda k, b: [
        ("ZREM", k.node_finished(b.node("cancelled")), b.id("cancelled"))]),
    breaking("a node that lists as finished what never was", "ghost is listed as finished here", lambda k, b: [
        ("ZADD", k.node_finished("a"), 1, "ghost")]),
    breaking("an open one listed as finished", "is pending but listed as finished", lambda k, b: [
        ("ZADD", k.finished, 1_700_009_999_999, b.id("pending"))]),
    breaking("one that nobody lists", "listed with nothing", lambda k, b: [
        ("ZREM", k.reservations, b.id("pending"))]),
    breaking("one that is listed and gone", "is listed but does not exist", lambda k, b: [
        ("DEL", k.reservation(b.id("pending")))]),
    breaking("a finished one that is gone too early", "is listed but does not exist", lambda k, b: [
        ("DEL", k.reservation(b.id("settled")))]),
    breaking("a finished one that holds", "is settled but still holds capacity", lambda k, b: [
        ("HSET", k.reservation(b.id("settled")), "held_count", 1)]),
    breaking("a finished one that will expire", "is cancelled but due to expire", lambda k, b: [
        ("ZADD", k.expiry, 7, b.id("cancelled"))]),
    breaking("a finished one never purged", "is cancelled but not listed as finished", lambda k, b: [
        ("ZREM", k.finished, b.id("cancelled"))]),
    breaking("a name that leads elsewhere", "carries sandbox s-confirmed, which names other", lambda k, b: [
        ("SET", k.sandbox("s-confirmed"), "other")]),
    breaking("a name that was not given back", "is cancelled but still carries sandbox s-x", lambda k, b: [
        ("HSET", k.reservation(b.id("cancelled")), "sandbox_id", "s-x"),
        ("SET", k.sandbox("s-x"), b.id("cancelled"), "PX", 60_000)]),
    breaking("a tombstone that is listed", "is a tombstone but listed", lambda k, b: [
        ("HSET", k.reservation(b.id("cancelled")), "tombstone", 1)]),
    breaking("one without a sequence", "lacks its state, node, sequence or deadline", lambda k, b: [
        ("HDEL", k.reservation(b.id("pending")), "sequence")]),
    # Bindings.
    breaking("a binding nobody lists", "is bound to node a, which neither lists nor awaits it", lambda k, b: [
        ("SREM", k.node_sandboxes("a"), "old-a")]),
    breaking("a roster without its binding", "is in the roster of node a but bound to nothing", lambda k, b: [
        ("HDEL", k.bindings, "old-a")]),
    breaking("two rosters with one sandbox", "is in the roster of node c but bound to node a", lambda k, b: [
        ("SADD", k.node_sandboxes("c"), "old-a")]),
    breaking("an assignment without its binding", "sandbox s-assigned is awaited but not bound", lambda k, b: [
        ("HDEL", k.bindings, "s-assigned")]),
    breaking("an assignment that no sweep will find", "s-assigned is bound to node c, which neither", lambda k, b: [
        ("ZREM", k.assigned, "s-assigned")]),
    breaking("an assignment that was seen", "is in the roster of node a and still awaited", lambda k, b: [
        ("ZADD", k.node_assigned("a"), 5, "old-a")]),
    breaking("an assignment of two nodes", "is awaited by node a but bound to node c", lambda k, b: [
        ("ZADD", k.node_assigned("a"), 5, "s-assigned")]),
    # Groups.
    breaking("a group that counts too much", "count is 9, its reservations were charged 1", lambda k, b: [
        ("HSET", k.groups, "image:image-pending", _group(b, "pending", count=9))]),
    breaking("a group that forgot a charge", "cpu is 0, its reservations were charged 1", lambda k, b: [
        ("HSET", k.groups, "image:image-pending", _group(b, "pending", cpu=0))]),
    breaking("a charge given back on paper only", "count is 1, its reservations were charged 0", lambda k, b: [
        ("HSET", k.reservation(b.id("pending")), "group_charged", 0)]),
    breaking("a group without recency", "is open but not listed as recent", lambda k, b: [
        ("ZREM", k.groups_recent, "image:image-pending")]),
    breaking("a recency without its group", "group image:image-pending is listed as recent but not open", lambda k, b: [
        ("HDEL", k.groups, "image:image-pending")]),
    # The index.
    breaking("an index that lost a node", "does not stand in row", lambda k, b: [
        ("ZREM", k.row(ROW_OF_PENDING), _member(b, "pending"))]),
    breaking("an index with a wrong load", "does not stand in row", lambda k, b: [
        ("ZINCRBY", k.row(ROW_OF_PENDING), 1, _member(b, "pending"))]),
    breaking("an index with a stranger", "holds node ghost, which belongs elsewhere", lambda k, b: [
        ("ZADD", k.row(ROW_OF_PENDING), 1, "0" * 30 + "ghost")]),
    breaking("a row that its class does not show", "its class shows", lambda k, b: [
        ("ZADD", k.row(ROW_OF_PENDING), -5, "0" * 30 + "ghost")]),
    breaking("a class that nobody is in", "which has none", lambda k, b: [("DEL", k.row(ROW_OF_PENDING))]),
    breaking("chunks that a class shows otherwise", "shows another least for rows from 0", lambda k, b: [
        ("HDEL", k.heads, f"{CLASS}:0")]),
    breaking("an unknown one too many", "unknown r holds node ghost", lambda k, b: [
        ("ZADD", k.unknown("r"), 0, "0" * 30 + "ghost")]),
    # Artifacts, templates, CPU templates, totals.
    breaking("an artifact nobody provides", "is listed but nobody provides it", lambda k, b: [
        ("ZADD", k.artifacts, 1, "4:east|5:store|ghost")]),
    breaking("an artifact that nothing can evict", "has providers but is not listed", lambda k, b: [
        ("ZREM", k.artifacts, "4:east|5:store|layer")]),
    breaking("a provider that does not offer", "names provider a, which does not offer it", lambda k, b: [
        ("SREM", k.node_artifacts("a"), "4:east|5:store|layer")]),
    breaking("an offer without its provider", "is offered by node a, which is not among its providers", lambda k, b: [
        ("HDEL", k.artifact("4:east|5:store|layer"), "a")]),
    breaking("artifacts counted wrong", "artifact_scopes: there are 5, expected 1", lambda k, b: [
        ("HSET", k.artifact_scopes, "4:east|5:store", 5)]),
    breaking("a template that is listed and gone", "template base is listed but does not exist", lambda k, b: [
        ("DEL", k.template("base"))]),
    breaking("a template nobody lists", "template:base is not listed in templates", lambda k, b: [
        ("ZREM", k.templates, "base")]),
    breaking("CPU templates counted wrong", "CPU templates of cluster east: there are", lambda k, b: [
        ("HINCRBY", k.cpu_config_counts("east"), "none", 3)]),
    breaking("a CPU template of a cluster without nodes", "although no node of it is observed", lambda k, b: [
        ("HSET", k.cpu_config_result("west"), "version", 1)]),
    breaking("more reservations than lists know", "expiry and finished together: there are", lambda k, b: [
        ("ZADD", k.reservations, 99_999, "ghost")]),
    # Keys: each is explained, has its type, and is bounded.
    breaking("a key nobody knows", "leftover is one that nothing explains", lambda k, b: [
        ("SET", k.named("leftover"), 1)]),
    breaking("a part nobody knows", "node:a:secret is one that nothing explains", lambda k, b: [
        ("SET", k.named("node:a:secret"), 1)]),
    breaking("a key of another type", "holds a string, not a hash", lambda k, b: [("SET", k.stats, 1)]),
    breaking("a node hash that stays", "belongs to a node that is not listed, and has no TTL", lambda k, b: [
        ("PERSIST", k.node("gone"))]),
    breaking("events remembered for ever", "explained has no TTL", lambda k, b: [
        ("PERSIST", k.node_explained(b.node("named")))]),
    breaking("a lease for ever", "lease:discovery has no TTL", lambda k, b: [("PERSIST", k.lease("discovery"))]),
    breaking("a finished reservation for ever", "is of a reservation that is cancelled, and has no TTL", lambda k, b: [
        ("PERSIST", k.reservation(b.id("cancelled")))]),
    breaking("an open reservation that vanishes", "is of a reservation that is pending, and has a TTL", lambda k, b: [
        ("PEXPIRE", k.reservation(b.id("pending")), 60_000)]),
    breaking("a name for ever", "which is settled and carries s-settled, and has no TTL", lambda k, b: [
        ("PERSIST", k.sandbox("s-settled"))]),
    breaking("a name of nothing", "leads to reservation ghost, which does not exist", lambda k, b: [
        ("SET", k.sandbox("s-ghost"), "ghost")]),
    breaking("a row of no class", "row:r,-,7,7,-,:3 is not of a class that is listed in classes", lambda k, b: [
        ("ZADD", k.row("r,-,7,7,-,:3"), 1, "0" * 30 + "a")]),
    breaking("something parked for ever", "artifact_leftovers:9 is not listed in artifact_leftovers", lambda k, b: [
        ("SADD", k.artifact_parked("9"), "x")]),
]  # fmt: skip


def _group(busy: Busy, name: str, *, count: int = 1, cpu: int = 1) -> str:
    sequence = busy.sequences[name]
    return f"{sequence},{count},{cpu},1024,1700000000000,{busy.node(name)}"


def _member(busy: Busy, name: str) -> str:
    """What the index holds of a node on which one placement is pending and nothing runs."""
    return f"{1:010d}{0:010d}{0:010d}{busy.node(name)}"


async def test_a_ledger_in_which_everything_has_happened_adds_up(ledger: Ledger, busy: Busy) -> None:
    report = await check(ledger)
    assert report.ok
    assert report.violations == ()


async def test_each_thing_counts_once_however_many_name_it(ledger: Ledger, busy: Busy) -> None:
    keys = ledger.keys
    counted = (("HLEN", "bindings"), ("HLEN", "groups"), ("HLEN", "classes"), ("ZCARD", "artifacts"))
    expected = {name: int(await ledger.client.command(count, keys.named(name))) for count, name in counted}
    assert all(expected.values())
    looked_at = (await check(ledger)).looked_at
    assert {name: looked_at[name] for name in expected} == expected


@pytest.mark.parametrize("case", BREAKS)
async def test_what_is_broken_is_named(case: Break, ledger: Ledger, busy: Busy, backend: Backend) -> None:
    client = backend.client()
    for command in case.commands(ledger.keys, busy):
        await client.execute_command(*command)
    await client.aclose()
    violations = await recount(ledger)
    assert any(case.named in violation for violation in violations), violations


async def test_a_check_writes_nothing(ledger: Ledger, busy: Busy) -> None:
    before = await _content(ledger)
    await check(ledger)
    assert await _content(ledger) == before


async def _content(ledger: Ledger) -> dict[bytes, Any]:
    """What every key holds. Not as it is dumped: a server may rearrange a hash or a set while it is read."""
    reads = {
        b"string": lambda key: ("GET", key),
        b"hash": lambda key: ("HGETALL", key),
        b"set": lambda key: ("SMEMBERS", key),
        b"zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
        b"list": lambda key: ("LRANGE", key, 0, -1),
        b"stream": lambda key: ("XRANGE", key, "-", "+"),
    }
    content: dict[bytes, Any] = {}
    for key in await ledger.client.command("KEYS", "*"):
        kind = await ledger.client.command("TYPE", key)
        held = await ledger.client.command(*reads[kind](key))
        if kind == b"hash":
            held = dict(zip(held[::2], held[1::2], strict=True))
        content[key] = set(held) if kind == b"set" else held
    assert content
    return content


def test_every_kind_of_key_is_in_the_table() -> None:
    assert set(KEY_TABLE) == set(Keys.names())


@pytest.mark.parametrize(
    ("key", "name", "identity"),
    [
        ("aenv:{d}:node:a", "node:{}", "a"),
        ("aenv:{d}:node:a%3Ab%25", "node:{}", "a:b%"),
        ("aenv:{d}:node:a%3Aclaims", "node:{}", "a:claims"),
        ("aenv:{d}:node:a:claims", "node:{}:claims", "a"),
        ("aenv:{d}:reservation:r:1", "reservation:{}", "r:1"),
        ("aenv:{d}:row:r,-,64,68719476736,-,:3", "row:{}", "r,-,64,68719476736,-,:3"),
        ("aenv:{d}:groups:recent", "groups:recent", ""),
        ("aenv:{d}:cpu_configs:", "cpu_configs:{}", ""),
    ],
)
def test_a_key_tells_what_it_is(key: str, name: str, identity: str) -> None:
    found = explain_key(Keys("d"), key)
    assert found is not None
    assert (found.kind.name, found.identity) == (name, identity)


@pytest.mark.parametrize("key", ["aenv:{d}:node:", "aenv:{d}:node:a:", "aenv:{d}:nodes2", "aenv:{e}:nodes", "nodes"])
def test_what_is_none_of_ours_is_explained_by_nothing(key: str) -> None:
    assert explain_key(Keys("d"), key) is None
