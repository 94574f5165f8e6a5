"""The last decisions: what was asked, what came of it, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from scheduler import deadline
from scheduler.domain.journal import DecisionQuery
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import DeadlineExceeded, NoNodes, StoreUnavailable
from scheduler.ledger.ledger import Ledger
from scheduler.service import Services, build_services
from scheduler.service.decisions import QUEUE_MAX, DecisionService
from tests.http.conftest import COLD_2_CPU, list_node
from tests.support.clock import VirtualClock
from tests.support.embedded import fail_with

REQUEST = ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, cpu_count=2), caller="edge")


async def decisions(api: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await api.get("/v1/decisions", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["decisions"]
    return found


async def test_placements_and_refusals_are_told_newest_first(
    api: httpx.AsyncClient, node_a: str, clock: VirtualClock
) -> None:
    assert await decisions(api) == []
    placed = (await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": "k"})).json()
    await api.post("/v1/schedule", json={"hint": COLD_2_CPU}, headers={"Idempotency-Key": "k"})
    await api.post("/v1/schedule")
    refused = await api.post("/v1/schedule", json={"hint": COLD_2_CPU, "exclude_nodes": [node_a]})
    second, first = await decisions(api)
    assert (first["outcome"], first["node_id"]) == ("placed", node_a)
    assert first["reservation_id"] == placed["reservation"]["reservation_id"]
    assert first["hint"] == {**COLD_2_CPU, "images": [], "metadata": {}}
    assert (first["caller"], first["strategy"], first["reason"]) == ("anonymous", placed["strategy"], None)
    assert clock.now_ms - 5_000 <= first["instant_ms"] <= second["instant_ms"] <= clock.now_ms
    assert (second["outcome"], second["reason"], second["node_id"]) == ("refused", "excluded", None)
    assert (second["reasons"], second["strategy"]) == (refused.json()["reasons"], placed["strategy"])


async def test_a_refusal_shows_all_that_was_asked_for(api: httpx.AsyncClient, node_a: str) -> None:
    asked = {
        "require": {"zone": ["a", "b"]},
        "resources": {"disk": 5},
        "spread": {"key": "k", "over": "zone", "max": 1},
    }
    await api.post("/v1/schedule", json={"hint": COLD_2_CPU | asked})
    [refused] = await decisions(api)
    assert (refused["reason"], refused["hint"]) == ("label", {**COLD_2_CPU, "images": [], "metadata": {}, **asked})


async def test_decisions_are_found_by_reason_node_and_caller_and_by_the_page(
    api: httpx.AsyncClient, services: Services
) -> None:
    for node_id in ("node-a", "node-b"):
        await list_node(api, node_id)
    made = [(await api.post("/v1/schedule", json={"hint": COLD_2_CPU})).json()["node"]["node_id"] for _ in range(4)]
    await api.post("/v1/schedule", json={"hint": COLD_2_CPU, "exclude_nodes": ["node-a", "node-b"]})
    await services.placement.schedule(replace(REQUEST, caller="edge"))
    for node_id in ("node-a", "node-b"):
        found = await decisions(api, node_id=node_id, caller="anonymous")
        assert [each["node_id"] for each in found] == [node_id] * made.count(node_id)
    assert [each["reasons"] for each in await decisions(api, reason="excluded")] == [{"excluded": 2}]
    assert [each["caller"] for each in await decisions(api, caller="edge")] == ["edge"]
    paged, cursor = [], ""
    while cursor is not None:
        page = (await api.get("/v1/decisions", params={"limit": 4, "cursor": cursor})).json()
        paged += page["decisions"]
        cursor = page["cursor"]
    assert paged == await decisions(api)
    assert len(paged) == 6


async def test_each_creation_of_a_batch_is_a_decision(api: httpx.AsyncClient, node_a: str) -> None:
    batch = {"requests": [{"hint": {**COLD_2_CPU, "cpu_count": cpus}} for cpus in (2, 65)]}
    assert (await api.post("/v1/schedule/batch", json=batch)).status_code == 200
    refused, placed = await decisions(api)
    assert (placed["outcome"], placed["hint"]["cpu_count"], placed["node_id"]) == ("placed", 2, node_a)
    assert (refused["outcome"], refused["hint"]["cpu_count"]) == ("refused", 65)


async def test_only_so_many_are_kept_and_none_when_that_is_off(ledger: Ledger) -> None:
    for keep, expected in ((3, [9, 8, 7]), (0, [])):
        await ledger.settings.put(LedgerSettings(revision=10 - keep, decisions_keep=keep), "r")
        service = build_services(ledger).decisions
        for number in range(10):
            request = replace(REQUEST, hint=Hint(HintKind.COLD_SANDBOX, cpu_count=number))
            service.note_refused(request, NoNodes(1, {"unhealthy": 1}))
        found, _ = await service.page(DecisionQuery(), 100, None)
        assert [entry.facts["hint"]["cpu_count"] for entry in found] == expected
    assert await ledger.client.command("EXISTS", ledger.keys.decisions) == 0


async def test_what_the_queue_or_the_ledger_cannot_take_is_dropped_and_counted(embedded_ledger: Ledger) -> None:
    service = DecisionService(embedded_ledger.journals)
    for _ in range(QUEUE_MAX + 7):
        service.note_refused(REQUEST, NoNodes(1, {"unhealthy": 1}))
    with pytest.MonkeyPatch.context() as patch:
        fail_with(patch, embedded_ledger, StoreUnavailable("gone"))
        with pytest.raises(StoreUnavailable):
            await service.flush()
    await service.flush()
    assert (await embedded_ledger.settings.stats())["decisions_dropped"] == 207
    found, _ = await service.page(DecisionQuery(), 1000, None)
    assert len(found) == 800
    assert not service.due.is_set()


async def test_a_reader_without_time_loses_nobody_a_decision(embedded_ledger: Ledger) -> None:
    service = DecisionService(embedded_ledger.journals)
    for node in range(3):
        service.note_refused(replace(REQUEST, caller=f"c{node}"), NoNodes(node, {"excluded": node}))
    with deadline.within(0), pytest.raises(DeadlineExceeded):
        await service.page(DecisionQuery(), 10, None)
    found, _ = await service.page(DecisionQuery(), 10, None)
    assert [entry.facts["caller"] for entry in found] == ["c2", "c1", "c0"]


async def test_long_texts_are_cut(embedded_ledger: Ledger) -> None:
    service = DecisionService(embedded_ledger.journals)
    metadata = {f"{number}-{'x' * 999}": "y" * 9999 for number in range(99)}
    hint = Hint(HintKind.COLD_SANDBOX, images=("i" * 9999,) * 9, metadata=metadata)
    service.note_refused(replace(REQUEST, hint=hint), NoNodes(1, {"unhealthy": 1}))
    ((entry,), _) = await service.page(DecisionQuery(), 1, None)
    assert len(str(entry.facts)) < 9000
