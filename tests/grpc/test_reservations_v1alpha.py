"""Reservations over gRPC, on a ledger: the same answers as over HTTP, with the reasons as details."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from scheduler.api.grpc.generated import reservations_v1alpha_pb2, scheduler_v1_pb2
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import NodeResourceLimit
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.grpc.support import Port, refusal, serving
from tests.support.clock import VirtualClock

v1alpha: Any = reservations_v1alpha_pb2
v1: Any = scheduler_v1_pb2
MIB = 1024 * 1024

pytestmark = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)


@pytest.fixture
async def port(ledger: Ledger) -> AsyncIterator[Port]:
    """One ready node `a` of 4 CPUs and 4 GiB."""
    services = build_services(ledger)
    await services.nodes.replace([NodeAddress("a", "http://a:8000")], [])
    snapshot = NodeSnapshot(status=NodeStatus.READY, cpu_count=4, memory_total_bytes=4096 * MIB)
    await services.nodes.heartbeat(Heartbeat("a", "i", snapshot=snapshot), None)
    async with serving(services) as started:
        yield started


def cold(cpu_count: int = 1, memory_mb: int = 256, **members: Any) -> Any:
    hint = v1alpha.Hint(kind=v1alpha.Hint.KIND_COLD_SANDBOX, cpu_count=cpu_count, memory_mb=memory_mb)
    return v1alpha.ReserveRequest(hint=hint, **members)


async def details(call: Awaitable[Any]) -> tuple[str, Status]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    metadata = dict(raised.value.trailing_metadata() or ())
    status = Status.FromString(metadata["grpc-status-details-bin"])
    assert status.message == raised.value.details()
    assert status.code == raised.value.code().value[0]
    return raised.value.code().name, status


async def test_reserve_confirm_and_the_binding_with_it(port: Port) -> None:
    placed = await port.reservations.Reserve(cold(2, 512))
    assert (placed.node.node_id, placed.node.endpoint, placed.strategy) == ("a", "http://a:8000", "least_loaded")
    reservation = placed.reservation
    assert reservation.state == v1alpha.RESERVATION_STATE_PENDING
    assert reservation.lifecycle == v1alpha.LIFECYCLE_EXPLICIT
    assert (reservation.cpu_count, reservation.memory_bytes) == (2, 512 * MIB)
    assert reservation.expires_at_ms - reservation.created_at_ms == 600_000
    request = v1alpha.ConfirmRequest(reservation_id=reservation.reservation_id, sandbox_id=" s1 ")
    confirmed = await port.reservations.Confirm(request)
    assert (confirmed.reservation.state, confirmed.reservation.sandbox_id) == (
        v1alpha.RESERVATION_STATE_CONFIRMED,
        "s1",
    )
    assert (await port.reservations.Confirm(request)).replayed
    assert (await port.services.bindings.lookup("s1")).node.node_id == "a"


async def test_without_a_hint_nothing_is_reserved(port: Port) -> None:
    placed = await port.reservations.Reserve(v1alpha.ReserveRequest())
    assert placed.node.node_id == "a"
    assert not placed.HasField("reservation")


async def test_a_full_fleet_is_resource_exhausted_and_says_why_node_by_node(port: Port) -> None:
    await port.reservations.Reserve(cold(4))
    code, status = await details(port.reservations.Reserve(cold(1)))
    assert (code, status.message) == ("RESOURCE_EXHAUSTED", "no nodes available")
    refusal_, info = v1alpha.Refusal(), ErrorInfo()
    assert status.details[0].Unpack(refusal_)
    assert (refusal_.candidates, dict(refusal_.reasons)) == (1, {"insufficient_cpu": 1})
    assert status.details[1].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == (
        "NO_NODES",
        "agentenv.scheduler",
        {"insufficient_cpu": "1"},
    )


async def test_a_size_no_node_could_hold_has_its_own_reason(port: Port) -> None:
    code, status = await details(port.reservations.Reserve(cold(5)))
    refusal_ = v1alpha.Refusal()
    assert status.details[0].Unpack(refusal_)
    assert (code, dict(refusal_.reasons)) == ("RESOURCE_EXHAUSTED", {"too_large": 1})


@pytest.mark.parametrize(
    "size", [{"cpu_count": 5}, {"cpu_count": 65_537}, {"memory_mb": 2**24 + 1}, {"memory_mb": 2**63}]
)
async def test_a_size_beyond_every_node_is_unavailable_to_agentenvs_gateway(port: Port, size: dict[str, int]) -> None:
    hint = v1.ScheduleRequestHint(new_cold_sandbox=v1.NewColdSandboxHint(**size))
    code, text = await refusal(port.scheduler.Schedule(v1.ScheduleRequest(hint=hint)))
    assert (code, text.startswith("no nodes available")) == ("UNAVAILABLE", True)


@pytest.mark.ledger_settings(
    strategy=Strategy.ROUND_ROBIN, node_resource_limit=NodeResourceLimit(max_allocated_cpu_including_paused=3)
)
async def test_a_limit_is_answered_with_its_figures(port: Port) -> None:
    await port.reservations.Reserve(cold(2))
    code, status = await details(port.reservations.Reserve(cold(2)))
    refusal_ = v1alpha.Refusal()
    assert status.details[0].Unpack(refusal_)
    told = v1alpha.OverLimit(limit="max_allocated_cpu_including_paused", current=0, pending=2, requested=2, maximum=3)
    assert (code, dict(refusal_.reasons), refusal_.over_limit) == ("RESOURCE_EXHAUSTED", {"over_limit": 1}, told)
    explained = await port.reservations.Explain(cold(2))
    assert (explained.over_limit, explained.nodes[0].over_limit) == (told, told)
    assert not (await port.reservations.Explain(cold(1))).HasField("over_limit")
    hint = v1.ScheduleRequestHint(new_cold_sandbox=v1.NewColdSandboxHint(cpu_count=2))
    assert await refusal(port.scheduler.Schedule(v1.ScheduleRequest(hint=hint))) == (
        "UNAVAILABLE",
        "no nodes available",
    )


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_want_of_capacity_is_answered_with_its_figures(port: Port) -> None:
    await port.reservations.Reserve(cold(2))
    for cpu_count, reason, held in ((3, "insufficient_cpu", 2), (5, "too_large", 2)):
        told = v1alpha.OverLimit(limit="cpu_count", current=0, pending=held, requested=cpu_count, maximum=4)
        _, status = await details(port.reservations.Reserve(cold(cpu_count)))
        refused = v1alpha.Refusal()
        assert status.details[0].Unpack(refused)
        assert (dict(refused.reasons), refused.over_limit) == ({reason: 1}, told)
        explained = await port.reservations.Explain(cold(cpu_count))
        assert (explained.over_limit, explained.nodes[0].over_limit) == (told, told)
        batch = v1alpha.ScheduleBatchRequest(count=2, hint=cold(cpu_count).hint)
        answer = await port.reservations.ScheduleBatch(batch)
        assert [each.over_limit for each in answer.refused] == [told, told]


def asked_pause_ms(status: Status) -> int:
    retry = RetryInfo()
    assert status.details[-1].Unpack(retry)
    return int(retry.retry_delay.ToMilliseconds())


async def test_callers_refused_together_are_asked_back_at_different_instants_by_both_services(port: Port) -> None:
    await port.reservations.Reserve(cold(4))
    hint = v1.ScheduleRequestHint(new_cold_sandbox=v1.NewColdSandboxHint(cpu_count=1, memory_mb=256))
    refused = [await details(port.reservations.Reserve(cold(1))) for _ in range(20)]
    refused += [await details(port.scheduler.Schedule(v1.ScheduleRequest(hint=hint))) for _ in range(20)]
    pauses = [asked_pause_ms(status) for _, status in refused]
    assert min(pauses) >= 1000
    assert len(set(pauses[:20])) > 1
    assert len(set(pauses[20:])) > 1


async def test_cancel_frees_at_once_by_id_and_by_key(port: Port) -> None:
    by_id = await port.reservations.Reserve(cold(4))
    request = v1alpha.CancelRequest(reservation_id=by_id.reservation.reservation_id, reason="boot failed")
    cancelled = await port.reservations.Cancel(request)
    assert cancelled.reservation.state == v1alpha.RESERVATION_STATE_CANCELLED
    await port.reservations.Reserve(cold(4, idempotency_key="k1"))
    await port.reservations.Cancel(v1alpha.CancelRequest(idempotency_key="k1"))
    assert (await port.reservations.Reserve(cold(4))).reservation.cpu_count == 4


async def test_a_node_that_refuses_is_avoided_whichever_way_it_is_reported(port: Port) -> None:
    for number in range(3):
        key = f"k{number}"
        placed = await port.reservations.Reserve(cold(1, idempotency_key=key))
        target = {"idempotency_key": key} if number else {"reservation_id": placed.reservation.reservation_id}
        await port.reservations.Cancel(v1alpha.CancelRequest(**target, cause=v1alpha.CANCEL_CAUSE_NODE_REFUSED))
    node = await port.services.nodes.get("a")
    assert (node.eligible, node.ineligible_reason) == (False, "avoided")
    assert (await port.reservations.Reserve(cold(1))).node.node_id == "a"  # nothing else fits
    wrong = v1alpha.CancelRequest(reservation_id="r", cause=7)
    assert await refusal(port.reservations.Cancel(wrong)) == (
        "INVALID_ARGUMENT",
        "cause must be caller or node_refused",
    )


async def test_a_key_answers_the_same_reservation_and_conflicts_when_it_is_cancelled(port: Port) -> None:
    first = await port.reservations.Reserve(cold(idempotency_key="k1"))
    again = await port.reservations.Reserve(cold(idempotency_key="k1"))
    assert again.replayed
    assert again.reservation.reservation_id == first.reservation.reservation_id
    await port.reservations.Cancel(v1alpha.CancelRequest(idempotency_key="k1"))
    code, status = await details(port.reservations.Reserve(cold(idempotency_key="k1")))
    conflict = v1alpha.Conflict()
    assert status.details[0].Unpack(conflict)
    assert code == "FAILED_PRECONDITION"
    assert conflict.reservation.reservation_id == first.reservation.reservation_id
    assert conflict.reservation.state == v1alpha.RESERVATION_STATE_CANCELLED


async def test_a_cancel_that_comes_before_its_reserve_refuses_it(port: Port) -> None:
    early = await port.reservations.Cancel(v1alpha.CancelRequest(idempotency_key="k1"))
    assert early.reservation.state == v1alpha.RESERVATION_STATE_CANCELLED
    assert early.reservation.node_id == ""
    assert (await refusal(port.reservations.Reserve(cold(idempotency_key="k1"))))[0] == "FAILED_PRECONDITION"


async def test_renew_moves_the_deadline_and_a_late_confirm_is_orphaned(port: Port, clock: VirtualClock) -> None:
    placed = await port.reservations.Reserve(cold(reservation_ttl_ms=1_000))
    reservation_id = placed.reservation.reservation_id
    renewed = await port.reservations.Renew(v1alpha.RenewRequest(reservation_id=reservation_id, ttl_ms=5_000))
    assert renewed.reservation.expires_at_ms == clock.now_ms + 5_000
    clock.advance(5_000)
    late = await port.reservations.Confirm(v1alpha.ConfirmRequest(reservation_id=reservation_id, sandbox_id="s1"))
    assert late.orphaned
    assert (await refusal(port.reservations.Renew(v1alpha.RenewRequest(reservation_id=reservation_id, ttl_ms=1))))[
        0
    ] == "FAILED_PRECONDITION"


async def test_explain_reserves_nothing_and_answers_rank_or_reason(port: Port) -> None:
    for _ in range(2):
        answer = await port.reservations.Explain(cold(3, 1024))
        assert answer.node.node_id == "a"
        [node] = answer.nodes
        assert (node.node_id, node.status, node.rank, node.reason) == ("a", "ready", 0, "")
        assert (node.cpu_pressure, node.memory_pressure) == (0.75, 0.25)
    await port.reservations.Reserve(cold(4))
    full = await port.reservations.Explain(cold(3))
    assert not full.HasField("node")
    assert not full.nodes[0].HasField("rank")
    assert dict(full.reasons) == {"insufficient_cpu": 1}


@pytest.mark.parametrize(
    ("method", "request_", "told"),
    [
        ("Confirm", v1alpha.ConfirmRequest(sandbox_id="s"), "reservation_id and sandbox_id are required"),
        ("Confirm", v1alpha.ConfirmRequest(reservation_id="r"), "reservation_id and sandbox_id are required"),
        ("Cancel", v1alpha.CancelRequest(), "reservation_id or idempotency_key is required"),
        ("Renew", v1alpha.RenewRequest(ttl_ms=5), "reservation_id is required"),
        ("Reserve", v1alpha.ReserveRequest(hint=v1alpha.Hint()), "hint.kind must be cold_sandbox or sandbox"),
        ("Reserve", v1alpha.ReserveRequest(lifecycle=9), "lifecycle must be explicit or heartbeat"),
    ],
)
async def test_what_is_missing_is_said(port: Port, method: str, request_: Any, told: str) -> None:
    assert await refusal(getattr(port.reservations, method)(request_)) == ("INVALID_ARGUMENT", told)


@pytest.mark.parametrize(
    "request_",
    [
        cold(reservation_ttl_ms=-1),
        cold(reservation_ttl_ms=24 * 3600 * 1000 + 1),
        cold(idempotency_key="ü"),
        cold(memory_mb=2**63),
        cold(cpu_count=65_537),
        cold(memory_mb=2**24 + 1),
        cold(exclude_nodes=[f"n{number}" for number in range(65)]),
        v1alpha.ReserveRequest(hint=v1alpha.Hint(kind=2, locality=[f"k{number}" for number in range(33)])),
    ],
)
async def test_what_is_out_of_bounds_is_an_invalid_argument(port: Port, request_: Any) -> None:
    assert (await refusal(port.reservations.Reserve(request_)))[0] == "INVALID_ARGUMENT"


async def test_an_unknown_reservation_is_not_found(port: Port) -> None:
    for method, request_ in (
        ("Confirm", v1alpha.ConfirmRequest(reservation_id="nope", sandbox_id="s")),
        ("Cancel", v1alpha.CancelRequest(reservation_id="nope")),
        ("Renew", v1alpha.RenewRequest(reservation_id="nope", ttl_ms=5)),
    ):
        assert (await refusal(getattr(port.reservations, method)(request_)))[0] == "NOT_FOUND"


async def test_a_sandbox_named_by_its_caller_is_unique_and_confirmed_by_that_name(port: Port) -> None:
    placed = await port.reservations.Reserve(cold(sandbox_id="mine"))
    assert placed.reservation.sandbox_id == "mine"
    code, _ = await refusal(port.reservations.Reserve(cold(sandbox_id="mine")))
    assert code == "FAILED_PRECONDITION"
    reservation_id = placed.reservation.reservation_id
    code, _ = await refusal(
        port.reservations.Confirm(v1alpha.ConfirmRequest(reservation_id=reservation_id, sandbox_id="other"))
    )
    assert code == "FAILED_PRECONDITION"
    await port.reservations.Confirm(v1alpha.ConfirmRequest(reservation_id=reservation_id, sandbox_id="mine"))


async def test_a_cancel_says_whether_the_node_answered(port: Port) -> None:
    for cause in (v1alpha.CANCEL_CAUSE_UNSPECIFIED, v1alpha.CANCEL_CAUSE_CALLER, v1alpha.CANCEL_CAUSE_NODE_REFUSED):
        placed = await port.reservations.Reserve(cold())
        cancelled = await port.reservations.Cancel(
            v1alpha.CancelRequest(reservation_id=placed.reservation.reservation_id, cause=cause)
        )
        assert cancelled.reservation.state == v1alpha.RESERVATION_STATE_CANCELLED
    code, _ = await refusal(port.reservations.Cancel(v1alpha.CancelRequest(reservation_id="r", cause=9)))
    assert code == "INVALID_ARGUMENT"


async def test_a_batch_is_placed_in_one_step(port: Port) -> None:
    hint = cold(2).hint
    decided = await port.reservations.ScheduleBatch(
        v1alpha.ScheduleBatchRequest(count=3, hint=hint, idempotency_key="k")
    )
    assert [(each.index, each.node.node_id, each.reservation.cpu_count) for each in decided.placed] == [
        (0, "a", 2),
        (1, "a", 2),
    ]
    assert [(each.index, dict(each.reasons)) for each in decided.refused] == [(2, {"insufficient_cpu": 1})]
    assert not decided.replayed
    assert (
        await port.reservations.ScheduleBatch(v1alpha.ScheduleBatchRequest(count=3, hint=hint, idempotency_key="k"))
    ).replayed
    code, status = await details(port.reservations.ScheduleBatch(v1alpha.ScheduleBatchRequest(hint=hint, all=True)))
    detail = v1alpha.Refusal()
    assert any(each.Unpack(detail) for each in status.details)
    assert (code, dict(detail.reasons)) == ("RESOURCE_EXHAUSTED", {"insufficient_cpu": 1})


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"count": 257, "hint": cold().hint},
        {"count": 2, "requests": [v1alpha.BatchItem(hint=cold().hint)]},
        {"hint": cold().hint, "requests": [v1alpha.BatchItem(hint=cold().hint)]},
        {"requests": [v1alpha.BatchItem()]},
        {"requests": [v1alpha.BatchItem(hint=cold().hint, sandbox_id="x")] * 2},
        {"requests": [v1alpha.BatchItem(hint=cold().hint)] * 257},
    ],
)
async def test_what_is_no_batch_is_invalid(port: Port, members: dict[str, Any]) -> None:
    code, detail = await refusal(port.reservations.ScheduleBatch(v1alpha.ScheduleBatchRequest(**members)))
    assert code == "INVALID_ARGUMENT", detail
