"""Idempotency keys: the same request has one answer; what ended stays ended; cancels may come first."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.errors import Conflict
from scheduler.ledger import request_codec
from tests.lifecycle.cluster import NOTHING, TTL_MS, Cluster

KEY: dict[str, Any] = {"idempotency_key": "k1"}


async def test_the_same_request_gets_the_same_node_and_reservation_however_often(cluster: Cluster) -> None:
    await cluster.add("a")
    await cluster.add("b")
    first = await cluster.schedule(**KEY)
    for _ in range(5):
        again = await cluster.schedule(**KEY)
        assert (again.node, again.reservation, again.replayed) == (first.node, first.reservation, True)
    assert not first.replayed
    assert first.reservation is not None
    other = "b" if first.node.node_id == "a" else "a"
    assert await cluster.pending(other) == NOTHING


async def test_a_key_whose_fingerprint_an_earlier_version_wrote_may_be_repeated(cluster: Cluster) -> None:
    await cluster.add()
    first = await cluster.place(**KEY, exclude_nodes=("z", "y"))
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 2, 4096), exclude_nodes=("z", "y"), **KEY)
    former = request_codec.former_fingerprint(request)
    assert former != request_codec.fingerprint(request)
    assert cluster.ledger is not None
    keys, client = cluster.ledger.keys, cluster.ledger.client
    await client.command("HSET", keys.reservation(first.reservation_id), "fingerprint", former)
    assert (await cluster.schedule(**KEY, exclude_nodes=("y", "z"))).replayed
    with pytest.raises(Conflict, match="another request"):
        await cluster.schedule(**KEY)


async def test_a_replay_shows_what_became_of_the_reservation_since(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(**KEY)
    await cluster.confirm(reservation)
    replayed = await cluster.schedule(**KEY)
    assert replayed.reservation == await cluster.now(reservation)
    await cluster.report("a", ("s1",))
    assert (await cluster.place(**KEY)).state == "settled"


async def test_a_replay_notices_that_the_time_of_a_confirmed_one_is_over(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place(**KEY))
    cluster.wait(TTL_MS)
    replayed = await cluster.place(**KEY)
    assert (replayed.state, replayed.reason) == ("settled", "unobserved")


@pytest.mark.parametrize(
    "other",
    [
        {"cpu_count": 3},
        {"memory_mb": 1},
        {"lifecycle": Lifecycle.HEARTBEAT},
        {"exclude_nodes": ("b",)},
        {"reservation_ttl_ms": 1_000},
    ],
)
async def test_a_key_belongs_to_one_request(cluster: Cluster, other: dict[str, Any]) -> None:
    await cluster.add()
    reservation = await cluster.place(**KEY)
    with pytest.raises(Conflict) as conflict:
        await cluster.place(**KEY, **other)
    assert conflict.value.facts["reservation"] == reservation
    assert await cluster.pending() == (2, 4096, 1)


async def test_keys_of_two_callers_are_two_keys(cluster: Cluster) -> None:
    await cluster.add()
    first = await cluster.place(caller="gateway-1", **KEY)
    second = await cluster.place(caller="gateway-2", **KEY)
    assert first.reservation_id != second.reservation_id
    result = await cluster.services.reservations.cancel_by_key("gateway-2", "k1")
    assert result.reservation.reservation_id == second.reservation_id
    assert await cluster.state(first) == "pending"


@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_what_ended_is_not_resurrected_by_its_key(cluster: Cluster, end: str) -> None:
    await cluster.add()
    reservation = await cluster.place(**KEY)
    if end == "cancelled":
        await cluster.cancel(reservation)
    else:
        cluster.wait(TTL_MS)
    with pytest.raises(Conflict) as conflict:
        await cluster.place(**KEY)
    assert conflict.value.facts["reservation"] == await cluster.now(reservation)
    assert await cluster.state(reservation) == end
    assert await cluster.pending() == NOTHING


async def test_a_key_is_free_again_once_its_reservation_is_no_longer_readable(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(**KEY)
    await cluster.cancel(reservation)
    cluster.wait(3_600_000)
    await cluster.sweep()
    assert (await cluster.place(**KEY)).state == "pending"


async def test_cancel_by_key_is_cancel_by_another_name(cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place(**KEY)
    first = await cluster.services.reservations.cancel_by_key("anonymous", "k1", "gave up")
    again = await cluster.services.reservations.cancel_by_key("anonymous", "k1", "again")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.reservation.reservation_id == again.reservation.reservation_id == reservation.reservation_id
    assert again.reservation.reason == "gave up"
    assert await cluster.pending() == NOTHING


async def test_cancel_by_key_after_confirm_is_a_conflict(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place(**KEY))
    with pytest.raises(Conflict):
        await cluster.services.reservations.cancel_by_key("anonymous", "k1")
    assert await cluster.node_of("s1") == "a"


async def test_a_cancel_that_overtakes_its_schedule_refuses_it_for_an_hour(cluster: Cluster) -> None:
    await cluster.add()
    reservations = cluster.services.reservations
    early = await reservations.cancel_by_key("anonymous", "k1", "timed out")
    assert (early.reservation.state, early.reservation.reason, early.replayed) == ("cancelled", "timed out", False)
    assert (await reservations.cancel_by_key("anonymous", "k1")).replayed
    with pytest.raises(Conflict) as conflict:
        await cluster.place(**KEY)
    assert conflict.value.facts["reservation"].state == "cancelled"
    with pytest.raises(Conflict):
        await cluster.confirm(early.reservation)
    with pytest.raises(Conflict):
        await cluster.renew(early.reservation)
    assert await cluster.pending() == NOTHING
    page, _ = await reservations.list()
    assert page == ()


async def test_ordinary_routing_reserves_nothing_whatever_its_key(cluster: Cluster) -> None:
    await cluster.add()
    decision = await cluster.services.placement.schedule(ScheduleRequest(**KEY))
    assert (decision.reservation, decision.replayed) == (None, False)
    assert (await cluster.schedule(**KEY)).replayed is False
