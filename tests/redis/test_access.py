"""The least a Redis user must be allowed: exactly the commands the scripts and the store send.

`MINIMAL_ACL` is what `docs/security.md` tells operators to grant. These tests hold it to the code, from both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.connection.client import StoreOptions
from scheduler.connection.keys import Keys
from scheduler.connection.permissions import LEDGER_COMMANDS
from scheduler.connection.scripts import find_folder
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus, P2pEndpoint
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent, SandboxEventType, Template
from scheduler.domain.settings import GroupSettings, LedgerSettings
from scheduler.errors import NoNodes, StoreUnusable
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.ledger.settings import Loss
from tests.support.clock import VirtualClock
from tests.support.servers import RedisServer

# What the client itself needs, on any address form.
_CONNECTION = ("+ping", "+info", "+evalsha", "+script|load")
_ONLY_IN_A_CLUSTER = ("+cluster|slots",)
_ONLY_WITH_WAIT_REPLICAS = ("+wait",)
# What scripts and plain reads do to the ledger's own keys.
_LEDGER = (
    *("+del", "+exists", "+persist", "+pexpire", "+pttl", "+rename", "+unlink", "+time"),
    *("+get", "+incr", "+set"),
    *("+hdel", "+hexists", "+hget", "+hgetall", "+hincrby", "+hkeys", "+hlen", "+hmget", "+hscan", "+hset"),
    *("+lindex", "+lpop", "+rpush"),
    *("+sadd", "+scard", "+sismember", "+smembers", "+smismember", "+srandmember", "+srem", "+sscan"),
    *(
        "+zadd",
        "+zcard",
        "+zcount",
        "+zlexcount",
        "+zmscore",
        "+zpopmin",
        "+zrange",
        "+zrangebylex",
        "+zrangebyscore",
        "+zrank",
        "+zrem",
    ),
    *("+zremrangebyrank", "+zremrangebyscore", "+zrevrangebyscore", "+zscore"),
)
MINIMAL_ACL = (*_CONNECTION, *_ONLY_IN_A_CLUSTER, *_ONLY_WITH_WAIT_REPLICAS, *_LEDGER)

DOMAIN = "least"
PASSWORD = "hunter2"
USER = "scheduler"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


def grant(server: RedisServer, *rules: str) -> None:
    """Make USER anew: these rules, the keys of one domain, nothing else."""
    with server.client() as admin:
        admin.flushall()
        admin.execute_command("SCRIPT", "FLUSH")
        admin.execute_command("ACL", "DELUSER", USER)
        keys = f"~{Keys(DOMAIN).pattern}"
        admin.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", keys, "resetchannels", "-@all", *rules)


async def exercise(server: RedisServer, domain: str = DOMAIN) -> None:
    """The main job and its maintenance, under every strategy, as USER."""
    clock = VirtualClock()
    address = f"redis://{USER}:{PASSWORD}@{server.address}"
    ledger = await open_ledger(address, domain=domain, options=StoreOptions(), clock=clock)
    try:
        await ledger.client.check_server()
        for revision, strategy in enumerate(Strategy):
            groups = GroupSettings(max_sandbox_count=2, max_open_groups=2)
            settings = LedgerSettings(strategy=strategy, revision=revision, groups=groups, locality_enabled=True)
            await ledger.settings.put(settings, "replica")
            await _report_and_place(ledger, clock, strategy)
        await _look_around(ledger)
        await ledger.settings.put(settings, "replica", Loss(rebuild_of="a loss", members=("replica",)))
        await ledger.rebuild.put_back("replica", 1_000, "a loss")
        await _end(ledger, clock)
    finally:
        await ledger.close()


async def _report_and_place(ledger: Ledger, clock: VirtualClock, strategy: Strategy) -> None:
    while await ledger.settings.refresh():
        pass
    await ledger.settings.keepalive("replica")
    for number, node_id in enumerate(("a", "b", "c")):
        await ledger.nodes.set(node_id, f"http://{node_id}", DiscoveryState.ACTIVE)
        await ledger.nodes.heartbeat(_report(node_id, clock, sandboxes=(f"old-{node_id}", f"{strategy}-{number}")))
    await ledger.templates.put(Template("base", 1, 512))
    artifact = ArtifactKey("", "store", "image")
    await ledger.artifacts.record(artifact, "a")
    placed = []
    for number in range(6):
        kind = HintKind.COLD_SANDBOX if number % 2 else HintKind.SANDBOX
        hint = Hint(kind, 1, 512, images=(f"image-{number}",), template_id="base", locality=("image",))
        request = ScheduleRequest(hint, idempotency_key=f"{strategy}-{number}", reservation_ttl_ms=10_000)
        decision = await ledger.placements.schedule(request)
        assert decision.reservation is not None
        placed.append((decision.node.node_id, decision.reservation.reservation_id))
    await ledger.placements.schedule(ScheduleRequest())
    await ledger.placements.explain(request)
    (node_id, confirmed), (_, cancelled), (other, _), (_, renewed), *_ = placed
    await ledger.reservations.renew(renewed, 20_000)
    await ledger.reservations.confirm(confirmed, f"sandbox-{strategy}")
    await ledger.reservations.cancel(cancelled, "not wanted")
    await ledger.reservations.cancel_by_key("anonymous", f"never-{strategy}", "not wanted")
    created = SandboxEvent(f"created-{strategy}", SandboxEventType.CREATE, 1, 512 * 1024 * 1024)
    deleted = SandboxEvent(f"old-{other}", SandboxEventType.DELETE)
    await ledger.nodes.record_events(other, f"instance-{other}", [created, deleted])
    await ledger.bindings.record(f"assigned-{strategy}", NodeAddress("c", "http://c"))
    for reporting in ("a", "b", "c"):
        clock.advance(1_000)
        ids = (f"sandbox-{strategy}",) if reporting == node_id else ()
        await ledger.nodes.heartbeat(_report(reporting, clock, sandboxes=ids))
    await ledger.bindings.lookup(f"sandbox-{strategy}")
    clock.advance(30_000)
    while await ledger.reservations.sweep():
        pass


async def _look_around(ledger: Ledger) -> None:
    await ledger.nodes.list()
    await ledger.nodes.get("a")
    await ledger.nodes.addresses()
    await ledger.reservations.list()
    await ledger.reservations.list(node_id="a")
    await ledger.templates.get("base")
    await ledger.templates.list()
    await ledger.groups.list(10, None)
    artifact = ArtifactKey("", "store", "image")
    await ledger.artifacts.lookup(artifact)
    await ledger.artifacts.peers()
    await ledger.artifacts.forget(artifact, "a")
    await ledger.settings.get()
    await ledger.settings.stats()


async def _end(ledger: Ledger, clock: VirtualClock) -> None:
    await ledger.templates.delete("base")
    await ledger.nodes.unregister("a", "instance-a")
    await ledger.nodes.replace([NodeAddress("b", "http://b")], [NodeAddress("c", "http://c")])
    await ledger.nodes.remove("b")
    with pytest.raises(NoNodes):
        await ledger.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 512)))
    for _ in range(3):
        clock.advance(3_600_000)
        while await ledger.reservations.sweep():
            pass
    await ledger.settings.leave("replica")


def _report(node_id: str, clock: VirtualClock, sandboxes: tuple[str, ...]) -> Heartbeat:
    snapshot = NodeSnapshot(
        status=NodeStatus.READY,
        cpu_count=64,
        memory_total_bytes=2**36,
        allocated_cpu=len(sandboxes),
        sandbox_count=len(sandboxes),
        reported_at_unix_ms=clock(),
    )
    return Heartbeat(
        node_id,
        f"instance-{node_id}",
        snapshot=snapshot,
        sandbox_ids=sandboxes,
        p2p_endpoint=P2pEndpoint("store", f"{node_id}:1"),
    )


def commands_in_code() -> set[str]:
    """Every command the Lua files call and the store sends itself, as ACL rules."""
    lua = "".join(path.read_text(encoding="utf-8") for path in find_folder().rglob("*.lua"))
    called = re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", lua)
    assert not re.findall(r"redis\.p?call\(\s*[^'\s]", lua), "a command that is not spelled out cannot be granted"
    package = Path(__file__).parents[2] / "scheduler"
    files = [*package.glob("connection/*.py"), *package.glob("ledger/*.py")]
    # Errors only name commands, and permissions.py runs them to see whether they are granted.
    aside = ("errors.py", "permissions.py")
    python = "".join(path.read_text(encoding="utf-8") for path in files if path.name not in aside)
    sent = re.findall(r"\(\s*\"([A-Z]{3,})\"[,)]", python)
    with_parts = re.findall(r"\(\s*\"(SCRIPT|CLUSTER)\", \"([A-Z]+)\"", python)
    rules = {f"+{command.lower()}" for command in (*called, *sent) if command not in ("SCRIPT", "CLUSTER")}
    return rules | {f"+{command}|{part}".lower() for command, part in with_parts}


def test_the_list_is_exactly_what_the_code_sends() -> None:
    assert set(MINIMAL_ACL) == commands_in_code()
    assert len(set(MINIMAL_ACL)) == len(MINIMAL_ACL)


def test_what_is_proven_at_join_is_what_is_documented_for_the_ledger() -> None:
    proven = [f"+{name.lower()}" for name, _, _ in LEDGER_COMMANDS]
    assert len(set(proven)) == len(proven)
    assert set(proven) == set(_LEDGER)


async def test_the_list_suffices_for_the_main_job(server: RedisServer) -> None:
    grant(server, *MINIMAL_ACL)
    await exercise(server)


async def test_no_command_of_the_main_job_can_be_left_out(server: RedisServer) -> None:
    grant(server, *MINIMAL_ACL)
    with server.client() as admin:
        admin.config_resetstat()
        await exercise(server)
        sent = {f"+{name.removeprefix('cmdstat_')}" for name in admin.info("commandstats")}
    exercised = [rule for rule in MINIMAL_ACL if rule in sent]
    # A branch that the main job does not reach is held by the first test of this file alone.
    assert len(exercised) > 0.8 * len(MINIMAL_ACL), sorted(set(MINIMAL_ACL) - set(exercised))
    for left_out in exercised:
        grant(server, *(rule for rule in MINIMAL_ACL if rule != left_out))
        with pytest.raises(StoreUnusable, match="ACL") as refusal:
            await exercise(server)
        assert PASSWORD not in str(refusal.value)


async def test_another_domain_stays_out_of_reach(server: RedisServer) -> None:
    grant(server, *MINIMAL_ACL)
    with pytest.raises(StoreUnusable) as refusal:
        await exercise(server, domain="another")
    assert refusal.value.detail.endswith("does not let this user read and write the ledger's keys, aenv:{another}:*")
