"""What a web page could make a browser send to a replica on loopback that asks nobody for a key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from scheduler.access import KeyRing, generate_key, hash_key
from scheduler.access.policy import AccessPolicy
from scheduler.api.http import create_metrics_app
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.http.conftest import open_client
from tests.support.embedded import sent_to

HERE = "127.0.0.1:8090"
NODE = b'{"endpoint": "http://evil.test:1"}'


@pytest.fixture
async def local(embedded_ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(build_services(embedded_ledger), access=AccessPolicy(), headers={"Host": HERE}) as opened:
        yield opened


async def test_a_body_needs_its_content_type(local: httpx.AsyncClient, embedded_ledger: Ledger) -> None:
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        answer = await local.put("/v1/nodes/evil", content=NODE, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert sent_to(embedded_ledger) == 0
    json_body = {"Content-Type": "application/json"}
    assert (await local.put("/v1/nodes/a", content=NODE, headers=json_body)).status_code == 200


async def test_without_a_body_there_is_nothing_to_say_of_it(local: httpx.AsyncClient) -> None:
    answer = await local.post("/v1/schedule")
    assert answer.json()["code"] == "no_nodes"


@pytest.mark.parametrize("path", ["/", "/metrics", "/readyz", "/v1/nodes", "/openapi.json"])
async def test_a_foreign_host_or_origin_learns_nothing(local: httpx.AsyncClient, path: str) -> None:
    for headers in ({"Host": "evil.test:8090"}, {"Origin": "https://evil.test"}, {"Origin": "null"}):
        answer = await local.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await local.get(path, headers={"Origin": f"http://{HERE}"})).status_code == 200


async def test_a_foreign_page_places_nothing_even_without_a_body(
    local: httpx.AsyncClient, embedded_ledger: Ledger
) -> None:
    answer = await local.post("/v1/schedule", headers={"Origin": "https://evil.test"})
    assert answer.status_code == 403
    assert sent_to(embedded_ledger) == 0


async def test_the_page_of_metrics_is_kept_from_it_too(embedded_ledger: Ledger) -> None:
    app = create_metrics_app(build_services(embedded_ledger), AccessPolicy(insecure=True))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HERE}") as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/metrics", headers={"Host": "evil.test"})).status_code == 403


async def test_with_keys_names_and_types_do_not_matter(embedded_ledger: Ledger, tmp_path: Path) -> None:
    key = generate_key()
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "ops", "role": "admin", "sha256": hash_key(key)}]}), "utf-8")
    headers = {"Host": "scheduler.example", "Origin": "https://console.example", "X-API-Key": key}
    async with open_client(build_services(embedded_ledger), access=AccessPolicy(KeyRing(path))) as opened:
        assert (await opened.put("/v1/nodes/a", content=NODE, headers=headers)).status_code == 200


async def test_a_key_that_is_given_twice_is_none(embedded_ledger: Ledger, tmp_path: Path) -> None:
    key = generate_key()
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "ops", "role": "admin", "sha256": hash_key(key)}]}), "utf-8")
    async with open_client(build_services(embedded_ledger), access=AccessPolicy(KeyRing(path))) as opened:
        answer = await opened.get("/v1/nodes", headers=[(b"X-API-Key", key.encode())] * 2)
        assert answer.status_code == 401
