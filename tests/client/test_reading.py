"""An old client reads what a new server says, and says nothing that an old server does not know."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import httpx
import pytest

import agentenv_scheduler_client as client
from agentenv_scheduler_client.catalog import Amount
from agentenv_scheduler_client.errors import ERROR_BY_CODE, error_of
from agentenv_scheduler_client.placements import schedule_body
from agentenv_scheduler_client.reading import OpenEnum, Unreadable, body_of, read
from scheduler.api.http import answers
from scheduler.api.http.routes import (
    agreement,
    artifacts,
    bindings,
    groups,
    heartbeats,
    nodes,
    placement,
    reservations,
    templates,
    warm_keys,
)
from scheduler.domain import node, sandbox
from scheduler.domain import reservation as domain_reservation
from tests.docs.commands import ROOT
from tests.support.virtual_time import virtually

NODE = {"node_id": "a", "endpoint": "http://a:1"}
RESERVATION = {
    "reservation_id": "r", "node_id": "a", "state": "frozen", "lifecycle": "eternal", "cpu_count": 1,
    "memory_bytes": 2, "created_at_ms": 3, "expires_at_ms": 4, "colour": "green",
}  # fmt: skip
OVER_LIMIT = {"limit": "max_cats", "current": 1, "pending": 1, "requested": 1, "maximum": 2, "colour": "green"}


def test_an_answer_of_a_later_server_is_read_as_far_as_it_is_known() -> None:
    told = {"node": NODE | {"rack": 7}, "strategy": "clairvoyant", "reservation": RESERVATION, "waited_ms": 3}
    decision = read(client.Decision, told)
    assert decision.strategy == "clairvoyant"
    assert decision.strategy not in set(client.Strategy)
    assert decision.reservation is not None
    assert decision.reservation.state.value == "frozen"
    assert decision.reservation.state != client.ReservationState.PENDING
    assert {decision.strategy: 1}[client.Strategy("clairvoyant")] == 1
    assert pickle.loads(pickle.dumps(decision)) == decision
    assert decision.warnings == ()


def test_a_known_text_is_the_member_itself() -> None:
    known = read(client.Reservation, RESERVATION | {"state": "pending"})
    assert known.state is client.ReservationState.PENDING


@pytest.mark.parametrize(
    "told",
    [None, [], {}, {"node": NODE}, {"node": "a", "strategy": "random"}, {"node": {"node_id": 1}, "strategy": "random"}],
)
def test_what_is_no_answer_is_unreadable(told: Any) -> None:
    with pytest.raises(Unreadable):
        read(client.Decision, told)


@pytest.mark.parametrize("kind", [client.Reservation, client.NodeSnapshot, client.Pressure])
def test_numbers_are_numbers(kind: type) -> None:
    name = next(each.name for each in fields(kind) if "int" in str(each.type) or "float" in str(each.type))
    for odd in ("1", True, [1]):
        with pytest.raises(Unreadable):
            read(kind, RESERVATION | {name: odd})


def test_what_says_nothing_is_not_sent() -> None:
    assert body_of(client.Heartbeat("i", sandbox_ids=())) == {"service_instance_id": "i", "sandbox_ids": []}
    assert schedule_body(client.ColdSandbox(cpu_count=1), {"sandbox_id": None}) == {
        "hint": {"kind": "cold_sandbox", "cpu_count": 1}
    }
    assert schedule_body(None, {}) == {}
    spread = client.Spread("app", max=2)
    told = body_of(client.TemplateSandbox("t", require={"zone": ("a", "b")}, spread=spread, resources={"gpu": 1}))
    assert told["require"] == {"zone": ["a", "b"]}
    assert told["spread"] == {"key": "app", "max": 2}


def test_a_hint_of_a_kind_that_is_not_known_is_told_as_a_warning() -> None:
    answer = httpx.Response(200, json={"hint": {"kind": "warm_sandbox", "pool": "p"}, "warnings": ["w"]})

    async def story() -> client.HintReading:
        transport = httpx.MockTransport(lambda request: answer)
        async with client.AsyncSchedulerClient("http://s", transport=transport) as scheduler:
            return await scheduler.read_hint(client.ApiRequest("POST", "/sandboxes-warm"))

    reading = virtually(story())
    assert reading.hint is None
    assert reading.warnings == ("w", "a hint of kind warm_sandbox, which this client does not know")


def test_pages_of_nodes_are_followed_when_the_server_makes_some() -> None:
    some = {"status": "ready", "eligible": True, **NODE}

    def answer(request: httpx.Request) -> httpx.Response:
        cursor = request.url.params.get("cursor")
        return httpx.Response(200, json={"nodes": [some], "cursor": None if cursor == "2" else "2"})

    async def story() -> int:
        transport = httpx.MockTransport(answer)
        async with client.AsyncSchedulerClient("http://s", transport=transport) as scheduler:
            return len(await scheduler.nodes.list())

    assert virtually(story()) == 2


# The contract, as this version of the server has it


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (client.ReservationState, domain_reservation.ReservationState),
        (client.Lifecycle, domain_reservation.Lifecycle),
        (client.CancelCause, domain_reservation.CancelCause),
        (client.NodeStatus, node.NodeStatus),
        (client.DiscoveryState, node.DiscoveryState),
        (client.SandboxEventType, sandbox.SandboxEventType),
    ],
)
def test_every_name_of_the_server_is_one_of_the_client(ours: type[OpenEnum], theirs: Any) -> None:
    assert {each.value for each in theirs} <= {each.value for each in ours}


ANSWERS: list[tuple[type, type]] = [
    (client.Decision, answers.DecisionAnswer),
    (client.Reservation, answers.ReservationAnswer),
    (client.ReservationResult, reservations.ReservationResultAnswer),
    (client.KeyResult, reservations.ReservationResultAnswer),
    (client.ReservationPage, reservations.ReservationsAnswer),
    (client.Explanation, answers.ExplanationAnswer),
    (client.NodeExplanation, answers.NodeExplanationAnswer),
    (client.OverLimit, answers.OverLimitAnswer),
    (client.Node, nodes.NodeAnswer),
    (client.NodeSnapshot, nodes.SnapshotAnswer),
    (client.Disk, nodes.DiskAnswer),
    (client.MachineInfo, nodes.MachineInfoAnswer),
    (client.P2pEndpoint, answers.P2pEndpointAnswer),
    (client.PendingTotals, answers.PendingAnswer),
    (client.Pressure, answers.PressureAnswer),
    (client.ListedNode, nodes.ListedNodeAnswer),
    (client.ListedCounts, nodes.ListedNodesAnswer),
    (client.HeartbeatResult, heartbeats.HeartbeatAnswer),
    (client.Binding, bindings.BindingAnswer),
    (client.Template, templates.TemplateAnswer),
    (client.TemplatePage, templates.TemplatesAnswer),
    (client.PlacementGroup, groups.GroupAnswer),
    (client.GroupPage, groups.GroupsAnswer),
    (client.WarmKey, warm_keys.WarmKeyAnswer),
    (client.WarmNode, warm_keys.WarmNodeAnswer),
    (client.WarmPage, warm_keys.WarmKeysAnswer),
    (client.HintReading, answers.HintAnswer),
    (client.Peer, artifacts.PeerAnswer),
    (client.OwnSettings, agreement.OwnSettingsAnswer),
    (client.Settings, agreement.SettingsAnswer),
    (client.Replica, agreement.ReplicaAnswer),
    (client.Replicas, agreement.ReplicasAnswer),
]
BODIES: list[tuple[type, type]] = [
    (client.ColdSandbox, placement.ColdSandboxHint),
    (client.TemplateSandbox, placement.SandboxHint),
    (client.ApiRequest, placement.SandboxApiRequest),
    (client.Heartbeat, heartbeats.HeartbeatBody),
    (client.NodeSnapshot, heartbeats.SnapshotBody),
    (client.Disk, heartbeats.DiskBody),
    (client.MachineInfo, heartbeats.MachineInfoBody),
    (client.P2pEndpoint, heartbeats.P2pEndpointBody),
    (client.SandboxEvent, heartbeats.SandboxEventBody),
]


@pytest.mark.parametrize(("ours", "theirs"), ANSWERS + BODIES, ids=lambda kind: kind.__name__)
def test_every_member_of_the_contract_can_be_read_and_sent(ours: type, theirs: Any) -> None:
    assert set(theirs.model_fields) - {"kind"} <= {each.name for each in fields(ours)}


def test_every_member_of_a_schedule_and_a_cancel_can_be_sent() -> None:
    options = {"lifecycle": "heartbeat", "reservation_ttl_seconds": 1.5, "exclude_nodes": ("b",), "sandbox_id": "s"}
    sent = schedule_body(client.ColdSandbox(), options) | schedule_body(client.ApiRequest("GET", "/"), options)
    assert set(placement.ScheduleBody.model_fields) == set(sent)
    assert sent["reservation_ttl"] == "1500ms"
    told: list[dict[str, Any]] = []

    def note(request: httpx.Request) -> httpx.Response:
        told.append(json.loads(request.content))
        return httpx.Response(200, json={"reservation": RESERVATION, "replayed": False, "orphaned": False})

    async def story() -> None:
        async with client.AsyncSchedulerClient("http://s", transport=httpx.MockTransport(note)) as scheduler:
            await scheduler.reservations.cancel("r", "why", cause=client.CancelCause.NODE_REFUSED)
            await scheduler.reservations.cancel_by_key("k", "why", cause=client.CancelCause.NODE_REFUSED)

    virtually(story())
    assert set(told[0]) == set(reservations.CancelBody.model_fields)
    assert set(told[1]) == set(reservations.CancelByKeyBody.model_fields)


def test_every_documented_code_is_a_class_of_its_own_and_later_ones_are_told_by_their_status() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([a-z_]+)` \| \d{3} \|", page, re.MULTILINE)) | {"method_not_allowed"}
    assert documented == set(ERROR_BY_CODE)
    for code, kind in ERROR_BY_CODE.items():
        error = error_of({"code": code, "detail": "d"}, 500)
        assert (type(error), error.code) == (kind, code)
        assert getattr(client, kind.__name__) is kind
    quota = error_of({"code": "quota_exceeded", "detail": "d", "quota": "q"}, 429)
    assert (type(quota), quota.code, quota.facts) == (client.SchedulerError, "quota_exceeded", {"quota": "q"})
    assert type(error_of({"code": "melted", "detail": "d"}, 503)) is client.Unavailable


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ({"code": "no_nodes"}, lambda error: (error.candidates, error.reasons, error.over_limit) == (0, {}, None)),
        ({"code": "no_nodes", "reasons": {"new": 1}, "over_limit": {"limit": 1}}, lambda error: error.reasons["new"]),
        ({"code": "invalid_request", "errors": [7, {"field": "x"}]}, lambda error: error.errors[0].field == "x"),
        ({"code": "no_nodes", "over_limit": OVER_LIMIT}, lambda error: error.over_limit.limit == "max_cats"),
        ({"code": "conflict", "reservation": {"odd": 1}}, lambda error: error.reservation is None),
    ],
)
def test_an_odd_problem_is_still_told(problem: dict[str, Any], told: Callable[[Any], bool]) -> None:
    assert told(error_of(problem, 400))


def test_a_refusal_that_a_later_server_makes_is_not_asked_again() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(429, json={"code": "quota_exceeded", "detail": "d"}, headers={"Retry-After": "1"})

    async def story() -> None:
        async with client.AsyncSchedulerClient("http://s", transport=httpx.MockTransport(answer)) as scheduler:
            with pytest.raises(client.SchedulerError) as caught:
                await scheduler.schedule(client.ColdSandbox(cpu_count=1))
            assert (caught.value.code, caught.value.retry_after_seconds) == ("quota_exceeded", 1.0)
            await asyncio.sleep(0)

    virtually(story())
    assert asked == ["/v1/schedule"]


def test_what_stands_beside_the_known_members_of_an_amount_is_further_resources() -> None:
    assert read(Amount, {"cpu_count": 4, "memory_bytes": 1, "gpu": 3, "disk": 7}) == Amount(4, 1, {"gpu": 3, "disk": 7})
    assert read(Amount, {}) == Amount()
    with pytest.raises(Unreadable):
        read(Amount, {"gpu": "many"})


def test_what_a_node_was_told_of_its_resources_can_be_reported_again() -> None:
    told = read(client.ResourceLoad, {"total": 4, "allocated": 1, "pending": 2})
    assert told.pending == 2
    assert body_of(client.Heartbeat("i", resources={"gpu": told}))["resources"] == {"gpu": {"total": 4, "allocated": 1}}


def test_a_past_refusal_tells_its_figures() -> None:
    told = read(client.PastDecision, {"instant_ms": 1, "outcome": "refused", "over_limit": OVER_LIMIT})
    assert told.over_limit == client.OverLimit("max_cats", 1, 1, 1, 2)
