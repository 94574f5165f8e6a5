"""Discovery, heartbeats and views over HTTP."""

from __future__ import annotations

import httpx
import msgpack
import pytest

from scheduler.api.http.options import HttpOptions
from scheduler.domain.node import FIGURES
from scheduler.service import Services
from tests.http.conftest import COLD_2_CPU, list_node, open_client, report
from tests.support.backends import Backend
from tests.support.clock import VirtualClock


async def test_a_listed_node_that_never_reported_is_shown_as_connecting(api: httpx.AsyncClient) -> None:
    listed = await api.put("/v1/nodes/node-a", json={"endpoint": "http://10.0.0.7:8000"})
    assert listed.json() == {"node_id": "node-a", "endpoint": "http://10.0.0.7:8000", "state": "active"}
    (node,) = (await api.get("/v1/nodes")).json()["nodes"]
    assert (node["status"], node["last_seen_ms"], node["generation"]) == ("connecting", None, 0)


async def test_labels_of_every_source_are_shown_and_stay_when_a_put_is_silent(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000", "labels": {"zone": "a"}})
    await api.post(
        "/v1/nodes/node-a/heartbeat", json={"service_instance_id": "i", "labels": {"zone": "b", "gpu/model": "h100"}}
    )
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000", "state": "lingering"})
    (node,) = (await api.get("/v1/nodes")).json()["nodes"]
    assert node["labels"] == {"zone": "a", "gpu/model": "h100"}
    for labels in ({"a b": "x"}, {"zone": 1}, ["zone"], {"zone": "é"}, {f"l{number}": "x" for number in range(17)}):
        refused = await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000", "labels": labels})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    listed = [{"id": f"n{number}", "endpoint": "http://n", "labels": {"rack": f"{number}"}} for number in range(64)]
    full = await api.put("/v1/nodes", json={"active": listed})
    assert (full.status_code, full.json()["code"]) == (409, "conflict")
    assert len((await api.get("/v1/nodes")).json()["nodes"]) == 1
    hint = {"kind": "cold_sandbox", "require": {"zone": ["b", "c"]}}
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
    (explained,) = (await api.post("/v1/explain", json={"hint": hint})).json()["nodes"]
    assert explained["label"] == {"label": "zone", "asked": ["b", "c"], "found": "a"}


async def test_a_report_is_shown_whole(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
    figures = {name: place for place, name in enumerate(FIGURES, start=1)}
    snapshot = figures | {
        "status": "ready",
        "cpu_count": 8,
        "memory_total_bytes": 2**53 - 1,
        "allocated_cpu": 4,
        "allocated_memory_bytes": 2**40 + 1,
        "paused_allocated_cpu": 1,
        "cpu_percent": 17,
        "sandbox_count": 3,
        "create_successes": 2**53 - 1,
        "reported_at_unix_ms": 1_700_000_000_123,
        "disks": [{"mount_point": "/", "device": "vda", "filesystem_type": "ext4", "used_bytes": 1, "total_bytes": 2}],
    }
    body = {
        "service_instance_id": "svc",
        "cluster_id": "c1",
        "version": "0.1.3",
        "commit": "abc",
        "machine_info": {"cpu_model": "m"},
        "snapshot": snapshot,
        "p2p_endpoint": {"backend": "iroh", "address": "{}"},
    }
    answer = await api.post("/v1/nodes/node-a/heartbeat", json=body)
    assert answer.json()["stale"] is False
    node = (await api.get("/v1/nodes/node-a")).json()
    assert {name: node["snapshot"][name] for name in snapshot} == snapshot
    assert (node["status"], node["cluster_id"], node["version"]) == ("ready", "c1", "0.1.3")
    assert node["generation"] == answer.json()["generation"]
    assert node["eligible"] is True
    assert node["pressure"]["cpu"] == pytest.approx(5 / 8)


async def test_messagepack_heartbeats_are_read_and_answered_in_kind(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
    body = msgpack.packb({"service_instance_id": "svc", "sandbox_ids": ["s1", " s1 ", "", "s2"]})
    answer = await api.post("/v1/nodes/node-a/heartbeat", content=body, headers={"Content-Type": "application/msgpack"})
    assert answer.headers["content-type"] == "application/msgpack"
    assert msgpack.unpackb(answer.content)["stale"] is False
    for sandbox_id in ("s1", "s2"):
        assert (await api.get(f"/v1/bindings/{sandbox_id}")).status_code == 200


@pytest.mark.parametrize("count", [20_000, 110_000])
async def test_a_large_roster_is_accepted(
    services: Services, count: int, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend.name == "embedded" and count > 20_000:
        pytest.skip("fakeredis applies a roster at a few thousand ids a second; the size is a real server's matter")
    # A busy machine may take longer than a node waits.
    monkeypatch.setattr("scheduler.ledger.nodes.HEARTBEAT_DEADLINE_MS", 100_000)
    async with open_client(services, HttpOptions(request_timeout_ms=100_000), timeout=100) as api:
        await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
        roster = [f"{number:036d}" for number in range(count)]
        told = {"service_instance_id": "svc", "sandbox_ids": roster}
        assert (await api.post("/v1/nodes/node-a/heartbeat", json=told)).status_code == 200
        assert (await api.get(f"/v1/bindings/{roster[-1]}")).status_code == 200


async def test_a_heartbeat_of_an_unknown_node_is_not_found(api: httpx.AsyncClient) -> None:
    answer = await report(api, "stranger")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_sequence_that_does_not_rise_is_stale(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
    for sequence, stale in ((5, False), (5, True), (4, True), (6, False)):
        body = {"service_instance_id": "svc", "sequence": sequence}
        assert (await api.post("/v1/nodes/node-a/heartbeat", json=body)).json()["stale"] is stale


async def test_a_report_without_a_sequence_does_not_undo_the_fence(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
    reports = (("old", 5, False), ("old", None, False), ("old", 4, True), ("old", 6, False), ("new", 1, False))
    for instance, sequence, stale in reports:
        body = {"service_instance_id": instance} | ({} if sequence is None else {"sequence": sequence})
        assert (await api.post("/v1/nodes/node-a/heartbeat", json=body)).json()["stale"] is stale


async def test_a_silent_node_turns_unhealthy_one_millisecond_after_the_ttl(
    api: httpx.AsyncClient, node_a: str, clock: VirtualClock
) -> None:
    clock.advance(30_000)
    assert (await api.get(f"/v1/nodes/{node_a}")).json()["status"] == "ready"
    clock.advance(1)
    assert (await api.get(f"/v1/nodes/{node_a}")).json()["status"] == "unhealthy"
    answer = await api.post("/v1/schedule", json={"hint": COLD_2_CPU})
    assert answer.json()["degraded"] is True


async def test_draining_a_node_keeps_it_listed_and_unchosen(api: httpx.AsyncClient, node_a: str) -> None:
    await api.put(f"/v1/nodes/{node_a}", json={"endpoint": "http://node-a:8000", "state": "lingering"})
    node = (await api.get(f"/v1/nodes/{node_a}")).json()
    assert (node["status"], node["eligible"], node["ineligible_reason"]) == ("lingering", False, "lingering")
    assert (await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).status_code == 503


async def test_replacing_the_list_adds_moves_and_removes_in_one_step(api: httpx.AsyncClient, node_a: str) -> None:
    body = {
        "active": [{"id": "node-b", "endpoint": "http://b:1"}, {"id": "node-c", "endpoint": "http://c:1"}],
        "lingering": [{"id": "node-c", "endpoint": "http://c:2"}],
    }
    answer = await api.put("/v1/nodes", json=body)
    assert answer.json() == {"active": 1, "lingering": 1}
    nodes = (await api.get("/v1/nodes")).json()["nodes"]
    assert [(node["node_id"], node["endpoint"]) for node in nodes] == [
        ("node-b", "http://b:1"),
        ("node-c", "http://c:2"),
    ]


async def test_one_id_with_two_endpoints_is_refused(api: httpx.AsyncClient) -> None:
    active = [{"id": "node-b", "endpoint": "http://b:1"}, {"id": "node-b", "endpoint": "http://b:2"}]
    answer = await api.put("/v1/nodes", json={"active": active})
    assert answer.json()["errors"][0]["field"] == "active.1.id"


async def test_unregister_forgets_the_report_and_keeps_the_node(api: httpx.AsyncClient, node_a: str) -> None:
    other = await api.delete(f"/v1/nodes/{node_a}?service_instance_id=other")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    own = await api.delete(f"/v1/nodes/{node_a}?service_instance_id=svc-node-a")
    assert own.json() == {"node_id": node_a, "removed": False}
    node = (await api.get(f"/v1/nodes/{node_a}")).json()
    assert node["last_seen_ms"] is None


async def test_remove_takes_the_node_off_the_list(api: httpx.AsyncClient, node_a: str) -> None:
    assert (await api.delete(f"/v1/nodes/{node_a}?remove=true")).json() == {"node_id": node_a, "removed": True}
    assert (await api.get(f"/v1/nodes/{node_a}")).status_code == 404
    assert (await api.delete(f"/v1/nodes/{node_a}?remove=true")).status_code == 404


@pytest.mark.parametrize("query", ["", "remove=false", "remove=true&service_instance_id=svc", "remove=perhaps"])
async def test_a_delete_says_which_of_the_two_it_means(api: httpx.AsyncClient, node_a: str, query: str) -> None:
    assert (await api.delete(f"/v1/nodes/{node_a}?{query}")).status_code == 422


async def test_a_delete_without_its_instance_says_where_to_put_it(api: httpx.AsyncClient, node_a: str) -> None:
    (error,) = (await api.delete(f"/v1/nodes/{node_a}")).json()["errors"]
    assert error["field"] == "service_instance_id"
    assert "query parameter" in error["allowed"]


async def test_nodes_are_filtered_by_cluster(api: httpx.AsyncClient, node_a: str) -> None:
    await api.put("/v1/nodes/node-b", json={"endpoint": "http://b:1"})
    for cluster_id, expected in (("c1", [node_a]), ("%20c1%20", [node_a]), ("c2", []), ("", [node_a, "node-b"])):
        nodes = (await api.get(f"/v1/nodes?cluster_id={cluster_id}")).json()["nodes"]
        assert [node["node_id"] for node in nodes] == expected


async def test_events_answer_how_many_were_new(api: httpx.AsyncClient, node_a: str) -> None:
    event = {"sandbox_id": "s1", "event_type": "create", "requested_cpu": 2, "requested_memory_bytes": 2**30}
    body = {"service_instance_id": "svc-node-a", "events": [event, {"sandbox_id": "s2", "event_type": "fork"}]}
    answer = await api.post(f"/v1/nodes/{node_a}/events", json=body)
    assert answer.json() == {"counted": 2}
    assert (await api.post(f"/v1/nodes/{node_a}/events", json=body)).json() == {"counted": 0}


@pytest.mark.parametrize("node_id", ["a/b", "a b", "ü–节点", "a%2Fb", "a?b#c", "100%", "..a", "\U0001f680"])
async def test_any_unicode_id_round_trips(api: httpx.AsyncClient, node_id: str) -> None:
    path = "/v1/nodes/" + "".join(f"%{byte:02X}" for byte in node_id.encode())
    assert (await api.put(path, json={"endpoint": "http://a:1"})).json()["node_id"] == node_id
    assert (await api.get(path)).json()["node_id"] == node_id
    await report(api, path.removeprefix("/v1/nodes/"))
    assert (await api.post("/v1/schedule")).json()["node"]["node_id"] == node_id


async def test_bindings_are_recorded_for_listed_pairs_alone(api: httpx.AsyncClient, node_a: str) -> None:
    wrong = await api.put("/v1/bindings/s1", json={"node_id": node_a, "endpoint": "http://elsewhere:1"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_request")
    right = await api.put("/v1/bindings/s1", json={"node_id": node_a, "endpoint": "http://node-a:8000"})
    assert right.status_code == 200
    assert (await api.get("/v1/bindings/s1")).json()["node"]["node_id"] == node_a
    assert (await api.get("/v1/bindings/s2")).status_code == 404


async def test_templates_are_declared_read_listed_and_deleted(api: httpx.AsyncClient) -> None:
    for name in ("t1", "t2", "t3"):
        assert (await api.put(f"/v1/templates/{name}", json={"cpu_count": 2, "memory_mb": 512})).status_code == 200
    assert (await api.get("/v1/templates/t1")).json()["memory_mb"] == 512
    first = (await api.get("/v1/templates?limit=2")).json()
    rest = (await api.get("/v1/templates", params={"limit": 2, "cursor": first["cursor"]})).json()
    assert [template["template_id"] for template in first["templates"] + rest["templates"]] == ["t1", "t2", "t3"]
    assert (await api.delete("/v1/templates/t1")).status_code == 200
    for method in ("GET", "DELETE"):
        assert (await api.request(method, "/v1/templates/t1")).status_code == 404


async def test_a_create_from_a_known_template_is_projected_in_full(api: httpx.AsyncClient, node_a: str) -> None:
    await api.put("/v1/templates/base", json={"cpu_count": 2, "memory_mb": 512})
    answer = await api.post("/v1/schedule", json={"hint": {"kind": "sandbox", "template_id": "base"}})
    assert answer.json()["reservation"]["cpu_count"] == 2


async def test_artifacts_are_recorded_looked_up_and_forgotten(api: httpx.AsyncClient) -> None:
    for node_id in ("node-a", "node-b"):
        await list_node(api, node_id)
        body = {
            "service_instance_id": "svc",
            "cluster_id": "c1",
            "snapshot": {"status": "ready"},
            "p2p_endpoint": {"backend": "iroh", "address": f"addr-{node_id}"},
        }
        await api.post(f"/v1/nodes/{node_id}/heartbeat", json=body)
        entry = {"cluster_id": "c1", "backend": "iroh", "key": "k", "node_id": node_id}
        assert (await api.put("/v1/artifacts", json=entry)).status_code == 200
    query = {"cluster_id": "c1", "backend": "iroh", "key": "k"}
    found = (await api.get("/v1/artifacts", params={**query, "exclude_node_id": "node-a"})).json()
    assert found == {"peers": [{"node_id": "node-b", "endpoint": {"backend": "iroh", "address": "addr-node-b"}}]}
    assert (await api.delete("/v1/artifacts", params={**query, "node_id": "node-b"})).status_code == 200
    assert [peer["node_id"] for peer in (await api.get("/v1/artifacts", params=query)).json()["peers"]] == ["node-a"]
    assert (await api.get("/v1/artifacts?cluster_id=c1")).status_code == 422
