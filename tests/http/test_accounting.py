"""What the ledger believes, over HTTP: names of sandboxes, proofs of absence, replaced processes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from scheduler.api.http.route import Call
from scheduler.domain.placement import Strategy
from tests.http.conftest import list_node
from tests.support.clock import VirtualClock

pytestmark = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
FULL = {"kind": "cold_sandbox", "cpu_count": 16, "memory_mb": 2048}
EMPTY: dict[str, Any] = {"status": "ready", "cpu_count": 16, "memory_total_bytes": 2**35}


async def heartbeat(api: httpx.AsyncClient, sequence: int, roster: list[str], **body: Any) -> dict[str, Any]:
    told = {"service_instance_id": "i-1", "sequence": sequence, "sandbox_ids": roster, "snapshot": EMPTY} | body
    answer = await api.post("/v1/nodes/node-a/heartbeat", json=told)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def confirmed(api: httpx.AsyncClient) -> None:
    await api.put("/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"})
    await heartbeat(api, 1, [])
    placed = (await api.post("/v1/schedule", json={"hint": FULL})).json()
    path = f"/v1/reservations/{placed['reservation']['reservation_id']}/confirm"
    assert (await api.post(path, json={"sandbox_id": "s0"})).status_code == 200


async def binding_of(api: httpx.AsyncClient, sandbox_id: str) -> int:
    return (await api.get(f"/v1/bindings/{sandbox_id}")).status_code


async def test_a_sandbox_named_at_the_schedule_is_unique_and_confirmed_by_that_name(api: httpx.AsyncClient) -> None:
    await list_node(api, "node-a", cpu_count=32, memory_gib=64)
    body = {"hint": FULL, "sandbox_id": " mine "}
    placed = (await api.post("/v1/schedule", json=body, headers={"Idempotency-Key": "k"})).json()
    assert placed["reservation"]["sandbox_id"] == "mine"
    again = (await api.post("/v1/schedule", json=body, headers={"Idempotency-Key": "k"})).json()
    assert again["replayed"]
    other_name = {"hint": FULL, "sandbox_id": "other"}
    assert (await api.post("/v1/schedule", json=other_name, headers={"Idempotency-Key": "k"})).status_code == 409
    taken = await api.post("/v1/schedule", json=body)
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
    path = f"/v1/reservations/{placed['reservation']['reservation_id']}/confirm"
    assert (await api.post(path, json={"sandbox_id": "other"})).status_code == 409
    assert (await api.post(path, json={"sandbox_id": "mine"})).json()["reservation"]["state"] == "confirmed"


@pytest.mark.parametrize("sandbox_id", ["", "  ", "a\nb", 5])
async def test_a_name_that_no_sandbox_can_have_is_refused(api: httpx.AsyncClient, sandbox_id: Any) -> None:
    answer = await api.post("/v1/schedule", json={"hint": FULL, "sandbox_id": sandbox_id})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_one_report_that_acknowledges_a_later_answer_proves_an_end(
    api: httpx.AsyncClient, clock: VirtualClock
) -> None:
    await confirmed(api)
    clock.advance(15_500)
    answered = await heartbeat(api, 2, [])
    assert await binding_of(api, "s0") == 200, "sampled before the create, for all anybody knows"
    clock.advance(10)
    await heartbeat(api, 3, [], acknowledged_generation=answered["generation"])
    assert await binding_of(api, "s0") == 404
    assert (await api.post("/v1/schedule", json={"hint": FULL})).status_code == 200


async def test_a_report_whose_caller_has_hung_up_proves_nothing(
    api: httpx.AsyncClient, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(call: Call) -> bool:
        return True

    await confirmed(api)
    monkeypatch.setattr(Call, "is_disconnected", gone)
    for sequence in range(2, 6):
        clock.advance(15_500)
        await heartbeat(api, sequence, [])
    assert await binding_of(api, "s0") == 200


async def test_a_replaced_process_is_stale_in_reports_and_events_and_may_not_unregister(api: httpx.AsyncClient) -> None:
    await confirmed(api)
    assert not (await heartbeat(api, 1, ["s0"], service_instance_id="i-2"))["stale"]
    assert (await heartbeat(api, 9, []))["stale"]
    told = {"service_instance_id": "i-1", "events": [{"sandbox_id": "s0", "event_type": "delete"}]}
    assert (await api.post("/v1/nodes/node-a/events", json=told)).json() == {"counted": 0}
    assert (await api.delete("/v1/nodes/node-a?service_instance_id=i-1")).status_code == 409
    assert await binding_of(api, "s0") == 200
    assert (await api.delete("/v1/nodes/node-a?service_instance_id=i-2")).status_code == 200
    assert await binding_of(api, "s0") == 404


@pytest.mark.parametrize(("cause", "status"), [("caller", 200), ("node_refused", 200), ("", 422), ("Caller", 422)])
async def test_a_cancel_says_whether_the_node_answered(api: httpx.AsyncClient, cause: str, status: int) -> None:
    await list_node(api, "node-a", cpu_count=32, memory_gib=64)
    headers = {"Idempotency-Key": "k"}
    placed = (await api.post("/v1/schedule", json={"hint": FULL}, headers=headers)).json()
    by_id = f"/v1/reservations/{placed['reservation']['reservation_id']}/cancel"
    assert (await api.post(by_id, json={"cause": cause})).status_code == status
    by_key = {"idempotency_key": "k", "cause": cause}
    assert (await api.post("/v1/reservations/cancel", json=by_key)).status_code == status
