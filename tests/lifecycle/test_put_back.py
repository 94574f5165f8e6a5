"""Two replicas put back what they remember, in every order, on both ledgers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from scheduler import deadline
from scheduler.domain.node import DiscoveryState, Heartbeat
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Spread, Strategy
from scheduler.domain.reservation import Lifecycle, Reservation
from scheduler.domain.sandbox import Binding
from scheduler.domain.settings import GroupSettings, LedgerSettings
from scheduler.errors import Conflict, NoNodes, NotFound, NotRebuilt, PuttingBack, SchedulerError
from scheduler.ledger import roster
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.node_list import ListedNode
from scheduler.ledger.settings import Loss
from scheduler.service import build_services
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import BINDING_TTL_MS, NOTHING, TTL_MS, Cluster, event
from tests.support.clock import VirtualClock
from tests.support.half_way import Stop, stopped
from tests.support.recount import assert_ledger_is_sound

LEASE_MS = 10_000
NODES = {"a": ListedNode("http://a:8000", DiscoveryState.ACTIVE)}
SETTINGS = LedgerSettings(strategy=Strategy.LEAST_LOADED)
GROUPED = LedgerSettings(strategy=Strategy.GROUPED_ROUND_ROBIN, groups=GroupSettings(max_sandbox_count=3))


class Replica:
    """One of two replicas on one ledger, without its process: what it answered it remembers."""

    def __init__(self, name: str, ledger: Ledger, clock: VirtualClock, settings: LedgerSettings) -> None:
        self.name, self.ledger, self._settings = name, ledger, settings
        self.cluster = Cluster(build_services(ledger), clock)
        ledger.rebuild.memory.limit = 1000

    async def open_ledger(self, members: tuple[str, ...], loss: str = "loss-1") -> None:
        """The first thing a replica does that finds the ledger lost."""
        await self.ledger.settings.put(self._settings, self.name, Loss("", loss, LEASE_MS, (self.name, *members)))

    async def put_back(self) -> int:
        await self.ledger.nodes.put_back(NODES)
        return await self.ledger.rebuild.put_back(self.name, LEASE_MS, "loss-1")


class Pair:
    """Replicas A and B, node `a` with 16 CPUs."""

    def __init__(self, a: Replica, b: Replica) -> None:
        self.a, self.b = a, b
        self.by_name = {"A": a, "B": b}

    async def lose(self) -> None:
        """Every key is gone; whoever looks first says whom to wait for."""
        await flush(self.a.ledger)
        await self.a.open_ledger(("A", "B"))

    async def put_back(self, order: str = "AB") -> None:
        for name in order:
            await self.by_name[name].put_back()


async def flush(ledger: Ledger) -> None:
    cursor = b"0"
    while True:
        cursor, keys = await ledger.client.command("SCAN", cursor, "MATCH", ledger.keys.pattern)
        if keys:
            await ledger.client.command("DEL", *keys)
        if int(cursor) == 0:
            return


async def make_pair(open_ledger_on: OpenLedger, clock: VirtualClock, settings: LedgerSettings) -> Pair:
    pair = Pair(*[Replica(name, await open_ledger_on(settings), clock, settings) for name in "AB"])
    await pair.a.cluster.add("a", cpu_count=16)
    pair.b.cluster.figures = pair.a.cluster.figures
    return pair


@pytest.fixture
async def pair(open_ledger_on: OpenLedger, clock: VirtualClock) -> AsyncIterator[Pair]:
    made = await make_pair(open_ledger_on, clock, SETTINGS)
    yield made
    await assert_ledger_is_sound(made.a.ledger)


async def bound(cluster: Cluster, sandbox_id: str) -> Binding:
    return await cluster.services.bindings.lookup(sandbox_id)


END_STATES = {
    "none": "pending",
    "confirm": "confirmed",
    "cancel": "cancelled",
    "listed": "settled",
    "deleted": "settled",
}


@pytest.mark.parametrize(
    ("ending", "who", "order", "retry"),
    list(itertools.product(END_STATES, "AB", ("AB", "BA"), (0, 1, 2))),
)
async def test_every_order_of_put_backs_ends_in_the_truth(
    pair: Pair, ending: str, who: str, order: str, retry: int
) -> None:
    """A answered the schedule, `who` what came after it; a caller's retry by key comes after `retry` put-backs."""
    granted = await pair.a.cluster.place(cpu_count=4, idempotency_key="k1")
    cluster = pair.by_name[who].cluster
    if ending in ("confirm", "listed"):
        await pair.a.cluster.confirm(granted, "s1") if ending == "listed" else await cluster.confirm(granted, "s1")
    if ending == "cancel":
        await cluster.cancel(granted)
    if ending == "listed":
        await cluster.report("a", ("s1",), allocated_cpu=4, create_successes=1)
    if ending == "deleted":
        await pair.a.cluster.confirm(granted, "s1")
        await cluster.tell("a", event("delete", "s1", 4, 4096))
    before = await cluster.now(granted)
    await pair.lose()
    for step in range(3):
        if step == retry:
            await retry_meets(pair, granted, ending, gated=step < 2)
        if step < 2:
            await pair.by_name[order[step]].put_back()
    after = await pair.b.cluster.now(granted)
    assert (after.state.value, after.sandbox_id, after.sandbox_told, after.expires_at_ms) == (
        END_STATES[ending], before.sandbox_id, before.sandbox_told, before.expires_at_ms,
    )  # fmt: skip
    assert await pair.a.cluster.pending() == ((4, 4096, 1) if ending in ("none", "confirm") else NOTHING)
    if ending == "confirm":
        assert (await bound(pair.a.cluster, "s1")).node.node_id == "a"
    assert await pair.by_name[who].put_back() == 0, "putting back again changes nothing"
    assert await pair.a.cluster.pending() == ((4, 4096, 1) if ending in ("none", "confirm") else NOTHING)


