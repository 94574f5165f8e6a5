"""At once, out of order, and with replies lost: still one reservation, one hold and one truth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from scheduler.domain.placement import Decision
from scheduler.domain.reservation import ReservationResult
from scheduler.errors import Conflict
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import NOTHING, Cluster
from tests.support.backends import Backend
from tests.support.clock import VirtualClock
from tests.support.relay import Relay

AT_ONCE = 50
ROUNDS = 40


@pytest.fixture
async def other(cluster: Cluster, open_ledger_on: OpenLedger, clock: VirtualClock) -> Cluster:
    """The same cluster through another replica: its own connections, nothing shared but the ledger."""
    return Cluster(build_services(await open_ledger_on()), clock, cluster.figures)


# -- at once ----------------------------------------------------------------------------------------------------


async def test_fifty_requests_with_one_key_at_once_are_one_reservation(cluster: Cluster, other: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    replicas = [cluster, other]
    decisions = await asyncio.gather(
        *(replicas[number % 2].schedule(idempotency_key="k1") for number in range(AT_ONCE))
    )
    assert {(decision.node, decision.reservation) for decision in decisions} == {
        (decisions[0].node, decisions[0].reservation)
    }
    assert sorted(decision.replayed for decision in decisions) == [False] + [True] * (AT_ONCE - 1)
    held = [await cluster.pending(node_id) for node_id in ("a", "b")]
    assert sorted(held) == [NOTHING, (2, 4096, 1)]
    page, _ = await cluster.services.reservations.list()
    assert len(page) == 1


async def test_two_requests_that_share_a_key_at_once_are_one_reservation_and_conflicts(
    cluster: Cluster, other: Cluster
) -> None:
    await cluster.add()
    answers = await asyncio.gather(
        *(cluster.schedule(2, idempotency_key="k1") for _ in range(10)),
        *(other.schedule(3, idempotency_key="k1") for _ in range(10)),
        return_exceptions=True,
    )
    decisions = [answer for answer in answers if isinstance(answer, Decision)]
    conflicts = [answer for answer in answers if isinstance(answer, Conflict)]
    assert (len(decisions), len(conflicts)) == (10, 10)
    assert len({decision.reservation for decision in decisions}) == 1
    assert (await cluster.pending())[2] == 1


async def test_of_a_cancel_racing_a_confirm_exactly_one_wins_and_both_learn_the_truth(
    cluster: Cluster, other: Cluster
) -> None:
    await cluster.add(cpu_count=1_000, memory_mb=1_000_000)
    winners = set()
    for number in range(ROUNDS):
        reservation, sandbox_id = await cluster.place(), f"s{number}"
        calls = [cluster.confirm(reservation, sandbox_id), other.cancel(reservation)]
        if number % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        won = [answer for answer in answers if isinstance(answer, ReservationResult)]
        lost = [answer for answer in answers if isinstance(answer, Conflict)]
        assert (len(won), len(lost)) == (1, 1), answers
        truth = await cluster.now(reservation)
        assert won[0].reservation == lost[0].facts["reservation"] == truth
        bound = await other.node_of(sandbox_id)
        if truth.state == "confirmed":
            assert (truth.sandbox_id, bound) == (sandbox_id, "a")
            await cluster.report("a", (sandbox_id,))
        else:
            assert (truth.state, truth.sandbox_id, bound) == ("cancelled", None, None)
        assert await cluster.pending() == NOTHING
        winners.add(truth.state)
    assert winners == {"confirmed", "cancelled"}, "the race went one way only, so it was none"


async def test_of_two_sandboxes_told_at_once_one_is_recorded(cluster: Cluster, other: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    answers = await asyncio.gather(
        cluster.confirm(reservation, "s1"), other.confirm(reservation, "s2"), return_exceptions=True
    )
    won = next(answer for answer in answers if isinstance(answer, ReservationResult))
    lost = next(answer for answer in answers if isinstance(answer, Conflict))
    assert lost.facts["reservation"] == won.reservation
    loser = "s2" if won.reservation.sandbox_id == "s1" else "s1"
    assert await cluster.node_of(loser) is None


async def test_a_cancel_by_key_racing_its_schedule_leaves_no_hold_whichever_came_first(
    cluster: Cluster, other: Cluster
) -> None:
    await cluster.add(cpu_count=1_000, memory_mb=1_000_000)
    for number in range(ROUNDS):
        key = f"k{number}"
        calls: list[Awaitable[object]] = [
            cluster.schedule(idempotency_key=key),
            other.services.reservations.cancel_by_key("anonymous", key),
        ]
        if number % 2:
            calls.reverse()
        await asyncio.gather(*calls, return_exceptions=True)
        assert await cluster.pending() == NOTHING
        with pytest.raises(Conflict):
            await cluster.schedule(idempotency_key=key)


# -- with replies lost after the ledger had committed -----------------------------------------------------------


@dataclass
class Cut:
    """A replica whose connection can be cut behind a request: the ledger has committed, nobody was told."""

    cluster: Cluster
    relay: Relay
    ledger: Ledger

    def lose_replies(self, count: int = 1) -> None:
        self.relay.drop_replies(count)

    @property
    def retries(self) -> int:
        return self.ledger.client.statistics.retries


@pytest.fixture
async def cut(
    backend: Backend, cluster: Cluster, open_ledger_on: OpenLedger, clock: VirtualClock
) -> AsyncIterator[Cut]:
    if backend.server is None:
        pytest.skip("the embedded ledger has no connection to lose")
    await cluster.add("a")
    await cluster.add("b")
    async with Relay(backend.server.port) as relay:
        ledger = await open_ledger_on(redis_addr=relay.address)
        await ledger.client.load_scripts()  # so that a lost reply is a script's, not the loader's
        yield Cut(Cluster(build_services(ledger), clock, cluster.figures), relay, ledger)


async def held(cluster: Cluster) -> list[tuple[int, int, int]]:
    return sorted([await cluster.pending(node_id) for node_id in ("a", "b")])


@pytest.mark.parametrize("key", [None, "k1"])
@pytest.mark.parametrize("lost", [1, 3])
async def test_a_schedule_whose_reply_is_lost_is_one_reservation_and_one_hold(
    cluster: Cluster, cut: Cut, key: str | None, lost: int
) -> None:
    cut.lose_replies(lost)
    decision = await cut.cluster.schedule(idempotency_key=key)
    assert cut.retries == lost
    page, _ = await cluster.services.reservations.list()
    assert page == (decision.reservation,)
    assert await held(cluster) == [NOTHING, (2, 4096, 1)]


async def test_a_gateway_that_never_heard_the_answer_asks_another_replica_and_gets_it(
    cluster: Cluster, cut: Cut
) -> None:
    cut.lose_replies(1)
    first = await cut.cluster.schedule(idempotency_key="k1")
    again = await cluster.schedule(idempotency_key="k1")
    assert again.replayed
    assert (again.node, again.reservation) == (first.node, first.reservation)
    assert await held(cluster) == [NOTHING, (2, 4096, 1)]


async def test_a_confirm_whose_reply_is_lost_took_effect_once(cluster: Cluster, cut: Cut) -> None:
    reservation = await cluster.place()
    cut.lose_replies()
    result = await cut.cluster.confirm(reservation)
    assert cut.retries == 1
    assert result.reservation == await cluster.now(reservation)
    assert await cluster.node_of("s1") == reservation.node_id
    assert await held(cluster) == [NOTHING, (2, 4096, 1)]


async def test_a_cancel_whose_reply_is_lost_frees_once(cluster: Cluster, cut: Cut) -> None:
    reservation, _ = await cluster.place(), await cluster.place(exclude_nodes=("b",))
    cut.lose_replies()
    result = await cut.cluster.cancel(reservation)
    assert (cut.retries, result.reservation.state) == (1, "cancelled")
    assert await held(cluster) == [NOTHING, (2, 4096, 1)]


CALLS: dict[str, Callable[[Cluster], Awaitable[object]]] = {
    "heartbeat": lambda cluster: cluster.report("a", ("s1",), allocated_cpu=2, allocated_memory_bytes=2**32),
    "record": lambda cluster: cluster.record("s2"),
    "unregister": lambda cluster: cluster.services.nodes.unregister("a", "run-1"),
}


@pytest.mark.parametrize("name", list(CALLS))
async def test_what_a_node_tells_may_be_told_again(cluster: Cluster, cut: Cut, name: str) -> None:
    reservation = await cluster.place(exclude_nodes=("b",))
    await cluster.confirm(reservation)
    cut.lose_replies()
    await CALLS[name](cut.cluster)
    assert cut.retries >= 1
    expected = "settled" if name == "heartbeat" else "confirmed"
    assert await cluster.state(reservation) == expected
