"""Batches over HTTP: many creations in one step, and what is refused before anything is placed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from scheduler.domain.placement import Strategy
from tests.http.conftest import COLD_2_CPU, list_node, report

pytestmark = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)


@pytest.fixture
async def node_b(api: httpx.AsyncClient) -> str:
    """A node of 8 CPUs."""
    await list_node(api, "node-b")
    await report(api, "node-b", cpu_count=8, memory_total_bytes=2**36)
    return "node-b"


async def test_a_count_of_one_hint_is_placed_as_far_as_it_fits(api: httpx.AsyncClient, node_b: str) -> None:
    answer = await api.post("/v1/schedule/batch", json={"count": 6, "hint": COLD_2_CPU, "reservation_ttl": "2m"})
    assert answer.status_code == 200
    decision = answer.json()
    assert [each["index"] for each in decision["placed"]] == [0, 1, 2, 3]
    assert {each["node"]["node_id"] for each in decision["placed"]} == {node_b}
    assert [(each["index"], each["reasons"]) for each in decision["refused"]] == [
        (4, {"insufficient_cpu": 1}),
        (5, {"insufficient_cpu": 1}),
    ]
    assert (decision["strategy"], decision["replayed"]) == ("least_loaded", False)
    reservation = decision["placed"][0]["reservation"]
    confirmed = await api.post(f"/v1/reservations/{reservation['reservation_id']}/confirm", json={"sandbox_id": "sb"})
    assert confirmed.json()["reservation"]["state"] == "confirmed"


async def test_different_requests_and_their_names(api: httpx.AsyncClient, node_b: str) -> None:
    requests = [{"hint": COLD_2_CPU, "sandbox_id": "a"}, {"hint": {"kind": "sandbox", "template_id": "t"}}]
    answer = (await api.post("/v1/schedule/batch", json={"requests": requests})).json()
    assert [each["reservation"]["sandbox_id"] for each in answer["placed"]] == ["a", None]
    assert [each["reservation"]["cpu_count"] for each in answer["placed"]] == [2, 0]


async def test_all_or_nothing(api: httpx.AsyncClient, node_b: str) -> None:
    refused = await api.post("/v1/schedule/batch", json={"count": 5, "hint": COLD_2_CPU, "all": True})
    assert (refused.status_code, refused.json()["code"]) == (503, "no_nodes")
    assert refused.json()["reasons"] == {"insufficient_cpu": 1}
    assert (await api.get("/v1/reservations")).json()["reservations"] == []
    assert (
        len((await api.post("/v1/schedule/batch", json={"count": 4, "hint": COLD_2_CPU, "all": True})).json()["placed"])
        == 4
    )


async def test_a_repeated_key_is_told_the_same_and_another_batch_is_a_conflict(
    api: httpx.AsyncClient, node_b: str
) -> None:
    key, body = {"Idempotency-Key": "together"}, {"count": 2, "hint": COLD_2_CPU}
    first = (await api.post("/v1/schedule/batch", json=body, headers=key)).json()
    again = (await api.post("/v1/schedule/batch", json=body, headers=key)).json()
    assert again == first | {"replayed": True}
    other = await api.post("/v1/schedule/batch", json=body | {"count": 3}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    single = await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers=key)
    assert (single.status_code, single.json()["code"]) == (409, "conflict"), (
        "a key belongs to a batch or to a placement"
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"count": 2},
        {"count": 0, "hint": COLD_2_CPU},
        {"count": 257, "hint": COLD_2_CPU},
        {"requests": []},
        {"requests": [{}]},
        {"requests": [{"hint": COLD_2_CPU}], "hint": COLD_2_CPU},
        {"requests": [{"hint": COLD_2_CPU}], "count": 2},
        {"requests": [{"hint": COLD_2_CPU, "sandbox_id": "x"}] * 2},
        {"requests": [{"hint": COLD_2_CPU}] * 257},
        {"count": 1, "hint": COLD_2_CPU, "exclude_nodes": ["n"] * 65},
        {"count": 1, "hint": COLD_2_CPU, "strategy": "random"},
    ],
)
async def test_what_is_no_batch_is_refused_and_reserves_nothing(
    api: httpx.AsyncClient, node_b: str, body: dict[str, Any]
) -> None:
    answer = await api.post("/v1/schedule/batch", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "invalid_request"
    assert (await api.get("/v1/reservations")).json()["reservations"] == []
