"""Cordons, which end with the process they were put on, and the log of who did what."""

from __future__ import annotations

from typing import Any

import httpx

from scheduler.access.policy import AccessPolicy
from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import Ledger
from scheduler.service import Services, build_services
from tests.http.conftest import COLD_2_CPU, list_node, open_client, report
from tests.http.test_access import KEYS, key_ring  # noqa: F401 - a fixture
from tests.support.clock import VirtualClock


async def cordon(api: httpx.AsyncClient, node_id: str, instance: str = "", call: str = "cordon") -> httpx.Response:
    body = {"service_instance_id": instance or f"svc-{node_id}"}
    return await api.post(f"/v1/nodes/{node_id}/{call}", json=body)


async def node(api: httpx.AsyncClient, node_id: str) -> tuple[str, bool, bool, str]:
    found = (await api.get(f"/v1/nodes/{node_id}")).json()
    return found["status"], found["cordoned"], found["eligible"], found["snapshot"]["status"]


async def placed_on(api: httpx.AsyncClient) -> str:
    answer = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).json()
    found: str = answer["node"]["node_id"] if "node" in answer else str(answer["reasons"])
    return found


async def test_a_cordoned_node_takes_nothing_new_until_it_is_uncordoned(
    api: httpx.AsyncClient, services: Services, node_a: str, clock: VirtualClock
) -> None:
    for _ in range(2):  # once more changes nothing
        answer = await cordon(api, node_a)
        assert answer.json() == {"node_id": node_a, "service_instance_id": "svc-node-a", "cordoned": True}
        assert await node(api, node_a) == ("lingering", True, False, "ready")
    assert await placed_on(api) == "{'lingering': 1}"
    await report(api, node_a, cpu_count=4, memory_total_bytes=2**33)
    assert await node(api, node_a) == ("lingering", True, False, "ready")
    assert await recount(services.ledger) == []
    for _ in range(2):
        assert (await cordon(api, node_a, call="uncordon")).json()["cordoned"] is False
        assert await node(api, node_a) == ("ready", False, True, "ready")
    assert await placed_on(api) == node_a
    await cordon(api, node_a)
    clock.advance(40_000)
    assert await node(api, node_a) == ("unhealthy", True, False, "ready")
    await cordon(api, node_a, call="uncordon")
    assert (await node(api, node_a))[0] == "unhealthy"
    assert await recount(services.ledger) == []


async def test_a_cordon_ends_with_its_process_and_not_with_a_report_of_it(
    api: httpx.AsyncClient, services: Services, node_a: str
) -> None:
    await cordon(api, node_a)
    await api.post(
        f"/v1/nodes/{node_a}/heartbeat", json={"service_instance_id": "next", "snapshot": {"status": "ready"}}
    )
    assert (await node(api, node_a))[:3] == ("ready", False, True)
    answer = await cordon(api, node_a)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["reporting_instance_id"] == "next"
    await cordon(api, node_a, "next")
    await api.delete(f"/v1/nodes/{node_a}?service_instance_id=next")
    await api.post(
        f"/v1/nodes/{node_a}/heartbeat", json={"service_instance_id": "third", "snapshot": {"status": "ready"}}
    )
    assert (await node(api, node_a))[:3] == ("ready", False, True)
    assert await recount(services.ledger) == []


async def test_what_was_never_observed_cannot_be_cordoned(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://a:1"})
    for node_id in ("node-a", "stranger"):
        answer = await cordon(api, node_id)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await api.post("/v1/nodes/node-a/cordon", json={"service_instance_id": " "})).status_code == 422


async def test_a_drain_told_by_discovery_outlives_an_uncordon(api: httpx.AsyncClient, node_a: str) -> None:
    await cordon(api, node_a)
    await api.put(f"/v1/nodes/{node_a}", json={"endpoint": "http://node-a:8000", "state": "lingering"})
    await cordon(api, node_a, call="uncordon")
    assert (await node(api, node_a))[:3] == ("lingering", False, False)
    await api.put(f"/v1/nodes/{node_a}", json={"endpoint": "http://node-a:8000"})
    assert (await node(api, node_a))[:3] == ("ready", False, True)


async def test_acts_are_told_with_who_did_them(embedded_ledger: Ledger, key_ring: Any) -> None:  # noqa: F811
    async with open_client(build_services(embedded_ledger), access=AccessPolicy(key_ring)) as api:
        api.headers["X-API-Key"] = KEYS["admin"]
        await list_node(api, "node-a", cpu_count=64, memory_gib=64)
        for act in ("uncordon", "cordon", "cordon", "uncordon", "uncordon"):  # what changes nothing is no act
            await cordon(api, "node-a", call=act)
        await api.put("/v1/templates/t", json={"cpu_count": 1, "memory_mb": 1})
        await api.delete("/v1/templates/t")
        made = [(await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).json()["reservation"] for _ in range(2)]
        for reason in ("stuck", "still stuck"):
            await api.post(f"/v1/reservations/{made[0]['reservation_id']}/cancel", json={"reason": reason})
        keyed = await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": "k"})
        await api.post("/v1/reservations/cancel", json={"idempotency_key": "k", "reason": "by its key"})
        gateway = {"X-API-Key": KEYS["gateway"]}
        for call in ("cordon", "uncordon"):
            body = {"service_instance_id": "svc-node-a"}
            assert (await api.post(f"/v1/nodes/node-a/{call}", json=body, headers=gateway)).status_code == 403
        await api.post(f"/v1/reservations/{made[1]['reservation_id']}/cancel", headers=gateway)
        await api.put(
            "/v1/nodes", json={"active": [], "lingering": [{"id": "node-a", "endpoint": "http://node-a:8000"}]}
        )
        await api.delete("/v1/nodes/node-a?remove=true")
        await api.delete("/v1/nodes/node-a?remove=true")  # which is not there any more
        acts = (await api.get("/v1/audit")).json()["acts"]
        assert [(act["act"], act["subject"]) for act in reversed(acts)] == [
            ("node.put", "node-a"),
            ("node.cordon", "node-a"),
            ("node.uncordon", "node-a"),
            ("template.put", "t"),
            ("template.delete", "t"),
            ("reservation.cancel", made[0]["reservation_id"]),
            ("reservation.cancel", keyed.json()["reservation"]["reservation_id"]),
            ("nodes.replace", ""),
            ("node.remove", "node-a"),
        ]
        assert {act["actor"] for act in acts} == {"ops"}
        assert [act["details"]["reason"] for act in acts[2:4]] == ["by its key", "stuck"]
        first = (await api.get("/v1/audit?limit=3")).json()
        rest = (await api.get("/v1/audit", params={"cursor": first["cursor"]})).json()
        assert first["acts"] + rest["acts"] == acts
