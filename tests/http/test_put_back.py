"""What callers and nodes hear over HTTP while replicas put back a lost ledger: one 503, whatever they ask."""

from __future__ import annotations

import httpx
import pytest

from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.settings import Loss

HINT = {"hint": {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 512}}
REPORT = {"service_instance_id": "run-1", "snapshot": {"status": "ready", "cpu_count": 8}}
EVENT = {"event_type": "create", "sandbox_id": "s1"}

CALLS = {
    "placement": ("POST", "/v1/schedule", HINT),
    "confirm": ("POST", "/v1/reservations/r1/confirm", {"sandbox_id": "s1"}),
    "cancel": ("POST", "/v1/reservations/r1/cancel", {}),
    "report of a node that was known": ("POST", "/v1/nodes/known/heartbeat", REPORT),
    "events": ("POST", "/v1/nodes/known/events", {"service_instance_id": "run-1", "events": [EVENT]}),
    "assignment": ("PUT", "/v1/bindings/s1", {"node_id": "known", "endpoint": "http://known:8000"}),
}


@pytest.mark.parametrize("call", CALLS)
async def test_while_replicas_put_back_every_call_that_decides_answers_not_rebuilt(
    api: httpx.AsyncClient, ledger: Ledger, call: str
) -> None:
    await ledger.settings.put(LedgerSettings(), "one", Loss("", "a loss", 10_000, ("one", "two")))
    method, path, body = CALLS[call]
    answer = await api.request(method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (503, "not_rebuilt"), answer.text
    assert 1 <= int(answer.headers["Retry-After"]) <= 5
    assert 0 < answer.json()["waits_ms_at_most"] <= 10_000
