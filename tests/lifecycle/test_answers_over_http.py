"""The answers of API.md "Reservations" once more, as a gateway reads them: status, code and members."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http.conftest import list_node, open_client, report
from tests.lifecycle.cluster import REPORT_TTL_MS, TTL_MS, Cluster

CREATE = {"hint": {"kind": "cold_sandbox", "cpu_count": 2, "memory_mb": 4096}}
KEY = {"Idempotency-Key": "k1"}


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """One listed node; every answer is held to the document by the client itself."""
    async with open_client(cluster.services) as opened:
        await list_node(opened, "a", cpu_count=16, memory_gib=32)
        yield opened


async def schedule(api: httpx.AsyncClient, **headers: str) -> dict[str, Any]:
    answer = await api.post("/v1/schedule", json=CREATE, headers=headers)
    assert answer.status_code == 200
    placed: dict[str, Any] = answer.json()
    return placed


async def call(api: httpx.AsyncClient, reservation: dict[str, Any], name: str, **body: str) -> httpx.Response:
    return await api.post(f"/v1/reservations/{reservation['reservation_id']}/{name}", json=body)


def told(answer: httpx.Response) -> tuple[int, str, bool, bool]:
    """Status, state, replayed, orphaned; for a problem its code instead of the state, and no more."""
    found = answer.json()
    if answer.status_code != 200:
        return answer.status_code, found["code"], False, False
    return answer.status_code, found["reservation"]["state"], found["replayed"], found["orphaned"]


async def test_a_life_that_goes_well(api: httpx.AsyncClient) -> None:
    placed = await schedule(api)
    reservation = placed["reservation"]
    assert (placed["replayed"], reservation["state"], reservation["sandbox_id"]) == (False, "pending", None)
    assert told(await call(api, reservation, "renew", ttl="2m")) == (200, "pending", False, False)
    assert told(await call(api, reservation, "confirm", sandbox_id="s1")) == (200, "confirmed", False, False)
    assert told(await call(api, reservation, "confirm", sandbox_id="s1")) == (200, "confirmed", True, False)
    await report(api, "a", ["s1"], cpu_count=16)
    assert told(await call(api, reservation, "confirm", sandbox_id="s1")) == (200, "settled", True, False)
    bound = await api.get("/v1/bindings/s1")
    assert bound.json()["node"] == {"node_id": "a", "endpoint": "http://a:8000"}


async def test_every_conflict_carries_the_reservation_as_it_is(api: httpx.AsyncClient) -> None:
    confirmed = (await schedule(api))["reservation"]
    await call(api, confirmed, "confirm", sandbox_id="s1")
    cancelled = (await schedule(api))["reservation"]
    await call(api, cancelled, "cancel")
    pending = (await schedule(api))["reservation"]
    for reservation, name, body, state in (
        (confirmed, "confirm", {"sandbox_id": "s2"}, "confirmed"),
        (confirmed, "cancel", {}, "confirmed"),
        (confirmed, "renew", {"ttl": "1m"}, "confirmed"),
        (cancelled, "confirm", {"sandbox_id": "s3"}, "cancelled"),
        (cancelled, "renew", {"ttl": "1m"}, "cancelled"),
        (pending, "confirm", {"sandbox_id": "s1"}, "pending"),
    ):
        answer = await call(api, reservation, name, **body)
        assert told(answer) == (409, "conflict", False, False)
        carried = answer.json()["reservation"]
        assert (carried["reservation_id"], carried["state"]) == (reservation["reservation_id"], state)


async def test_cancel_answers_200_also_where_nothing_is_left_to_free(api: httpx.AsyncClient) -> None:
    cancelled = (await schedule(api))["reservation"]
    assert told(await call(api, cancelled, "cancel", reason="changed")) == (200, "cancelled", False, False)
    assert told(await call(api, cancelled, "cancel", reason="again")) == (200, "cancelled", True, False)
    # An event names only what nobody will confirm, and nothing of a size whose create was cancelled a moment ago.
    hint = {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 1024}
    answer = await api.post("/v1/schedule", json={"hint": hint, "lifecycle": "heartbeat"})
    settled = answer.json()["reservation"]
    created = {"sandbox_id": "s1", "event_type": "create", "requested_cpu": 1, "requested_memory_bytes": 2**30}
    events = {"service_instance_id": "svc-a", "events": [created]}
    assert (await api.post("/v1/nodes/a/events", json=events)).status_code == 200
    await report(api, "a", ["s1"], cpu_count=16)
    assert told(await call(api, settled, "cancel")) == (200, "settled", False, False)


async def test_time_is_told_as_it_is(cluster: Cluster, api: httpx.AsyncClient) -> None:
    cancelled, confirmed = (await schedule(api))["reservation"], (await schedule(api))["reservation"]
    cluster.wait(TTL_MS)
    assert told(await call(api, cancelled, "cancel")) == (200, "expired", False, False)
    assert told(await call(api, confirmed, "renew", ttl="1m")) == (409, "conflict", False, False)
    assert told(await call(api, confirmed, "confirm", sandbox_id="s1")) == (200, "confirmed", False, True)
    assert told(await call(api, confirmed, "confirm", sandbox_id="s1")) == (200, "confirmed", True, True)
    assert (await api.get("/v1/bindings/s1")).status_code == 200


async def test_a_late_confirm_after_a_removal_says_so(cluster: Cluster, api: httpx.AsyncClient) -> None:
    reservation = (await schedule(api))["reservation"]
    assert (await api.delete("/v1/nodes/a?remove=true")).status_code == 200
    cluster.wait(REPORT_TTL_MS)
    answer = await call(api, reservation, "confirm", sandbox_id="s1")
    assert told(answer) == (200, "settled", False, True)
    assert answer.json()["reservation"]["reason"] == "node_removed"


async def test_a_key_is_answered_alike_and_refused_once_it_is_over(api: httpx.AsyncClient) -> None:
    first, again = await schedule(api, **KEY), await schedule(api, **KEY)
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert (first["node"], first["reservation"]) == (again["node"], again["reservation"])
    other = {"hint": CREATE["hint"] | {"cpu_count": 3}}
    for _ in range(2):
        answer = await api.post("/v1/schedule", json=other, headers=KEY)
        assert told(answer)[:2] == (409, "conflict")
        assert answer.json()["reservation"]["reservation_id"] == first["reservation"]["reservation_id"]
        await call(api, first["reservation"], "cancel")
    answer = await api.post("/v1/schedule", json=CREATE, headers=KEY)
    assert told(answer)[:2] == (409, "conflict")
    assert answer.json()["reservation"]["state"] == "cancelled"


async def test_a_cancel_may_come_before_its_schedule(api: httpx.AsyncClient) -> None:
    early = await api.post("/v1/reservations/cancel", json={"idempotency_key": "k1"})
    assert told(early) == (200, "cancelled", False, False)
    late = await api.post("/v1/schedule", json=CREATE, headers=KEY)
    assert told(late)[:2] == (409, "conflict")
    assert (await api.get("/v1/nodes/a")).json()["pending"]["sandbox_count"] == 0


async def test_unknown_ids_are_404(api: httpx.AsyncClient) -> None:
    for name, body in (("confirm", {"sandbox_id": "s1"}), ("cancel", {}), ("renew", {"ttl": "1m"})):
        assert told(await call(api, {"reservation_id": "nobody"}, name, **body))[:2] == (404, "not_found")
