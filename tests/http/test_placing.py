"""Placing over HTTP: what a gateway sends and what it gets."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import GroupSettings, LedgerSettings, NodeResourceLimit
from scheduler.ledger.ledger import Ledger
from tests.http.conftest import COLD_2_CPU, list_node, report
from tests.support.backends import put_settings
from tests.support.clock import VirtualClock


async def test_a_creation_is_placed_and_reserved(api: httpx.AsyncClient, node_a: str) -> None:
    answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU, "lifecycle": "explicit", "reservation_ttl": "2m"})
    assert answer.status_code == 200
    decision = answer.json()
    assert decision["node"] == {"node_id": node_a, "endpoint": "http://node-a:8000"}
    assert (decision["strategy"], decision["replayed"], decision["degraded"]) == ("round_robin", False, False)
    reservation = decision["reservation"]
    assert reservation["state"] == "pending"
    assert (reservation["cpu_count"], reservation["memory_bytes"]) == (2, 4 * 2**30)
    assert reservation["expires_at_ms"] - reservation["created_at_ms"] == 120_000


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"hint": null}'])
async def test_a_request_without_hint_names_a_node_and_reserves_nothing(
    api: httpx.AsyncClient, node_a: str, body: bytes | None
) -> None:
    answer = await api.post("/v1/schedule", content=body, headers={"Idempotency-Key": "ignored here"})
    assert answer.status_code == 200
    assert answer.json()["node"]["node_id"] == node_a
    assert answer.json()["reservation"] is None
    assert (await api.get("/v1/reservations")).json()["reservations"] == []


async def test_the_same_key_gives_the_same_reservation_and_another_request_is_a_conflict(
    api: httpx.AsyncClient, node_a: str
) -> None:
    key = {"Idempotency-Key": "create-1"}
    first = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers=key)).json()
    again = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers=key)).json()
    assert again["replayed"] is True
    assert again["reservation"] == first["reservation"]
    other = await api.post("/v1/schedule", json={"hint": {"kind": "cold_sandbox", "cpu_count": 1}}, headers=key)
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"
    assert other.json()["detail"] == "the idempotency key belongs to another request"
    assert other.json()["reservation"] == first["reservation"]


async def test_one_key_asked_fifty_times_at_once_reserves_once(api: httpx.AsyncClient, node_a: str) -> None:
    async def ask() -> str:
        answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": "one"})
        reservation_id: str = answer.json()["reservation"]["reservation_id"]
        return reservation_id

    assert len(set(await asyncio.gather(*(ask() for _ in range(50))))) == 1
    node = (await api.get(f"/v1/nodes/{node_a}")).json()
    assert node["pending"] == {"cpu_count": 2, "memory_bytes": 4 * 2**30, "sandbox_count": 1}


async def test_excluded_nodes_are_not_chosen(api: httpx.AsyncClient, node_a: str) -> None:
    await list_node(api, "node-b")
    for _ in range(3):
        answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU, "exclude_nodes": [node_a]})
        assert answer.json()["node"]["node_id"] == "node-b"


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_refusal_counts_every_node_under_its_first_reason(api: httpx.AsyncClient, node_a: str) -> None:
    await list_node(api, "node-b", cpu_count=64, memory_gib=1)
    await api.put("/v1/nodes/node-c", json={"endpoint": "http://node-c:8000", "state": "lingering"})
    hint = {"kind": "cold_sandbox", "cpu_count": 8, "memory_mb": 4096}
    answer = await api.post("/v1/schedule", json={"hint": hint})
    assert answer.status_code == 503
    assert answer.headers["retry-after"].isdecimal()
    problem = answer.json()
    assert problem["code"] == "no_nodes"
    assert problem["candidates"] == 3
    assert problem["reasons"] == {"insufficient_cpu": 1, "insufficient_memory": 1, "lingering": 1}
    figures = {"limit": "cpu_count", "current": 0, "pending": 0, "requested": 8, "maximum": 4}
    assert problem["over_limit"] == figures
    batch = (await api.post("/v1/schedule/batch", json={"count": 1, "hint": hint})).json()
    assert batch["refused"] == [{"index": 0, "reasons": problem["reasons"], "over_limit": figures}]
    told = (await api.get("/v1/decisions")).json()["decisions"]
    assert [each["over_limit"] for each in told] == [figures, figures]


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_size_no_node_could_hold_is_refused_as_such_and_costs_the_others_nothing(
    api: httpx.AsyncClient, ledger: Ledger, node_a: str, strategy: Strategy
) -> None:
    await put_settings(ledger, LedgerSettings(strategy=strategy, groups=GroupSettings(9), revision=1))
    await list_node(api, "node-b", cpu_count=64, memory_gib=1)
    body = {"hint": {"kind": "cold_sandbox", "cpu_count": 8, "memory_mb": 4096}}
    problem = (await api.post("/v1/schedule", json=body)).json()
    assert (problem["code"], problem["candidates"], problem["reasons"]) == ("no_nodes", 2, {"too_large": 2})
    explained = (await api.post("/v1/explain", json=body)).json()
    assert (explained["node"], explained["reasons"]) == (None, {"too_large": 2})
    assert {(node["reason"], node["rank"]) for node in explained["nodes"]} == {("too_large", None)}
    memory = {"limit": "memory_bytes", "current": 0, "pending": 0, "requested": 2**32, "maximum": 2**30}
    assert problem["over_limit"] == explained["over_limit"] == memory, "of the node that has the CPUs"
    cpus = {"limit": "cpu_count", "current": 0, "pending": 0, "requested": 8, "maximum": 4}
    assert [node["over_limit"] for node in explained["nodes"]] == [cpus, memory]
    assert (await api.get("/v1/reservations")).json()["reservations"] == []


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_refusal_for_a_limit_says_which_with_what_is_pending(
    api: httpx.AsyncClient, ledger: Ledger, node_a: str, strategy: Strategy
) -> None:
    limits = NodeResourceLimit(max_sandbox_count=4, max_cpu_allocated_percent=90)
    settings = LedgerSettings(strategy=strategy, node_resource_limit=limits, groups=GroupSettings(9), revision=1)
    await put_settings(ledger, settings)
    await list_node(api, "node-b", cpu_count=8)
    await report(api, "node-b", cpu_count=8, memory_total_bytes=2**33, sandbox_count=5)
    await report(api, node_a, cpu_count=4, memory_total_bytes=2**33, allocated_cpu=1, sandbox_count=2)
    placed = await api.post("/v1/schedule", json={"hint": COLD_2_CPU})
    assert placed.json()["node"]["node_id"] == node_a
    body = {"hint": {**COLD_2_CPU, "cpu_count": 1}}
    problem = (await api.post("/v1/schedule", json=body)).json()
    first = {"limit": "max_sandbox_count", "current": 5, "pending": 0, "requested": 1, "maximum": 4}
    assert (problem["reasons"], problem["over_limit"]) == ({"over_limit": 2}, first)
    explained = (await api.post("/v1/explain", json=body)).json()
    assert (explained["node"], explained["over_limit"]) == (None, first)
    second = {"limit": "max_cpu_allocated_percent", "current": 25, "pending": 50, "requested": 25, "maximum": 90}
    assert [(node["reason"], node["over_limit"]) for node in explained["nodes"]] == [
        ("over_limit", second),
        ("over_limit", first),
    ]


@pytest.mark.ledger_settings(node_resource_limit=NodeResourceLimit(max_sandbox_count=1))
async def test_more_nodes_at_their_limit_than_a_turn_looks_at_do_not_hide_the_one_that_is_not(
    api: httpx.AsyncClient, ledger: Ledger
) -> None:
    names = [f"node-{number:03}" for number in range(200)]
    await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in names], ())
    for name in names:
        await report(api, name, cpu_count=64, memory_total_bytes=2**36, sandbox_count=int(name != "node-170"))
    answers = [await api.post("/v1/schedule", json={"hint": COLD_2_CPU}) for _ in range(2)]
    assert answers[0].json()["node"]["node_id"] == "node-170"
    assert answers[1].json()["reasons"] == {"over_limit": 200}


async def test_callers_refused_together_are_asked_back_at_different_instants(embedded_api: httpx.AsyncClient) -> None:
    answers = [await embedded_api.post("/v1/schedule", json={"hint": COLD_2_CPU}) for _ in range(100)]
    asked = [int(answer.headers["retry-after"]) for answer in answers]
    assert min(asked) >= 1
    assert len(set(asked)) > 1


async def test_without_any_node_the_refusal_has_no_reasons(api: httpx.AsyncClient) -> None:
    problem = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).json()
    assert (problem["code"], problem["candidates"], problem["reasons"]) == ("no_nodes", 0, {})


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_explain_ranks_every_node_and_reserves_nothing(api: httpx.AsyncClient, node_a: str) -> None:
    await list_node(api, "node-b", cpu_count=64, memory_gib=64)
    await list_node(api, "node-c", cpu_count=1, memory_gib=64)
    explained = (await api.post("/v1/explain", json={"hint": COLD_2_CPU})).json()
    assert explained["node"]["node_id"] == "node-b"
    by_id = {node["node_id"]: node for node in explained["nodes"]}
    assert [by_id[node_id]["rank"] for node_id in ("node-b", "node-a")] == [0, 1]
    assert by_id["node-c"]["rank"] is None
    assert by_id["node-c"]["reason"] == "insufficient_cpu"
    assert by_id["node-a"]["pressure"]["cpu"] == pytest.approx(0.5)
    assert (await api.get("/v1/reservations")).json()["reservations"] == []


async def test_a_sandbox_request_is_read_for_its_hint(api: httpx.AsyncClient, node_a: str) -> None:
    request = {"method": "POST", "path": "/sandboxes-cold/", "body": {"image": "i", "cpuCount": 3, "memoryMB": 512}}
    reservation = (await api.post("/v1/schedule", json={"request": request})).json()["reservation"]
    assert (reservation["cpu_count"], reservation["memory_bytes"]) == (3, 512 * 2**20)
    routing = {"method": "GET", "path": "/sandboxes"}
    assert (await api.post("/v1/schedule", json={"request": routing})).json()["reservation"] is None


@pytest.mark.parametrize("path", ["/v1/schedule", "/v1/explain"])
async def test_a_placement_says_what_it_could_not_read(api: httpx.AsyncClient, node_a: str, path: str) -> None:
    request = {"method": "POST", "path": "/sandboxes-cold", "body": {"image": "i", "cpuCount": -1}}
    told = (await api.post("/v1/hints", json=request)).json()["warnings"]
    answer = (await api.post(path, json={"request": request})).json()
    assert answer["node"]["node_id"] == node_a
    assert answer["warnings"] == told != []
    readable = {**request, "body": {"image": "i", "cpuCount": 1}}
    assert "warnings" not in (await api.post(path, json={"request": readable})).json()


async def test_hint_and_request_exclude_each_other(api: httpx.AsyncClient, node_a: str) -> None:
    both = {"hint": COLD_2_CPU, "request": {"method": "POST", "path": "/sandboxes"}}
    answer = await api.post("/v1/schedule", json=both)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "request"


async def test_a_late_answer_to_an_expired_key_is_a_conflict(
    api: httpx.AsyncClient, node_a: str, clock: VirtualClock
) -> None:
    key = {"Idempotency-Key": "slow"}
    await api.post("/v1/schedule", json={"hint": COLD_2_CPU, "reservation_ttl": "1s"}, headers=key)
    clock.advance(1_000)
    answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU, "reservation_ttl": "1s"}, headers=key)
    assert answer.status_code == 409
    assert answer.json()["reservation"]["state"] in {"pending", "expired"}


@pytest.mark.parametrize(
    ("request_body", "hint"),
    [
        (
            {"method": "POST", "path": "/sandboxes-cold", "body_text": '{"image": "i", "cpuCount": 2}'},
            {"kind": "cold_sandbox", "cpu_count": 2, "memory_mb": 0, "images": ["i"], "metadata": {}},
        ),
        (
            {"method": "POST", "path": "/sandboxes", "body": {"templateID": "base", "metadata": {"k": "v"}}},
            {"kind": "sandbox", "template_id": "base", "metadata": {"k": "v"}},
        ),
        ({"method": "POST", "path": "/snapshots", "body": None}, None),
        ({"method": "GET", "path": "/sandboxes-cold"}, None),
    ],
)
async def test_hints_shows_what_would_be_read(
    embedded_api: httpx.AsyncClient, request_body: dict[str, object], hint: dict[str, object] | None
) -> None:
    answer = await embedded_api.post("/v1/hints", json=request_body)
    assert answer.json() == {"hint": hint, "warnings": []}


async def test_one_bad_member_loses_itself_unless_the_reading_is_strict(embedded_api: httpx.AsyncClient) -> None:
    request = {"method": "POST", "path": "/sandboxes-cold", "body": {"image": "i", "cpuCount": -1}}
    lenient = (await embedded_api.post("/v1/hints", json=request)).json()
    assert lenient["hint"]["images"] == ["i"]
    assert "cpuCount" in lenient["warnings"][0]
    strict = (await embedded_api.post("/v1/hints", json={**request, "strict": True})).json()
    assert strict["hint"]["images"] == []


async def test_body_and_body_text_exclude_each_other_and_null_is_neither(embedded_api: httpx.AsyncClient) -> None:
    both = {"method": "POST", "path": "/sandboxes", "body": {}, "body_text": '{"templateID": "t"}'}
    assert (await embedded_api.post("/v1/hints", json=both)).status_code == 422
    one = await embedded_api.post("/v1/hints", json={**both, "body": None})
    assert one.json()["hint"]["template_id"] == "t"
