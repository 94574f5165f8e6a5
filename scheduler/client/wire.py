"""The HTTP contract from the caller's side: domain values to bodies, answers to domain values and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from scheduler.domain.duration import format_duration
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Decision, Hint, HintKind, Strategy
from scheduler.domain.reservation import Lifecycle, Reservation, ReservationResult, ReservationState
from scheduler.errors import (
    Conflict,
    DeadlineExceeded,
    Forbidden,
    InvalidRequest,
    Malformed,
    NoNodes,
    NotFound,
    NotRebuilt,
    Overloaded,
    PayloadTooLarge,
    SchedulerError,
    StoreUnavailable,
    Unauthorized,
    UnsupportedMediaType,
)

_ERROR_BY_CODE: dict[str, type[SchedulerError]] = {
    error.code: error
    for error in (
        Conflict,
        DeadlineExceeded,
        Forbidden,
        NotFound,
        NotRebuilt,
        Overloaded,
        PayloadTooLarge,
        StoreUnavailable,
        Unauthorized,
        UnsupportedMediaType,
    )
}
_FIXED_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "errors"})
_RESERVATION_FIELDS = frozenset(field.name for field in fields(Reservation))

Name = TypeVar("Name", bound=StrEnum)


def schedule_body(
    hint: Hint | None,
    lifecycle: Lifecycle,
    reservation_ttl_ms: int | None,
    exclude_nodes: tuple[str, ...],
    sandbox_id: str | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {"lifecycle": lifecycle.value, "exclude_nodes": list(exclude_nodes)}
    if hint is not None:
        body["hint"] = _hint_body(hint)
    if reservation_ttl_ms is not None:
        body["reservation_ttl"] = format_duration(reservation_ttl_ms)
    if sandbox_id is not None:
        body["sandbox_id"] = sandbox_id
    return body


def _hint_body(hint: Hint) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": hint.kind.value, "metadata": dict(hint.metadata), "locality": list(hint.locality)}
    if hint.kind is HintKind.SANDBOX:
        return body | {"template_id": hint.template_id}
    return body | {"cpu_count": hint.cpu_count, "memory_mb": hint.memory_mb, "images": list(hint.images)}


def decision(answer: Mapping[str, Any]) -> Decision:
    return Decision(
        node=NodeAddress(answer["node"]["node_id"], answer["node"]["endpoint"]),
        strategy=_named(Strategy, answer["strategy"]),
        replayed=answer["replayed"],
        degraded=answer["degraded"],
        reservation=None if answer["reservation"] is None else reservation(answer["reservation"]),
    )


def bound_node(answer: Mapping[str, Any]) -> NodeAddress:
    return NodeAddress(answer["node"]["node_id"], answer["node"]["endpoint"])


def reservation(answer: Mapping[str, Any]) -> Reservation:
    """What this version knows of it; members a newer server adds are left out."""
    known = {name: value for name, value in answer.items() if name in _RESERVATION_FIELDS}
    known["state"] = _named(ReservationState, answer["state"])
    known["lifecycle"] = _named(Lifecycle, answer["lifecycle"])
    return Reservation(**known)


def _named(names: type[Name], text: str) -> Name:
    """The member of that name. A name that only a newer server knows is one of the same kind, equal to its text and to
    no member: what the answer is about stands, whatever the name means."""
    try:
        return names(text)
    except ValueError:
        unlisted = str.__new__(names, text)
        unlisted._name_, unlisted._value_ = text.upper(), text
        return unlisted


def reservation_result(answer: Mapping[str, Any]) -> ReservationResult:
    return ReservationResult(
        reservation=reservation(answer["reservation"]), replayed=answer["replayed"], orphaned=answer["orphaned"]
    )


def error(problem: Mapping[str, Any]) -> SchedulerError:
    """The error an answer tells of; `facts` holds whatever it carried beside the fixed members, and `code` of a
    problem that only a newer server knows."""
    code, detail = str(problem.get("code", "internal")), str(problem.get("detail", "no detail"))
    facts = {name: value for name, value in problem.items() if name not in _FIXED_MEMBERS}
    if code == "no_nodes":
        return NoNodes(facts.get("candidates", 0), facts.get("reasons", {}), facts.get("over_limit"))
    if code in {"invalid_request", "malformed"}:
        invalid = Malformed(detail) if code == "malformed" else InvalidRequest(detail)
        invalid.facts["errors"] = problem.get("errors", [])
        return invalid
    if code == "conflict" and isinstance(facts.get("reservation"), Mapping):
        facts["reservation"] = reservation(facts["reservation"])
    if code not in _ERROR_BY_CODE and code != SchedulerError.code:
        facts["code"] = code
    return _ERROR_BY_CODE.get(code, SchedulerError)(detail, **facts)
