"""Which images and templates are warm on which nodes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.settings import AffinitySettings, LedgerSettings
from scheduler.ledger import warm_keys
from scheduler.ledger.ledger import Ledger
from scheduler.service import Services
from tests.http.conftest import COLD_2_CPU, list_node
from tests.support.backends import put_settings

WARM = LedgerSettings(strategy=Strategy.LEAST_LOADED, affinity=AffinitySettings(slack=250, keys_per_node=2))


@pytest.fixture
def ledger_settings() -> LedgerSettings:
    return WARM


async def place(api: httpx.AsyncClient, image: str, *excluded: str) -> None:
    body = {"hint": {**COLD_2_CPU, "images": [image]}, "exclude_nodes": excluded}
    (await api.post("/v1/schedule", json=body)).raise_for_status()


async def warm(api: httpx.AsyncClient, **query: Any) -> tuple[list[tuple[str, list[str]]], str | None]:
    answer = await api.get("/v1/warm-keys", params=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["slack"] == 0.25
    return [(node["node_id"], [each["key"] for each in node["keys"]]) for node in found["nodes"]], found["cursor"]


async def test_warm_keys_are_told_by_node_by_key_and_by_the_page(
    api: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ("a", "b", "c", "d")
    for node_id in nodes:
        await list_node(api, node_id, cpu_count=64, memory_gib=64)
    assert await warm(api) == ([], None)
    for image, holder in (("old", "a"), ("app", "a"), ("web", "a"), ("app", "c"), ("app", "d"), ("<b>", "d")):
        await place(api, image, *(each for each in nodes if each != holder))
    everywhere = [("a", ["image:web", "image:app"]), ("c", ["image:app"]), ("d", ["image:<b>", "image:app"])]
    assert await warm(api) == (everywhere, None)
    # A page looks at so many nodes only, warm or not, and still leads to the end.
    monkeypatch.setattr(warm_keys, "NODES_A_STEP", 2)
    monkeypatch.setattr(warm_keys, "LOOKED_AT_MOST", 2)
    for limit in (1, 2, 4):
        found, cursor = await warm(api, limit=limit)
        while cursor is not None:
            page, cursor = await warm(api, limit=limit, cursor=cursor)
            assert len(page) <= limit
            found += page
        assert found == everywhere
    holders = [(node_id, ["image:app"]) for node_id in ("d", "c", "a")]
    assert await warm(api, key="image:app") == (holders, None)
    first, cursor = await warm(api, key="image:app", limit=2)
    assert (first, await warm(api, key="image:app", limit=2, cursor=cursor)) == (holders[:2], (holders[2:], None))
    assert await warm(api, node_id="d") == ([everywhere[2]], None)
    assert await warm(api, node_id="d", key="image:app") == ([("d", ["image:app"])], None)
    for nothing in (
        {"node_id": "b"},
        {"node_id": "nobody"},
        {"key": "image:old"},
        {"node_id": "c", "key": "image:web"},
    ):
        assert await warm(api, **nothing) == ([], None)
    for wrong in ("a", "\u0663", "1" * 17):  # an Arabic digit is none to Redis
        refused = await api.get("/v1/warm-keys", params={"key": "image:app", "cursor": wrong})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "cursor")


async def test_without_affinity_it_says_so(api: httpx.AsyncClient, ledger: Ledger) -> None:
    await list_node(api, "a", cpu_count=64, memory_gib=64)
    await place(api, "app")
    assert (await warm(api))[0]
    await put_settings(ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED, revision=1))
    assert (await api.get("/v1/warm-keys")).json() == {"slack": None, "nodes": [], "cursor": None}