async def retry_meets(pair: Pair, granted: Reservation, ending: str, gated: bool) -> None:
    if gated:
        with pytest.raises(PuttingBack):
            await pair.b.cluster.place(cpu_count=4, idempotency_key="k1")
    elif ending == "cancel":
        with pytest.raises(Conflict):
            await pair.b.cluster.place(cpu_count=4, idempotency_key="k1")
    else:
        again = await pair.b.cluster.place(cpu_count=4, idempotency_key="k1")
        assert again.reservation_id == granted.reservation_id


async def test_what_was_acknowledged_before_an_emptied_ledger_is_not_given_again(pair: Pair) -> None:
    """FAULTS A14: four times 4 CPUs of 16, the ledger is lost, an empty report, and again four times 4 CPUs."""
    granted = [await pair.a.cluster.place(cpu_count=4) for _ in range(4)]
    await pair.lose()
    await pair.put_back()
    await pair.a.cluster.report("a", ())
    for _ in range(4):
        with pytest.raises(NoNodes):
            await pair.b.cluster.place(cpu_count=4)
    for reservation in granted:
        assert (await pair.b.cluster.confirm(reservation, f"s-{reservation.reservation_id}")).orphaned is False


async def test_nothing_is_decided_before_everybody_has_put_back(pair: Pair) -> None:
    granted = await pair.b.cluster.place(cpu_count=4)
    await pair.lose()
    await pair.a.put_back()
    cluster = pair.a.cluster
    calls = (
        cluster.place,
        lambda: cluster.confirm(granted, "s1"),
        lambda: cluster.cancel(granted),
        lambda: cluster.renew(granted),
        lambda: cluster.services.reservations.cancel_by_key("anonymous", "k9"),
        lambda: cluster.report("a", ()),
        lambda: cluster.report("never-listed", ()),
        lambda: cluster.tell("a", event("create", "s1")),
        lambda: cluster.record("s1"),
        lambda: cluster.services.nodes.unregister("a", "run-1"),
    )
    for call in calls:
        with pytest.raises(PuttingBack):
            await call()
    with pytest.raises(NotRebuilt):
        await cluster.now(granted)
    with pytest.raises(NotRebuilt):
        await bound(cluster, "s1")
    await pair.b.put_back()
    await cluster.report("a", ())
    assert await cluster.pending() == (4, 4096, 1)
    await cluster.place(cpu_count=12)
    with pytest.raises(NoNodes):
        await cluster.place(cpu_count=1)


