"""A scheduler behind a fake transport: it keeps reservations, and answers as badly as a test wants.

`faults["confirm"]` is what meets confirms, one after the other; a callable is asked at each of them instead.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from agentenv_scheduler_client import AsyncSchedulerClient, SchedulerClient
from tests.support.virtual_time import now

TTL_MS = 120_000

# What may meet a request. `lost`: it takes effect and the answer is lost; `unsent`: it never arrives; `silent`: it
# arrives and is never answered; `away`: the scheduler answers that its ledger cannot be reached.
LOST, UNSENT, SILENT, AWAY, GARBLED, BROKEN = "lost", "unsent", "silent", "away", "garbled", "broken"
Faults = Sequence[str | None] | Callable[[], str | None]


@dataclass(frozen=True)
class Asked:
    at: float
    call: str
    body: dict[str, Any]
    headers: httpx.Headers


@dataclass
class FakeScheduler:
    nodes: tuple[str, ...] = ("node-a", "node-b")
    knows_cause: bool = True
    faults: dict[str, Faults] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids_by_key: dict[str, str] = field(default_factory=dict)
    revoked_keys: set[str] = field(default_factory=set)
    strategy: str = "least_loaded"
    confirmed_state: str = "confirmed"
    waits: Callable[[], object] = lambda: None

    def client(self, **options: Any) -> AsyncSchedulerClient:
        return AsyncSchedulerClient("http://scheduler", transport=httpx.MockTransport(self._answer), **options)

    def blocking_client(self, **options: Any) -> SchedulerClient:
        """Where an answer is silent, `waits` is called first."""
        return SchedulerClient("http://scheduler", transport=httpx.MockTransport(self._answer_at_once), **options)

    def states(self) -> list[str]:
        return [one["state"] for one in self.reservations.values()]

    def calls(self) -> list[str]:
        return [one.call for one in self.asked]

    def times(self, call: str) -> list[float]:
        return [one.at for one in self.asked if one.call == call]

    def during(self, call: str, fault: str, until: float) -> None:
        """The fault meets every such call before that instant."""
        self.faults[call] = lambda: fault if now() < until else None

    def _fault(self, call: str) -> str | None:
        planned = self.faults.get(call, ())
        if callable(planned):
            return planned()
        earlier = len(self.times(call)) - 1
        return next(itertools.islice(planned, earlier, None), None)

    def _answer_at_once(self, request: httpx.Request) -> httpx.Response:
        answering = self._answer(request)
        try:
            answering.send(None)
        except StopIteration as answered:
            answer: httpx.Response = answered.value
            return answer
        answering.close()  # it would wait for ever
        self.waits()
        raise httpx.ReadTimeout("silence", request=request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.removeprefix("/v1/").split("/")
        call = "cancel_by_key" if parts == ["reservations", "cancel"] else parts[-1]
        body = json.loads(request.content)
        self.asked.append(Asked(_instant(), call, body, request.headers))
        fault = self._fault(call)
        if fault == UNSENT:
            raise httpx.ConnectError("nobody listens", request=request)
        if fault == AWAY:
            return _problem(503, "store_unavailable", {"Retry-After": "1"})
        answer: httpx.Response = getattr(self, f"_{call}")(parts, body, request.headers)
        match fault:
            case "lost":
                raise httpx.ReadError("connection reset", request=request)
            case "silent":
                await _Silence()
            case "garbled":
                return httpx.Response(200, text="<html>Welcome to our network</html>")
            case "broken":
                return _problem(500, "internal")
        return answer

    def _schedule(self, parts: list[str], body: dict[str, Any], headers: httpx.Headers) -> httpx.Response:
        key = headers["idempotency-key"]
        if key in self.revoked_keys:
            return _problem(409, "conflict")
        replayed = key in self.ids_by_key
        free = [node for node in self.nodes if node not in body.get("exclude_nodes", ())]
        if not replayed and not free:
            return _problem(503, "no_nodes", {"Retry-After": "1"})
        if not replayed:
            reservation_id = self.ids_by_key[key] = f"r{len(self.reservations) + 1}"
            self.reservations[reservation_id] = {
                "reservation_id": reservation_id, "node_id": free[0], "state": "pending", "lifecycle": "explicit",
                "cpu_count": 1, "memory_bytes": 0, "sandbox_id": body.get("sandbox_id"), "created_at_ms": 0,
                "expires_at_ms": TTL_MS,
            }  # fmt: skip
        made = self.reservations[self.ids_by_key[key]]
        node = {"node_id": made["node_id"], "endpoint": f"http://{made['node_id']}:8000"}
        common = {"node": node, "strategy": self.strategy, "degraded": False}
        return httpx.Response(200, json=common | {"replayed": replayed, "reservation": made})

    def _confirm(self, parts: list[str], body: dict[str, Any], headers: httpx.Headers) -> httpx.Response:
        if not body["sandbox_id"]:
            return _problem(422, "invalid_request", errors=[{"field": "sandbox_id", "found": "", "allowed": "an id"}])
        made = self.reservations[parts[1]]
        if made["state"] == "cancelled" or made["sandbox_id"] not in (None, body["sandbox_id"]):
            return _problem(409, "conflict", reservation=made)
        return self._ended(made, self.confirmed_state, sandbox_id=body["sandbox_id"])

    def _cancel(self, parts: list[str], body: dict[str, Any], headers: httpx.Headers) -> httpx.Response:
        if "cause" in body and not self.knows_cause:
            broken = {"field": "cause", "found": body["cause"], "allowed": "absent: there is no such field"}
            return _problem(422, "invalid_request", errors=[broken])
        made = self.reservations[parts[1]]
        if made["state"] == "confirmed":
            return _problem(409, "conflict", reservation=made)
        return self._ended(made, "cancelled")

    def _cancel_by_key(self, parts: list[str], body: dict[str, Any], headers: httpx.Headers) -> httpx.Response:
        key = body["idempotency_key"]
        self.revoked_keys.add(key)
        if key not in self.ids_by_key:
            return httpx.Response(200, json={})
        return self._ended(self.reservations[self.ids_by_key[key]], "cancelled")

    def _renew(self, parts: list[str], body: dict[str, Any], headers: httpx.Headers) -> httpx.Response:
        return self._ended(self.reservations[parts[1]], "pending")

    def _ended(self, made: dict[str, Any], state: str, **members: Any) -> httpx.Response:
        replayed = made["state"] == state
        made |= {"state": state, **members}
        return httpx.Response(200, json={"reservation": made, "replayed": replayed, "orphaned": False})


class _Silence:
    """Never ends; without an event loop whoever drives it sees that it waits."""

    def __await__(self) -> Generator[Any, None, None]:
        if _has_loop():
            yield from asyncio.sleep(1e9).__await__()
        yield


def _instant() -> float:
    """Of the story; the blocking client has none."""
    return now() if _has_loop() else 0.0


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _problem(status: int, code: str, headers: dict[str, str] | None = None, **members: Any) -> httpx.Response:
    body = {"status": status, "code": code, "detail": code, **members}
    return httpx.Response(status, json=body, headers=headers)
