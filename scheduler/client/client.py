"""The client: one method per call a gateway makes, and `create`, which makes them in the right order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from scheduler.client import wire
from scheduler.client.placement import NodeRefused, Placement
from scheduler.domain.duration import format_duration
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Decision, Hint
from scheduler.domain.reservation import Lifecycle, ReservationResult
from scheduler.errors import DeadlineExceeded, NotRebuilt, Overloaded, SchedulerError, StoreUnavailable

Sleep = Callable[[float], Awaitable[None]]

# Asking again is safe for these: every call is idempotent by its key or its id.
_WORTH_ASKING_AGAIN = (StoreUnavailable, Overloaded, NotRebuilt, DeadlineExceeded)
_LONGEST_PAUSE_SECONDS = 5.0


class SchedulerClient:
    """Calls one scheduler address (a balancer in front of the replicas, usually).

    A call that fails on the way, or that the server asks to repeat, is repeated up to `attempts` times;
    `timeout_seconds` bounds each of them."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 10.0,
        attempts: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        headers = {"Accept": "application/json"} | ({"X-API-Key": api_key} if api_key else {})
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_seconds, transport=transport)
        self._attempts = attempts
        self._sleep = sleep

    async def __aenter__(self) -> SchedulerClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def create(
        self,
        hint: Hint,
        start: Callable[[NodeAddress], Awaitable[str]],
        *,
        nodes_tried_max: int = 3,
        reservation_ttl_ms: int | None = None,
    ) -> str:
        """Places, starts and confirms one sandbox; answers its id.

        `start` creates it on the node it is given and answers the sandbox id. When it raises NodeRefused the
        reservation is cancelled and another node tried, up to `nodes_tried_max`; any other error cancels
        and is raised. Raises NoNodes when no (further) node may be chosen."""
        refused: list[str] = []
        while True:
            placing = self.place(hint, reservation_ttl_ms=reservation_ttl_ms, exclude_nodes=tuple(refused))
            try:
                async with placing as placement:
                    sandbox_id = await start(placement.node)
                    await placement.confirm(sandbox_id)
                    return sandbox_id
            except NodeRefused:
                refused.append(placement.node.node_id)
                if len(refused) >= nodes_tried_max:
                    raise

    def place(
        self,
        hint: Hint,
        *,
        reservation_ttl_ms: int | None = None,
        exclude_nodes: tuple[str, ...] = (),
        idempotency_key: str | None = None,
    ) -> Placement:
        """A placement to be entered with `async with`; what is left unconfirmed is cancelled."""
        key = idempotency_key or new_idempotency_key()

        async def decide() -> Decision:
            return await self.schedule(
                hint, reservation_ttl_ms=reservation_ttl_ms, exclude_nodes=exclude_nodes, idempotency_key=key
            )

        return Placement(self, key, decide)

    async def schedule(
        self,
        hint: Hint | None = None,
        *,
        lifecycle: Lifecycle = Lifecycle.EXPLICIT,
        reservation_ttl_ms: int | None = None,
        exclude_nodes: tuple[str, ...] = (),
        idempotency_key: str | None = None,
    ) -> Decision:
        """A node, and for a hint a reservation on it. Without a key of the caller's own one is made, so that a
        repetition after a lost answer finds what the first attempt did."""
        body = wire.schedule_body(hint, lifecycle, reservation_ttl_ms, exclude_nodes)
        headers = {} if hint is None else {"Idempotency-Key": idempotency_key or new_idempotency_key()}
        return wire.decision(await self._call("POST", "/v1/schedule", body, headers))

    async def confirm(self, reservation_id: str, sandbox_id: str) -> ReservationResult:
        path = f"/v1/reservations/{_segment(reservation_id)}/confirm"
        return wire.reservation_result(await self._call("POST", path, {"sandbox_id": sandbox_id}))

    async def cancel(self, reservation_id: str, reason: str = "") -> ReservationResult:
        path = f"/v1/reservations/{_segment(reservation_id)}/cancel"
        return wire.reservation_result(await self._call("POST", path, {"reason": reason}))

    async def cancel_by_key(self, idempotency_key: str, reason: str = "") -> None:
        """Also before the schedule has arrived: that key is then refused."""
        body = {"idempotency_key": idempotency_key, "reason": reason}
        await self._call("POST", "/v1/reservations/cancel", body)

    async def renew(self, reservation_id: str, ttl_ms: int) -> ReservationResult:
        path = f"/v1/reservations/{_segment(reservation_id)}/renew"
        return wire.reservation_result(await self._call("POST", path, {"ttl": format_duration(ttl_ms)}))

    async def lookup(self, sandbox_id: str) -> NodeAddress:
        """Where a sandbox runs. Raises NotFound."""
        answer = await self._call("GET", f"/v1/bindings/{_segment(sandbox_id)}")
        return NodeAddress(answer["node"]["node_id"], answer["node"]["endpoint"])

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        for attempt in range(1, self._attempts + 1):
            pause = min(0.1 * 2**attempt, _LONGEST_PAUSE_SECONDS)
            try:
                answer = await self._http.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                failure: SchedulerError = StoreUnavailable(f"the scheduler was not reached ({type(error).__name__})")
            else:
                if answer.is_success:
                    content: dict[str, Any] = answer.json()
                    return content
                failure = _failure(answer)
                pause = _asked_pause(answer, pause)
            if not isinstance(failure, _WORTH_ASKING_AGAIN) or attempt == self._attempts:
                raise failure
            await self._sleep(pause)
        raise AssertionError("attempts must be at least 1")


def new_idempotency_key() -> str:
    return secrets.token_urlsafe(24)


def _segment(identity: str) -> str:
    """An id as one segment of a path, whatever it holds."""
    return quote(identity, safe="")


def _failure(answer: httpx.Response) -> SchedulerError:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if isinstance(problem, dict) and "code" in problem:
        return wire.error(problem)
    # Not from the scheduler: a balancer without a healthy replica, most likely.
    return StoreUnavailable(f"an answer with status {answer.status_code} that is no problem document")


def _asked_pause(answer: httpx.Response, otherwise: float) -> float:
    asked = answer.headers.get("retry-after", "")
    return min(float(asked), _LONGEST_PAUSE_SECONDS) if asked.isdecimal() else otherwise