async def test_a_dead_replica_is_waited_for_a_lease_and_what_it_alone_knew_is_told_as_not_rebuilt(
    pair: Pair, clock: VirtualClock
) -> None:
    kept, lost = await pair.a.cluster.place(cpu_count=4), await pair.b.cluster.place(cpu_count=4)
    await pair.lose()
    await pair.a.put_back()
    clock.advance(LEASE_MS - 1)
    with pytest.raises(PuttingBack):
        await pair.a.cluster.report("a", ())
    clock.advance(1)
    await pair.a.cluster.report("a", ())
    await pair.a.cluster.place(cpu_count=12)
    assert (await pair.a.cluster.now(kept)).state == "pending"
    with pytest.raises(NotRebuilt):
        await pair.a.cluster.confirm(lost, "s1")
    clock.advance(BINDING_TTL_MS)
    with pytest.raises(NotFound):
        await pair.a.cluster.now(lost)


async def test_a_put_back_that_is_stopped_at_any_command_is_made_good_by_the_next(pair: Pair) -> None:
    pending, confirmed, cancelled = [await pair.a.cluster.place(cpu_count=2) for _ in range(3)]
    await pair.a.cluster.confirm(confirmed, "s1")
    await pair.a.cluster.cancel(cancelled)
    for failing in count(1):
        await pair.lose()
        await pair.a.ledger.nodes.put_back(NODES)
        async with stopped(pair.a.ledger.client, Stop("restore_reservations", failing)):
            try:
                await pair.a.put_back()
            except SchedulerError:
                pass
            else:
                break
        with pytest.raises(PuttingBack):
            await pair.a.cluster.place()
        await pair.put_back()
        states = [await pair.a.cluster.state(one) for one in (pending, confirmed, cancelled)]
        assert states == ["pending", "confirmed", "cancelled"], failing
        held = (await pair.a.cluster.pending())[0]
        assert held >= 4, failing
    assert failing > 40


async def test_a_replica_that_is_still_putting_back_is_waited_for(pair: Pair, clock: VirtualClock) -> None:
    await pair.lose()
    await pair.b.put_back()
    for _ in range(3):
        clock.advance(LEASE_MS - 1)
        await pair.a.ledger.runner.run("restore_reservations", "A", LEASE_MS, 0)
        with pytest.raises(PuttingBack):
            await pair.b.cluster.report("a", ())
    await pair.a.put_back()
    await pair.b.cluster.report("a", ())


async def test_a_replica_that_speaks_too_late_closes_nothing_again(pair: Pair, clock: VirtualClock) -> None:
    reservation = await pair.b.cluster.place(cpu_count=4)
    await pair.lose()
    await pair.a.put_back()
    clock.advance(LEASE_MS)
    await pair.a.cluster.report("a", ())
    await pair.b.open_ledger(("A", "B"))
    await pair.a.cluster.place(cpu_count=1)
    await pair.b.put_back()
    assert (await pair.a.cluster.now(reservation)).state == "pending"
    assert await pair.a.cluster.pending() == (5, 2 * 4096, 2)


async def test_nobody_waits_for_a_replica_that_leaves(pair: Pair) -> None:
    await pair.lose()
    await pair.a.put_back()
    await pair.b.ledger.settings.leave("B")
    await pair.a.cluster.report("a", ())
    await pair.a.cluster.place()


async def test_putting_back_where_nothing_was_lost_changes_nothing(pair: Pair) -> None:
    cluster = pair.a.cluster
    open_one, confirmed, cancelled, settled = [await cluster.place(cpu_count=2) for _ in range(4)]
    await cluster.confirm(confirmed, "s1")
    await pair.b.cluster.cancel(cancelled)
    await cluster.confirm(settled, "s2")
    await pair.b.cluster.report("a", ("s2",), allocated_cpu=2, create_successes=1)
    states = [await cluster.now(one) for one in (open_one, confirmed, cancelled, settled)]
    assert await pair.a.put_back() + await pair.b.put_back() == 0
    assert [await cluster.now(one) for one in (open_one, confirmed, cancelled, settled)] == states


async def test_an_end_that_only_the_one_who_carried_the_report_knows_is_put_back(pair: Pair) -> None:
    """A placed and confirmed, B carried the report; whoever speaks first, nothing is held again."""
    reservation = await pair.a.cluster.place(cpu_count=4)
    await pair.a.cluster.confirm(reservation, "s1")
    await pair.b.cluster.report("a", ("s1",), allocated_cpu=4, create_successes=1)
    await pair.lose()
    await pair.put_back("BA")
    await pair.b.cluster.report("a", ("s1",), allocated_cpu=4, create_successes=1)
    assert await pair.a.cluster.pending() == NOTHING
    await pair.a.cluster.place(cpu_count=12)


