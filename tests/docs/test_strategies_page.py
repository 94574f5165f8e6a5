"""What docs/strategies.md says of anti-affinity, asked for as it says."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from scheduler.domain.placement import Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.docs.commands import ROOT
from tests.http.conftest import open_client, report
from tests.support.backends import put_settings

PAGE = (ROOT / "docs/strategies.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### Anti-affinity\n")[2].partition("\n## ")[0]
HINT = {"kind": "sandbox", "template_id": "base"}


async def place(api: httpx.AsyncClient, body: dict[str, Any]) -> Any:
    """The node, or the reasons why there is none."""
    answer = (await api.post("/v1/schedule", json=body)).json()
    return answer["node"]["node_id"] if "node" in answer else answer["reasons"]


@pytest.mark.parametrize("strategy", [Strategy.LEAST_LOADED, Strategy.ROUND_ROBIN])
async def test_sandboxes_keep_apart_as_the_page_says(embedded_ledger: Ledger, strategy: Strategy) -> None:
    await put_settings(embedded_ledger, LedgerSettings(strategy=strategy, revision=1))
    async with open_client(build_services(embedded_ledger)) as api:
        await keep_apart(api)


async def keep_apart(api: httpx.AsyncClient) -> None:
    zones = {"a": "east", "b": "east", "c": "west"}
    for node_id, zone in zones.items():
        listed = {"endpoint": f"http://{node_id}:8000", "labels": {"zone": zone}}
        await api.put(f"/v1/nodes/{node_id}", json=listed)
        await report(api, node_id, cpu_count=64, memory_total_bytes=2**36)

    by_node, by_zone = (json.loads(text) for text in re.findall(r"--json '(.*)'", SECTION))
    assert sorted([await place(api, by_node) for _ in range(3)]) == ["a", "b", "c"]
    assert await place(api, by_node) == {"spread": 3}
    assert {zones[await place(api, by_zone)] for _ in range(2)} == {"east", "west"}
    assert await place(api, by_zone) == {"spread": 3}

    def spread(**members: Any) -> dict[str, Any]:
        return {"hint": {**HINT, "spread": members}}

    soft = [await place(api, spread(key="soft", max=1000)) for _ in range(6)]
    assert sorted(soft) == ["a", "a", "b", "b", "c", "c"]
    assert sorted(soft[:3]) == ["a", "b", "c"]
    even = [await place(api, spread(key="even", skew=1)) for _ in range(3)]
    assert sorted(even) == ["a", "b", "c"]
    both = [
        {"hint": {**HINT, "template_id": group, "spread": {"key": "both", "max": 1}}} for group in ("x", "y", "x", "y")
    ]
    assert [await place(api, body) for body in both][3] == {"spread": 3}

    await api.put("/v1/bindings/running", json={"node_id": "b", "endpoint": "http://b:8000"})
    there = (await api.get("/v1/bindings/running")).json()["node"]["node_id"]
    away = [await place(api, {"hint": HINT, "exclude_nodes": [there]}) for _ in range(4)]
    assert "b" not in away
    assert await place(api, {"hint": {**HINT, "require": {"zone": "west"}}}) == "c"
    two = {"hint": {**HINT, "spread": [{"key": "k", "max": 1}]}}
    assert (await api.post("/v1/schedule", json=two)).status_code == 422, "a hint has one spread"
