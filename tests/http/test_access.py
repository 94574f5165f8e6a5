"""Keys and roles over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from scheduler.access import KeyRing, generate_key, hash_key
from scheduler.access.policy import AccessPolicy
from scheduler.api.http import HttpOptions
from scheduler.domain.placement import ScheduleRequest
from scheduler.errors import StoreUnavailable
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.http.conftest import open_client
from tests.support.embedded import fail_with, note_calls

KEYS = {name: generate_key() for name in ("node", "bound", "gateway", "admin")}
ENTRIES = [
    {"name": "fleet", "role": "node", "sha256": hash_key(KEYS["node"])},
    {"name": "node-a", "role": "node", "sha256": hash_key(KEYS["bound"]), "node_id": "node-a"},
    {"name": "edge", "role": "gateway", "sha256": hash_key(KEYS["gateway"])},
    {"name": "ops", "role": "admin", "sha256": hash_key(KEYS["admin"])},
]


@pytest.fixture
def key_ring(tmp_path: Path) -> KeyRing:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": ENTRIES}), "utf-8")
    return KeyRing(path)


@pytest.fixture
async def guarded(embedded_ledger: Ledger, key_ring: KeyRing) -> AsyncIterator[httpx.AsyncClient]:
    options = HttpOptions(metrics_need_admin=True)
    async with open_client(build_services(embedded_ledger), options, AccessPolicy(key_ring)) as opened:
        for node_id in ("node-a", "node-b"):
            headers = {"X-API-Key": KEYS["admin"]}
            await opened.put(f"/v1/nodes/{node_id}", json={"endpoint": "http://a:1"}, headers=headers)
        yield opened


HEARTBEAT = ("POST", "/v1/nodes/node-a/heartbeat", {"service_instance_id": "i"})
CALLS = [
    (HEARTBEAT, {"node", "bound", "admin"}),
    (("POST", "/v1/nodes/node-b/heartbeat", {"service_instance_id": "i"}), {"node", "admin"}),
    (("POST", "/v1/nodes/node-b/events", {"service_instance_id": "i", "events": []}), {"node", "admin"}),
    (("DELETE", "/v1/nodes/node-a?service_instance_id=i", None), {"node", "bound", "admin"}),
    (("DELETE", "/v1/nodes/node-a?remove=true", None), {"admin"}),
    (("POST", "/v1/schedule", {}), {"gateway", "admin"}),
    (("POST", "/v1/explain", {}), {"gateway", "admin"}),
    (("POST", "/v1/hints", {"method": "GET", "path": "/"}), {"gateway", "admin"}),
    (("GET", "/v1/reservations", None), {"gateway", "admin"}),
    (("GET", "/v1/nodes", None), {"gateway", "admin"}),
    (("GET", "/v1/groups", None), {"gateway", "admin"}),
    (("GET", "/v1/warm-keys", None), {"gateway", "admin"}),
    (("GET", "/v1/settings", None), {"gateway", "admin"}),
    (("GET", "/v1/replicas", None), {"gateway", "admin"}),
    (("GET", "/v1/summary", None), {"gateway", "admin"}),
    (("GET", "/v1/decisions", None), {"gateway", "admin"}),
    (("GET", "/v1/audit", None), {"admin"}),
    (("GET", "/v1/templates", None), {"gateway", "admin"}),
    (("PUT", "/v1/templates/t", {"cpu_count": 1, "memory_mb": 1}), {"admin"}),
    (("PUT", "/v1/nodes", {}), {"admin"}),
    (("PUT", "/v1/nodes/node-a", {"endpoint": "http://a:1"}), {"admin"}),
    (("PUT", "/v1/bindings/s", {"node_id": "node-a", "endpoint": "http://a:1"}), {"gateway", "admin"}),
    (("GET", "/v1/artifacts?cluster_id=c&backend=b&key=k", None), {"node", "bound", "gateway", "admin"}),
    (
        ("PUT", "/v1/artifacts", {"cluster_id": "c", "backend": "b", "key": "k", "node_id": "node-b"}),
        {"node", "admin"},
    ),
    (("GET", "/metrics", None), {"admin"}),
]


@pytest.mark.parametrize(("call", "allowed"), CALLS)
@pytest.mark.parametrize("role", list(KEYS))
async def test_each_role_reaches_its_calls_and_no_other(
    guarded: httpx.AsyncClient, call: tuple[str, str, dict[str, object] | None], allowed: set[str], role: str
) -> None:
    method, path, body = call
    answer = await guarded.request(method, path, json=body, headers={"Authorization": f"Bearer {KEYS[role]}"})
    assert answer.status_code == (200 if role in allowed else 403)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": "guessed"},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {KEYS['admin']}x"},
        {"X-API-Key": hash_key(KEYS["admin"])},
    ],
)
async def test_without_a_known_key_nothing_is_answered(guarded: httpx.AsyncClient, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/v1/nodes"), ("POST", "/v1/schedule"), ("GET", "/metrics")):
        answer = await guarded.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_two_different_keys_are_refused_and_one_twice_is_one(guarded: httpx.AsyncClient) -> None:
    for first, second in (("admin", "gateway"), ("gateway", "admin")):
        headers = {"Authorization": f"Bearer {KEYS[first]}", "X-API-Key": KEYS[second]}
        answer = await guarded.get("/v1/nodes", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert "two different API keys" in answer.json()["detail"]
        assert (await guarded.get("/healthz", headers=headers)).status_code == 200
    same = {"Authorization": f"Bearer {KEYS['admin']}", "X-API-Key": KEYS["admin"]}
    of_a_proxy = {"Authorization": "Basic dXNlcjpwYXNz", "X-API-Key": KEYS["admin"]}
    for headers in (same, of_a_proxy):
        assert (await guarded.get("/v1/audit", headers=headers)).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/openapi.json"])
async def test_health_document_and_console_are_open(guarded: httpx.AsyncClient, path: str) -> None:
    assert (await guarded.get(path)).status_code == 200


async def test_an_unknown_key_is_refused_before_its_body_is_read(guarded: httpx.AsyncClient) -> None:
    answer = await guarded.post("/v1/schedule", content=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 401


async def test_the_caller_of_a_reservation_is_the_name_of_its_key(
    guarded: httpx.AsyncClient, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = note_calls(monkeypatch, embedded_ledger.placements, "schedule")
    body = {"hint": {"kind": "sandbox"}}
    await guarded.post("/v1/schedule", json=body, headers={"X-API-Key": KEYS["gateway"]})
    ((request,),) = asked
    assert isinstance(request, ScheduleRequest)
    assert request.caller == "edge"


AWAY = StoreUnavailable("the ledger cannot be reached").at("redis://scheduler:***@10.9.8.7:6379")


@pytest.mark.parametrize("role", ["gateway", "node", None, "guessed"])
@pytest.mark.parametrize("path", ["/readyz", "/v1/artifacts?cluster_id=c&backend=b&key=k"])
async def test_where_the_ledger_is_only_operators_learn(
    guarded: httpx.AsyncClient,
    embedded_ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    role: str | None,
    path: str,
) -> None:
    fail_with(monkeypatch, embedded_ledger, AWAY)
    headers = {} if role is None else {"X-API-Key": KEYS.get(role, role)}
    answer = await guarded.get(path, headers=headers)
    assert answer.status_code in {401, 503}
    assert "10.9.8.7" not in answer.text
    assert "scheduler:" not in answer.json()["detail"]
    told = await guarded.get(path, headers={"X-API-Key": KEYS["admin"]})
    assert told.json()["detail"] == "the ledger at redis://scheduler:***@10.9.8.7:6379 cannot be reached"


async def test_who_may_do_everything_is_an_operator(
    embedded_ledger: Ledger, embedded_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, embedded_ledger, AWAY)
    assert "10.9.8.7" in (await embedded_api.get("/readyz")).json()["detail"]