async def test_a_renewed_deadline_and_a_late_confirm_are_newer_than_what_they_changed(
    pair: Pair, clock: VirtualClock
) -> None:
    renewed, late = await pair.a.cluster.place(cpu_count=2), await pair.a.cluster.place(cpu_count=2)
    await pair.b.cluster.renew(renewed, 2 * TTL_MS)
    clock.advance(TTL_MS)
    await pair.b.cluster.confirm(late, "s1")
    truth = [await pair.b.cluster.now(one) for one in (renewed, late)]
    await pair.lose()
    await pair.put_back("BA")
    assert [await pair.a.cluster.now(one) for one in (renewed, late)] == truth
    assert await pair.a.cluster.pending() == (4, 2 * 4096, 2)


async def test_a_tombstone_is_put_back(pair: Pair) -> None:
    await pair.a.cluster.services.reservations.cancel_by_key("anonymous", "k1")
    await pair.lose()
    await pair.put_back()
    await pair.a.cluster.report("a", ())
    with pytest.raises(Conflict):
        await pair.b.cluster.place(idempotency_key="k1")


async def test_the_first_report_only_sets_baselines_and_counters_settle_nothing_that_was_put_back(pair: Pair) -> None:
    """What nobody told is held in full until its deadline: its sandbox may or may not be in the first report."""
    await pair.a.cluster.place(cpu_count=4, lifecycle=Lifecycle.HEARTBEAT)
    await pair.lose()
    await pair.put_back()
    await pair.a.cluster.report("a", None, create_successes=7, allocated_cpu=4)
    assert await pair.a.cluster.pending() == (4, 4096, 1)
    await pair.a.cluster.report("a", None, create_successes=8, allocated_cpu=8)
    assert await pair.a.cluster.pending() == (4, 4096, 1)


@pytest.mark.parametrize("lifecycle", list(Lifecycle))
async def test_what_was_put_back_unnamed_is_no_part_of_a_later_load(pair: Pair, lifecycle: Lifecycle) -> None:
    """An id that a later report lists beyond the baseline may be its sandbox, or anybody's: it stays held in full."""
    await pair.a.cluster.place(cpu_count=4, lifecycle=lifecycle)
    await pair.lose()
    await pair.put_back()
    await pair.a.cluster.report("a", ("s0",), allocated_cpu=4, create_successes=1)
    await pair.a.cluster.report("a", ("s0", "s1"), allocated_cpu=8, create_successes=2)
    assert await pair.a.cluster.pending() == (4, 4096, 1)


async def test_a_roster_that_lists_a_told_sandbox_settles_what_was_put_back(pair: Pair) -> None:
    reservation = await pair.a.cluster.place(cpu_count=4)
    await pair.b.cluster.confirm(reservation, "s1")
    await pair.lose()
    await pair.put_back()
    await pair.a.cluster.report("a", ("s1",), allocated_cpu=4, create_successes=1)
    assert await pair.a.cluster.pending() == NOTHING
    assert await pair.a.cluster.state(reservation) == "settled"


async def test_reservations_on_a_node_that_is_put_back_later_are_held_there(pair: Pair) -> None:
    """The node is known to A alone, the reservation to B, and B speaks first."""
    reservation = await pair.b.cluster.place(cpu_count=4)
    await flush(pair.a.ledger)
    await pair.b.open_ledger(("A", "B"))
    await pair.b.ledger.rebuild.put_back("B", LEASE_MS)
    assert await pair.b.cluster.state(reservation) == "pending"
    await pair.a.put_back()
    assert await pair.a.cluster.pending() == (4, 4096, 1)


async def test_the_order_of_everything_goes_on_where_it_was(pair: Pair) -> None:
    for _ in range(5):
        await pair.b.cluster.place(cpu_count=1)
    newest = int(await pair.a.ledger.client.command("GET", pair.a.ledger.keys.sequence))
    await pair.lose()
    await pair.put_back()
    assert (await pair.a.cluster.report("a", ())).generation == newest + 1
    assert not await pair.b.ledger.settings.has_lost_writes()


