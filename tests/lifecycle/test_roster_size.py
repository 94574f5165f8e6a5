"""What rosters cost the ledger: nothing while they do not change, little at a time when they do.

Judged by work – commands, and ids in one call – because time on a busy machine tells nothing. How long
the server was busy at a time is printed (`-s`), by its own clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import redis

from scheduler import deadline
from scheduler.connection.options import StoreOptions
from scheduler.domain.node import Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.ledger.roster import SLICE
from tests.lifecycle.cluster import address
from tests.support.backends import put_settings
from tests.support.servers import RedisServer

FLEET = 1_000
LARGEST_ROSTER = 110_000  # what fits one heartbeat of 4 MiB
# Work is counted here, not time: however busy the machine is, every call comes to its end.
PATIENT = StoreOptions(operation_timeout_ms=100_000, attempt_timeout_ms=100_000)
NOT_OURS = {"cmdstat_info", "cmdstat_config|resetstat"}


@pytest.fixture
async def ledger(real_server: RedisServer) -> AsyncIterator[Ledger]:
    """On the server's own clock and a real server, where commands inside of scripts are counted too."""
    opened = await open_ledger(real_server.address, domain="size", options=PATIENT)
    await put_settings(opened, LedgerSettings())
    await opened.client.load_scripts()
    yield opened
    await opened.close()


@dataclass
class Work:
    """Commands by name, those inside of scripts included, and the scripts' own calls."""

    commands: dict[str, int] = field(default_factory=dict)
    busy_us: int = 0

    @property
    def total(self) -> int:
        return sum(self.commands.values())

    @property
    def scripts(self) -> int:
        return self.commands.get("evalsha", 0)

    @property
    def busy_ms(self) -> float:
        """How long the server was busy with scripts."""
        return self.busy_us / 1000


@contextmanager
def counted(client: redis.Redis) -> Iterator[Work]:
    client.config_resetstat()
    work = Work()
    yield work
    for name, figures in client.info("commandstats").items():
        if name not in NOT_OURS:
            work.commands[name.removeprefix("cmdstat_")] = figures["calls"]
        if name == "cmdstat_evalsha":
            work.busy_us = figures["usec"]


async def report(ledger: Ledger, node_id: str, roster: tuple[str, ...]) -> None:
    snapshot = NodeSnapshot(status=NodeStatus.READY, cpu_count=64, memory_total_bytes=2**38)
    with deadline.within(300):
        await ledger.nodes.heartbeat(Heartbeat(node_id, "run-1", snapshot=snapshot, sandbox_ids=roster), 300_000)


def roster_of(count: int, tag: str = "s") -> tuple[str, ...]:
    return tuple(f"{tag}{number:09d}-0b0e-4000-9000-feedbeefcafe" for number in range(count))


async def cost_of_unchanged(ledger: Ledger, server: RedisServer, node_count: int, roster: tuple[str, ...]) -> Work:
    """The work of one report of every node, after one that said the same."""
    nodes = [address(f"n{number}") for number in range(node_count)]
    await ledger.nodes.replace(nodes, [])
    rosters = {node.node_id: tuple(f"{node.node_id}-{each}" for each in roster) for node in nodes}
    for _ in range(2):  # the second one brings what only a first report does to rest
        for node_id, listed in rosters.items():
            await report(ledger, node_id, listed)
    with server.client() as client, counted(client) as work:
        for node_id, listed in rosters.items():
            await report(ledger, node_id, listed)
    return work


@pytest.mark.slow
async def test_an_unchanged_roster_costs_the_same_whatever_its_size(ledger: Ledger, real_server: RedisServer) -> None:
    costs = {size: await cost_of_unchanged(ledger, real_server, 1, roster_of(size)) for size in (50, 2_000, 20_000)}
    print({size: work.total for size, work in costs.items()}, "commands for one unchanged report")
    assert costs[50].commands == costs[2_000].commands == costs[20_000].commands
    assert costs[50].scripts == 1
    assert costs[50].total < 40


@pytest.mark.slow
async def test_every_node_of_a_large_fleet_costs_what_one_costs(ledger: Ledger, real_server: RedisServer) -> None:
    one = await cost_of_unchanged(ledger, real_server, 1, roster_of(50))
    fleet = await cost_of_unchanged(ledger, real_server, FLEET, roster_of(50))
    print(fleet.total / FLEET, f"commands for one unchanged report of a fleet of {FLEET:,}")
    assert fleet.scripts == FLEET
    # One report in sixteen also looks whether its node stands where it should: in the index, and not among silent ones.
    assert 0 <= fleet.total - FLEET * one.total <= 6 * FLEET / 12


async def test_open_reservations_are_what_an_unchanged_report_pays_for(
    ledger: Ledger, real_server: RedisServer
) -> None:
    """The roster is the installed one, so nothing of it is asked for, whatever is open."""
    costs = {}
    for size in (50, 2_000):
        node_id, roster = f"n{size}", roster_of(size, f"n{size}-")
        await ledger.nodes.replace([address(node_id)], [])
        for _ in range(2):  # the second one brings what only a first report does to rest
            await report(ledger, node_id, roster)
        decision = await ledger.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64)))
        assert decision.reservation is not None
        await ledger.reservations.confirm(decision.reservation.reservation_id, f"new-{size}")
        with real_server.client() as client, counted(client) as work:
            await report(ledger, node_id, roster)
        costs[size] = work
    assert costs[50].commands == costs[2_000].commands
    assert costs[50].scripts == 1


@dataclass(frozen=True)
class Call:
    """One call of a script: how many arguments it got, what it ran, how long the server was busy with it."""

    script: str
    arguments: int
    commands: float
    busy_ms: float


@pytest.fixture
async def calls(ledger: Ledger, real_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Call]]:
    """Every script call of the ledger from now on. One that was answered "again" counts as its average."""
    made: list[Call] = []
    run = ledger.runner.run
    with real_server.client() as client:

        async def running(script: str, *args: object, **options: bool) -> object:
            with counted(client) as work:
                reply = await run(script, *args, **options)  # type: ignore[arg-type]
            commands = (work.total - work.scripts) / work.scripts
            made.append(Call(script, len(args), commands, work.busy_ms / work.scripts))
            return reply

        monkeypatch.setattr(ledger.runner, "run", running)
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("change", ["first", "wholly changed", "taken over", "emptied", "unregistered"])
async def test_a_roster_as_large_as_they_come_is_worked_off_a_little_at_a_time(
    ledger: Ledger, calls: list[Call], change: str
) -> None:
    await ledger.nodes.replace([address("a"), address("b")], [])
    before, after = roster_of(LARGEST_ROSTER), roster_of(LARGEST_ROSTER, "t")
    if change != "first":
        await report(ledger, "a", before)
    calls.clear()
    match change:
        case "first":
            await report(ledger, "a", before)
        case "wholly changed":
            await report(ledger, "a", after)
        case "taken over":
            await report(ledger, "b", before)
        case "emptied":
            await report(ledger, "a", ())
        case _:
            await ledger.nodes.unregister("a", "run-1")
    print(
        f"{change}: at most {max(call.commands for call in calls):.0f} commands in one of {len(calls)} calls;"
        f" the server was busy {sum(call.busy_ms for call in calls) / len(calls):.1f} ms at a time on average,"
        f" {max(call.busy_ms for call in calls):.1f} ms at most"
    )
    # An argument is an id, or one of the few that are not.
    assert max(call.arguments for call in calls) <= SLICE + 32
    assert max(call.commands for call in calls) <= 48, "the commands of a call do not grow with the ids in it"
