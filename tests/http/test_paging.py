"""Lists of nodes, explanations and reservations by the page."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from scheduler.api.http.recent import ENTRIES_MAX, RecentAnswers
from scheduler.api.views import STATE_MEMBERS
from scheduler.service import Services
from tests.http.conftest import COLD_2_CPU, list_node, report
from tests.support.clock import VirtualClock

NODES = [f"node-{letter}" for letter in "abcde"]


@pytest.fixture
async def fleet(api: httpx.AsyncClient) -> list[str]:
    """Five nodes of 16 CPUs: e is emptiest, a fullest but one; c drains, d has never reported."""
    for node_id, used in zip(NODES, (12, 8, 4, 0, 2), strict=True):
        await list_node(api, node_id, cpu_count=16, memory_gib=64)
        await report(api, node_id, cpu_count=16, memory_total_bytes=2**36, allocated_cpu=used, sandbox_count=used // 2)
    await api.put("/v1/nodes/node-c", json={"endpoint": "http://node-c:8000", "state": "lingering"})
    await api.delete("/v1/nodes/node-d?service_instance_id=svc-node-d")
    return NODES


async def pages(api: httpx.AsyncClient, query: str, limit: int) -> list[list[dict[str, Any]]]:
    found, cursor = [], ""
    while True:
        asked = dict(part.split("=") for part in query.split("&") if part)
        answer = await api.get("/v1/nodes", params={**asked, "limit": limit, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["nodes"])
        cursor = answer.json()["cursor"]
        if cursor is None:
            return found


async def ids(api: httpx.AsyncClient, query: str = "", limit: int = 1000) -> list[str]:
    return [node["node_id"] for page in await pages(api, query, limit) for node in page]


async def test_nodes_come_by_the_page_and_end_with_a_null_cursor(api: httpx.AsyncClient, fleet: list[str]) -> None:
    assert (await api.get("/v1/nodes")).json()["cursor"] is None
    assert [len(page) for page in await pages(api, "", 2)] == [2, 2, 1]
    assert await ids(api, limit=2) == await ids(api) == fleet
    await api.post("/v1/nodes/node-b/heartbeat", json={"service_instance_id": "svc-node-b", "cluster_id": "c2"})
    assert await ids(api, "cluster_id=c1", 1) == ["node-a", "node-c", "node-e"]


async def test_a_status_selects_whatever_set_of_the_ledger_holds_it(
    api: httpx.AsyncClient, fleet: list[str], clock: VirtualClock
) -> None:
    assert await ids(api, "status=ready", 2) == ["node-a", "node-b", "node-e"]
    assert await ids(api, "status=connecting") == ["node-d"]
    assert await ids(api, "status=lingering") == ["node-c"]
    assert await ids(api, "status=unhealthy") == []
    clock.advance(20_000)
    await report(api, "node-b", status="unhealthy")
    clock.advance(20_000)
    # a, c and e fell silent just now, and nobody has noticed; a draining one that is silent shows as unhealthy.
    assert await ids(api, "status=unhealthy", 3) == ["node-a", "node-b", "node-c", "node-e"]
    assert await ids(api, "status=ready") == await ids(api, "status=lingering") == []


@pytest.mark.parametrize("limit", [1, 1000])
async def test_nodes_are_sorted_by_what_they_hold_and_unknown_values_come_last(
    api: httpx.AsyncClient, fleet: list[str], limit: int
) -> None:
    assert await ids(api, "sort=pressure", limit) == ["node-e", "node-c", "node-b", "node-a", "node-d"]
    assert await ids(api, "sort=-pressure", limit) == ["node-a", "node-b", "node-c", "node-e", "node-d"]
    assert await ids(api, "sort=-pressure&status=ready", limit) == ["node-a", "node-b", "node-e"]
    assert await ids(api, "sort=-node_id", limit) == fleet[::-1]
    assert await ids(api, "sort=cpu_count", limit) == ["node-a", "node-b", "node-c", "node-e", "node-d"]
    assert await ids(api, "sort=last_seen_ms", limit) == ["node-a", "node-b", "node-c", "node-e", "node-d"]
    placed = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).json()["node"]["node_id"]
    assert (await ids(api, "sort=-pending", limit))[0] == placed


async def test_a_label_selects_the_nodes_that_have_it_in_any_order_and_page(
    api: httpx.AsyncClient, fleet: list[str]
) -> None:
    for node_id, labels in (
        ("node-a", {"zone": "x"}),
        ("node-b", {"zone": "y"}),
        ("node-e", {"zone": "x", "gpu": "h"}),
    ):
        body = {"endpoint": f"http://{node_id}:8000", "labels": labels}
        assert (await api.put(f"/v1/nodes/{node_id}", json=body)).status_code == 200

    async def having(label: str, limit: int, **query: str) -> list[str]:
        found, cursor = [], ""
        while cursor is not None:
            asked = {"label": label, "limit": limit, "cursor": cursor, **query}
            page = (await api.get("/v1/nodes", params=asked)).json()
            found += [node["node_id"] for node in page["nodes"]]
            cursor = page["cursor"]
        return found

    for limit in (1, 1000):
        assert await having("zone=x", limit) == ["node-a", "node-e"]
        assert await having("zone=x", limit, sort="pressure", status="ready") == ["node-e", "node-a"]
        assert await having("zone=x,gpu=h", limit) == ["node-e"]
        assert await having("zone=z", limit) == []


async def test_fields_leave_out_what_nobody_asked_for(api: httpx.AsyncClient, fleet: list[str]) -> None:
    nodes = (await api.get("/v1/nodes?fields=status,pressure&limit=1")).json()["nodes"]
    assert [set(node) for node in nodes] == [{"node_id", "status", "pressure"}]
    whole = (await api.get("/v1/nodes")).json()["nodes"]
    short = (await api.get("/v1/nodes", params={"fields": ",".join(STATE_MEMBERS)})).json()["nodes"]
    assert short == [{name: node[name] for name in STATE_MEMBERS} for node in whole]
    (node,) = (await api.get("/v1/nodes?fields=snapshot&limit=1")).json()["nodes"]
    assert node["snapshot"] == (await api.get("/v1/nodes/node-a")).json()["snapshot"]


async def test_an_earlier_page_is_answered_only_to_who_says_that_it_will_do(
    api: httpx.AsyncClient, fleet: list[str]
) -> None:
    async def state_of_c(query: str = "") -> str:
        nodes = (await api.get(f"/v1/nodes?fields=discovery{query}")).json()["nodes"]
        return str(nodes[2]["discovery"])

    assert await state_of_c("&max_age=1m") == "lingering"
    await api.put("/v1/nodes/node-c", json={"endpoint": "http://node-c:8000"})
    assert await state_of_c("&max_age=1m") == "lingering"
    assert await state_of_c("&max_age=1m&limit=5") == "active"
    assert await state_of_c() == "active"
    assert (await api.get("/v1/nodes?max_age=soon")).json()["errors"][0]["field"] == "max_age"


async def test_recent_answers_grow_old_and_are_few() -> None:
    now, reads = [0.0], [0]

    async def read() -> int:
        reads[0] += 1
        return reads[0]

    recent = RecentAnswers(lambda: now[0])
    assert [await recent.answer("a", 5_000, read), await recent.answer("a", 5_000, read)] == [1, 1]
    now[0] = 5.0
    assert await recent.answer("a", 5_000, read) == 1
    assert await recent.answer("a", 4_999, read) == 2
    for asked in range(ENTRIES_MAX):
        await recent.answer(asked, 5_000, read)
    assert await recent.answer("a", 60_000, read) == ENTRIES_MAX + 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("status=asleep", "status"),
        ("sort=colour", "sort"),
        ("label=zone", "label"),
        ("label=zone%3Da%3Db", "label"),
        ("label=zone%3Da,tier%3Dfast,zone%3Db", "label"),
        ("fields=status,colour", "fields"),
        ("sort=pressure&cursor=node-a", "cursor"),
        ("sort=pressure&cursor=%5B%22x%22,%22node-a%22%5D", "cursor"),
        ("cursor=a%00b", "cursor"),
    ],
)
async def test_what_cannot_be_asked_of_a_page_is_refused_by_name(
    embedded_api: httpx.AsyncClient, query: str, field: str
) -> None:
    answer = await embedded_api.get(f"/v1/nodes?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


async def test_a_page_goes_on_where_a_node_stood_that_is_gone(api: httpx.AsyncClient, fleet: list[str]) -> None:
    first = (await api.get("/v1/nodes?sort=pressure&limit=2")).json()
    assert [node["node_id"] for node in first["nodes"]] == ["node-e", "node-c"]
    await api.delete("/v1/nodes/node-c?remove=true")
    rest = (await api.get("/v1/nodes", params={"sort": "pressure", "cursor": first["cursor"]})).json()
    assert [node["node_id"] for node in rest["nodes"]] == ["node-b", "node-a", "node-d"]


async def test_an_explanation_by_the_page_ranks_among_all_nodes(api: httpx.AsyncClient, fleet: list[str]) -> None:
    whole = (await api.post("/v1/explain", json={"hint": COLD_2_CPU})).json()
    assert whole["cursor"] is None
    assert [node["node_id"] for node in whole["nodes"]] == fleet
    assert [node["rank"] for node in whole["nodes"]].count(None) == 1
    found: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = (await api.post("/v1/explain", json={"hint": COLD_2_CPU}, params={"limit": 2, "cursor": cursor})).json()
        assert page["node"] == whole["node"]
        found += page["nodes"]
        cursor = page["cursor"]
    assert found == whole["nodes"]


async def test_the_reservations_of_a_node_are_its_open_and_its_finished_ones_in_order(
    api: httpx.AsyncClient, services: Services
) -> None:
    for node_id in ("node-a", "node-b"):
        await list_node(api, node_id, cpu_count=64, memory_gib=256)
    made = []
    for _ in range(8):
        answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU})
        made.append(answer.json()["reservation"])
    for reservation in made[::3]:
        await api.post(f"/v1/reservations/{reservation['reservation_id']}/cancel")

    async def listed(**query: Any) -> list[str]:
        found, cursor = [], ""
        while cursor is not None:
            page = (await api.get("/v1/reservations", params={**query, "limit": 1, "cursor": cursor})).json()
            found += [each["reservation_id"] for each in page["reservations"]]
            cursor = page["cursor"]
        return found

    for node_id in ("node-a", "node-b"):
        own = [each["reservation_id"] for each in made if each["node_id"] == node_id]
        cancelled = [each["reservation_id"] for each in made[::3] if each["node_id"] == node_id]
        assert await listed(node_id=node_id) == own
        assert await listed(node_id=node_id, state="cancelled") == cancelled
        assert await listed(node_id=node_id, state="pending") == [each for each in own if each not in cancelled]
        assert await listed(node_id=node_id, state="settled") == []
    assert await listed(node_id="node-x") == []


async def test_a_finished_reservation_leaves_its_nodes_list_when_it_stops_being_readable(
    api: httpx.AsyncClient, services: Services, clock: VirtualClock, node_a: str
) -> None:
    made = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).json()["reservation"]
    await api.post(f"/v1/reservations/{made['reservation_id']}/cancel")
    keys, command = services.ledger.keys, services.ledger.client.command
    assert await command("ZCARD", keys.node_finished(node_a)) == 1
    clock.advance(2 * 3_600_000)
    await services.reservations.sweep()
    assert await command("EXISTS", keys.node_finished(node_a)) == 0