async def test_a_group_is_charged_again_for_what_is_put_back(open_ledger_on: OpenLedger, clock: VirtualClock) -> None:
    pair = await make_pair(open_ledger_on, clock, GROUPED)
    await pair.a.cluster.add("b")
    first = await pair.a.cluster.place_template("t1")
    second = await pair.b.cluster.place_template("t1")
    assert first.node_id == second.node_id
    await pair.lose()
    await pair.put_back()
    await pair.put_back()
    await pair.a.cluster.discover("b")
    for node in ("a", "b"):
        await pair.a.cluster.report(node, ())
    _, (group,), _ = await pair.a.ledger.groups.list()
    assert (group.node_id, group.sandbox_count) == (first.node_id, 2)
    third, fourth = await pair.a.cluster.place_template("t1"), await pair.a.cluster.place_template("t1")
    assert third.node_id == first.node_id
    _, (opened,), _ = await pair.a.ledger.groups.list()
    assert (opened.node_id, opened.sandbox_count) == (fourth.node_id, 1)
    assert opened.sequence > group.sequence
    await assert_ledger_is_sound(pair.a.ledger)


async def test_more_than_a_reply_tells_is_counted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that ends very many reservations tells of some of them; the rest is known to be missing."""
    monkeypatch.setattr(roster, "SLICE", 200)
    await pair.a.cluster.report("a", (), cpu_count=4000, memory_total_bytes=2**50)
    placed = [await pair.a.cluster.place(cpu_count=1, memory_mb=1) for _ in range(130)]
    for number, reservation in enumerate(placed):
        await pair.a.cluster.confirm(reservation, f"s{number}")
    await pair.b.cluster.report("a", tuple(f"s{number}" for number in range(130)), allocated_cpu=130)
    memory = pair.b.ledger.rebuild.memory
    assert (len(memory), memory.not_remembered["untold"]) == (100, 30)


async def test_a_memory_keeps_to_its_limit_and_drops_what_fell_due(pair: Pair, clock: VirtualClock) -> None:
    memory = pair.a.ledger.rebuild.memory
    memory.limit = 3
    long, *short = [
        await pair.a.cluster.place(cpu_count=1, reservation_ttl_ms=ttl_ms)
        for ttl_ms in (60_000, 10_000, 20_000, 30_000)
    ]
    assert [reservation_id for reservation_id, _ in memory.all()] == [
        short[1].reservation_id, short[2].reservation_id, long.reservation_id,
    ]  # fmt: skip
    assert memory.not_remembered["full"] == 1
    clock.advance(36_000)
    await pair.a.ledger.settings.keepalive("A")
    memory.drop_due()
    assert [reservation_id for reservation_id, _ in memory.all()] == [long.reservation_id]


async def test_spread_counts_come_back_with_what_is_remembered(pair: Pair) -> None:
    """One that is pending, one that is told, and one that its node listed, as it does again."""
    cluster = pair.a.cluster
    hint = Hint(HintKind.COLD_SANDBOX, 1, 64, spread=Spread("app", max=3))
    await cluster.place(hint=hint)
    await cluster.confirm(await cluster.place(hint=hint), "s1")
    await cluster.place(hint=hint, sandbox_id="s2")
    await cluster.report("a", ("s2",), allocated_cpu=1)
    counted = ("HGETALL", pair.a.ledger.keys.spread("app"))
    assert await pair.a.ledger.client.command(*counted) == [b"a", b"3"]
    await pair.lose()
    await pair.put_back()
    assert await pair.a.ledger.client.command(*counted) == [b"a", b"3"]
    await cluster.report("a", ("s2",))
    assert await pair.a.ledger.client.command(*counted) == [b"a", b"3"]
    assert await pair.a.put_back() == 0
    with pytest.raises(NoNodes):
        await cluster.place(hint=hint)


async def test_a_node_whose_report_is_awaited_counts_in_every_place(pair: Pair) -> None:
    """Its report tells the label, so after a loss nobody knows yet where its sandboxes count."""
    ledger = pair.a.ledger

    async def report(node_id: str) -> None:
        snapshot = replace(pair.a.cluster.figures["a"], cpu_count=16)
        told = Heartbeat(node_id, "run-1", snapshot=snapshot, sandbox_ids=(), labels={"zone": "east"})
        await ledger.nodes.heartbeat(told)

    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64, spread=Spread("app", over="zone", max=1)))
    await pair.a.cluster.discover("b")
    for node_id in "ab":
        await report(node_id)
    await ledger.placements.schedule(replace(request, exclude_nodes=("a",)))
    await pair.lose()
    await pair.put_back()
    await ledger.nodes.put_back(NODES | {"b": ListedNode("http://b:8000", DiscoveryState.ACTIVE)})
    for reported in ("a", "b"):
        await report(reported)
        with pytest.raises(NoNodes) as refused:
            await ledger.placements.schedule(request)
        assert refused.value.reasons["spread"] >= 1, reported


@pytest.mark.parametrize("look", ["sweep", "nodes", "reservations", "summary"])
async def test_nothing_ends_by_time_before_everybody_has_put_back(pair: Pair, clock: VirtualClock, look: str) -> None:
    """B knows of a later deadline than A."""
    a, b = pair.a.cluster, pair.b.cluster
    reservation = await a.place(16, 1024, reservation_ttl_ms=60_000)
    clock.advance(50_000)
    await a.report("a", ())
    await b.renew(reservation, TTL_MS)
    clock.advance(12_000)
    await pair.lose()
    await pair.put_back("A")
    with contextlib.suppress(SchedulerError):
        match look:
            case "sweep":
                await a.sweep()
            case "nodes":
                await a.services.nodes.get("a")
            case "reservations":
                await a.services.reservations.list()
            case _:
                await pair.a.ledger.summary.read()
    await pair.put_back("B")
    await a.report("a", ())
    assert await a.state(reservation) == "pending"
    with pytest.raises(NoNodes):
        await a.place(1, 1024)


@pytest.mark.parametrize("lost", ["everything", "the last writes"])
async def test_a_report_of_a_call_that_was_given_up_is_not_the_first_after_a_loss(
    pair: Pair, clock: VirtualClock, lost: str
) -> None:
    a = pair.a.cluster
    await a.report("a", ("s1",), sequence=40, allocated_cpu=16)
    if lost == "everything":
        await pair.lose()
        await pair.put_back()
    else:
        await pair.a.ledger.settings.put(SETTINGS, "A", Loss("another server"))
        await a.sweep()
    with pytest.raises(NoNodes):
        await a.place(1, 1024)
    late = await a.report("a", (), sequence=2 if lost == "everything" else 41, hung_up=True, allocated_cpu=0)
    assert late.stale
    with pytest.raises(NoNodes):
        await a.place(1, 1024)
    assert not (await a.report("a", ("s1",), sequence=42, allocated_cpu=15)).stale
    await a.place(1, 1024)


async def test_what_is_taken_out_for_a_better_memory_leaves_no_claim(pair: Pair, clock: VirtualClock) -> None:
    a, b = pair.a.cluster, pair.b.cluster
    reservation = await a.place(2, 1024, sandbox_id="x", reservation_ttl_ms=60_000)
    await b.confirm(reservation, "x")
    for sequence in (1, 2, 3):
        clock.advance(5_000)
        await b.report("a", (), sequence=sequence)
    assert await b.ending(reservation) == ("settled", "gone")
    clock.advance(47_000)
    await pair.lose()
    await pair.put_back("A")
    await a.sweep()
    await pair.put_back("B")
    assert await pair.a.ledger.client.command("HLEN", pair.a.ledger.keys.node("a") + ":claims") == 0


async def test_lists_are_read_while_a_loss_is_put_back(pair: Pair, clock: VirtualClock) -> None:
    nodes = pair.a.cluster.services.nodes
    for _ in range(40):
        await pair.a.cluster.place(0, 1, reservation_ttl_ms=60_000)
    clock.advance(61_000)  # more of them are due than one call ends
    await pair.lose()
    with deadline.within(2):
        assert await nodes.list() == ()
        await pair.put_back("A")
        assert [node.node_id for node in await nodes.list()] == ["a"]
        assert await nodes.list("another cluster") == ()
        listed, _ = await pair.a.cluster.services.reservations.list()
        assert [reservation.state for reservation in listed] == ["pending"] * 40
    await pair.put_back("B")
