"""The life of a reservation over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http.conftest import COLD_2_CPU, report
from tests.support.clock import VirtualClock


@pytest.fixture
async def reservation(api: httpx.AsyncClient, node_a: str) -> dict[str, Any]:
    answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": "k1"})
    found: dict[str, Any] = answer.json()["reservation"]
    return found


def path_of(reservation: dict[str, Any], call: str = "") -> str:
    return f"/v1/reservations/{reservation['reservation_id']}{call}"


async def test_confirm_names_the_sandbox_and_binds_it(
    api: httpx.AsyncClient, node_a: str, reservation: dict[str, Any]
) -> None:
    answer = await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    assert answer.status_code == 200
    assert answer.json()["reservation"]["state"] == "confirmed"
    assert answer.json()["reservation"]["sandbox_id"] == "s1"
    assert (answer.json()["replayed"], answer.json()["orphaned"]) == (False, False)
    binding = await api.get("/v1/bindings/s1")
    assert binding.json()["node"] == {"node_id": node_a, "endpoint": "http://node-a:8000"}
    again = await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    assert (again.status_code, again.json()["replayed"]) == (200, True)


async def test_confirm_with_another_sandbox_is_a_conflict_that_carries_the_truth(
    api: httpx.AsyncClient, reservation: dict[str, Any]
) -> None:
    await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    answer = await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s2"})
    assert answer.status_code == 409
    assert answer.json()["reservation"]["sandbox_id"] == "s1"


async def test_cancel_frees_the_capacity_at_once(
    api: httpx.AsyncClient, node_a: str, reservation: dict[str, Any]
) -> None:
    for replayed in (False, True):
        answer = await api.post(path_of(reservation, "/cancel"), json={"reason": "image not found"})
        assert answer.status_code == 200
        assert answer.json()["replayed"] is replayed
        assert answer.json()["reservation"]["state"] == "cancelled"
    pending = (await api.get(f"/v1/nodes/{node_a}")).json()["pending"]
    assert pending == {"cpu_count": 0, "memory_bytes": 0, "sandbox_count": 0}
    late = await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    assert late.status_code == 409


async def test_a_long_reason_is_cut_and_costs_no_cancel(
    api: httpx.AsyncClient, node_a: str, reservation: dict[str, Any]
) -> None:
    answer = await api.post(path_of(reservation, "/cancel"), json={"reason": "é" * 1000})
    assert (answer.status_code, answer.json()["reservation"]["reason"]) == (200, "é" * 512)
    by_key = {"idempotency_key": "k", "reason": "x" * 1025}
    assert (await api.post("/v1/reservations/cancel", json=by_key)).json()["reservation"]["reason"] == "x" * 1024


@pytest.mark.parametrize("body", [None, b"", b"{}"])
async def test_cancel_needs_no_body(api: httpx.AsyncClient, reservation: dict[str, Any], body: bytes | None) -> None:
    assert (await api.post(path_of(reservation, "/cancel"), content=body)).status_code == 200


async def test_cancel_after_confirm_is_a_conflict(api: httpx.AsyncClient, reservation: dict[str, Any]) -> None:
    await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    assert (await api.post(path_of(reservation, "/cancel"))).status_code == 409


async def test_cancel_by_key_finds_the_reservation(api: httpx.AsyncClient, reservation: dict[str, Any]) -> None:
    answer = await api.post("/v1/reservations/cancel", json={"idempotency_key": "k1"})
    assert answer.json()["reservation"]["reservation_id"] == reservation["reservation_id"]
    assert answer.json()["reservation"]["state"] == "cancelled"


async def test_a_cancel_that_overtakes_its_schedule_leaves_no_hold_behind(api: httpx.AsyncClient, node_a: str) -> None:
    early = await api.post("/v1/reservations/cancel", json={"idempotency_key": "reordered", "reason": "gave up"})
    assert early.status_code == 200
    late = await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": "reordered"})
    assert late.status_code == 409
    assert (await api.get(f"/v1/nodes/{node_a}")).json()["pending"]["sandbox_count"] == 0


async def test_renew_moves_the_deadline_of_a_pending_one_only(
    api: httpx.AsyncClient, reservation: dict[str, Any], clock: VirtualClock
) -> None:
    clock.advance(1_000)
    answer = await api.post(path_of(reservation, "/renew"), json={"ttl": "20m"})
    assert answer.json()["reservation"]["expires_at_ms"] == reservation["created_at_ms"] + 1_000 + 1_200_000
    await api.post(path_of(reservation, "/cancel"))
    assert (await api.post(path_of(reservation, "/renew"), json={"ttl": "20m"})).status_code == 409


async def test_confirm_after_expiry_binds_and_counts_as_orphaned(
    api: httpx.AsyncClient, reservation: dict[str, Any], clock: VirtualClock
) -> None:
    clock.advance(600_000)
    answer = await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    assert (answer.status_code, answer.json()["orphaned"]) == (200, True)
    assert answer.json()["reservation"]["state"] == "confirmed"


async def test_a_roster_settles_what_was_confirmed(
    api: httpx.AsyncClient, node_a: str, reservation: dict[str, Any]
) -> None:
    await api.post(path_of(reservation, "/confirm"), json={"sandbox_id": "s1"})
    await report(api, node_a, sandbox_ids=["s1"], cpu_count=4, allocated_cpu=2, sandbox_count=1)
    found = (await api.get(path_of(reservation))).json()
    assert found["reservation"]["state"] == "settled"
    assert (found["replayed"], found["orphaned"]) == (False, False)


async def test_reservations_page_oldest_first(api: httpx.AsyncClient, node_a: str) -> None:
    made = []
    for _ in range(5):
        answer = await api.post("/v1/schedule", json={"hint": {"kind": "sandbox", "template_id": "t"}})
        made.append(answer.json()["reservation"]["reservation_id"])
    seen: list[str] = []
    query: dict[str, str] = {"limit": "2", "node_id": node_a, "state": "pending"}
    while True:
        page = (await api.get("/v1/reservations", params=query)).json()
        assert len(page["reservations"]) <= 2
        seen += [reservation["reservation_id"] for reservation in page["reservations"]]
        if page["cursor"] is None:
            break
        query["cursor"] = page["cursor"]
    assert seen == made


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=ten",
        "limit=1.0",
        "limit=%201",
        "state=lost",
        "cursor=next",
        "nod_id=a",
        "state=pending&state=settled",
    ],
)
async def test_a_bad_query_is_refused_by_name(api: httpx.AsyncClient, query: str) -> None:
    answer = await api.get(f"/v1/reservations?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize("call", ["", "/confirm", "/cancel", "/renew"])
async def test_an_unknown_reservation_is_not_found(api: httpx.AsyncClient, call: str) -> None:
    path = f"/v1/reservations/unknown{call}"
    body = {"/confirm": {"sandbox_id": "s"}, "/renew": {"ttl": "1m"}}.get(call, {})
    answer = await (api.post(path, json=body) if call else api.get(path))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_node_that_refuses_is_avoided_whichever_way_it_is_reported(api: httpx.AsyncClient, node_a: str) -> None:
    for number in range(3):
        placed = await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": f"k{number}"})
        reservation_id = placed.json()["reservation"]["reservation_id"]
        path = "/v1/reservations/cancel" if number else f"/v1/reservations/{reservation_id}/cancel"
        told = {"idempotency_key": f"k{number}"} if number else {"reason": "no disk"}
        assert (await api.post(path, json={**told, "cause": "node_refused"})).status_code == 200
    node = (await api.get(f"/v1/nodes/{node_a}")).json()
    assert (node["eligible"], node["ineligible_reason"], node["status"]) == (False, "avoided", "ready")
    wrong = await api.post("/v1/reservations/r/cancel", json={"cause": "the moon"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "cause")
