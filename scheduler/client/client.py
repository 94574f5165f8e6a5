"""The client: one method per call a gateway makes, and `create`, which makes them in the right order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, TypedDict, Unpack
from urllib.parse import quote

import httpx

from scheduler.client import wire
from scheduler.client.background import Background
from scheduler.client.calls import Calls, Patience, Question, Sleep
from scheduler.client.errors import NodeRefused
from scheduler.client.placement import Deadline, Key, Placement, Stop
from scheduler.domain.duration import format_duration
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Decision, Hint
from scheduler.domain.reservation import Lifecycle, ReservationResult
from scheduler.errors import InvalidRequest, NoNodes, SchedulerError

Cause = Literal["caller", "node_refused"]


class CreateOptions(TypedDict, total=False):
    """`sandbox_id`: the name that the caller gives the sandbox; the ledger then knows it before the node does.
    `timeout_seconds`: the deadline of the whole create, whatever it is waiting for; none by default."""

    reservation_ttl_ms: int | None
    sandbox_id: str | None
    timeout_seconds: float | None


class PlaceOptions(TypedDict, total=False):
    """`timeout_seconds` bounds the schedule and how long a confirm is waited for, together."""

    reservation_ttl_ms: int | None
    exclude_nodes: tuple[str, ...]
    idempotency_key: str | None
    sandbox_id: str | None
    timeout_seconds: float | None


class ScheduleOptions(TypedDict, total=False):
    lifecycle: Lifecycle
    reservation_ttl_ms: int | None
    exclude_nodes: tuple[str, ...]
    idempotency_key: str | None
    sandbox_id: str | None
    patience: Patience | None


class SchedulerClient:
    """Calls one scheduler address (a balancer in front of the replicas, usually).

    A call that fails on the way, or that the server asks to repeat, is repeated up to `attempts` times within
    `timeout_seconds` in all, pauses included. Repeating is safe: every call is idempotent by its key or its id."""

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
        self._calls = Calls(self._http, sleep)
        self._patience = Patience(timeout_seconds, attempts)
        self._background = Background()
        self.timeout_seconds = timeout_seconds

    async def __aenter__(self) -> SchedulerClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits up to `timeout_seconds` for confirms and cancels that are still under way."""
        try:
            await self._background.finish(self.timeout_seconds)
        finally:
            await self._http.aclose()

    async def create(
        self,
        hint: Hint,
        start: Callable[[NodeAddress], Awaitable[str]],
        *,
        stop: Stop | None = None,
        nodes_tried_max: int = 3,
        **options: Unpack[CreateOptions],
    ) -> str:
        """Places, starts and confirms one sandbox; answers its id.

        `start(node)` creates it there and answers the sandbox id. When it raises NodeRefused the reservation is
        cancelled and another node tried, up to `nodes_tried_max`. Any other error leaves open whether the
        sandbox runs: OutcomeUnknown, and nothing is cancelled.

        `stop(node, sandbox_id)` is called when the ledger refuses the sandbox for good (its reservation was
        cancelled, or the id belongs to another one); Conflict is raised then. Raises NoNodes when no (further)
        node may be chosen."""
        deadline = Deadline(options.get("timeout_seconds"))
        asking = PlaceOptions(
            reservation_ttl_ms=options.get("reservation_ttl_ms"), sandbox_id=options.get("sandbox_id")
        )
        refused: list[str] = []
        while True:
            try:
                async with self._placement(hint, deadline, {**asking, "exclude_nodes": tuple(refused)}) as placement:
                    sandbox_id = await placement.start(start)
                    await placement.confirm(sandbox_id, stop=stop)
                    return sandbox_id
            except NodeRefused:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # `start` made a refusal of it; whoever cancelled this task still wants it to end.
                    raise asyncio.CancelledError from None
                refused.append(placement.node.node_id)
                if len(refused) >= nodes_tried_max:
                    raise

    def place(self, hint: Hint, **options: Unpack[PlaceOptions]) -> Placement:
        """A placement to be entered with `async with`; its module says what becomes of an unconfirmed one."""
        return self._placement(hint, Deadline(options.get("timeout_seconds")), options)

    def _placement(self, hint: Hint, deadline: Deadline, options: PlaceOptions) -> Placement:
        given = options.get("idempotency_key")
        key = Key(given or new_idempotency_key(), given=given is not None)

        async def decide() -> Decision:
            return await self.schedule(
                hint,
                reservation_ttl_ms=options.get("reservation_ttl_ms"),
                exclude_nodes=options.get("exclude_nodes", ()),
                idempotency_key=key.text,
                sandbox_id=options.get("sandbox_id"),
                patience=Patience(deadline.at_most(self._patience.seconds), self._patience.attempts),
            )

        return Placement(self, self._background, key, decide, deadline)

    async def schedule(self, hint: Hint | None = None, **options: Unpack[ScheduleOptions]) -> Decision:
        """A node, and for a hint a reservation on it. Without a key of the caller's own one is made, so that a
        repetition after a lost answer finds what the first attempt did; an error carries the key in its facts."""
        body = wire.schedule_body(
            hint,
            options.get("lifecycle", Lifecycle.EXPLICIT),
            options.get("reservation_ttl_ms"),
            options.get("exclude_nodes", ()),
            options.get("sandbox_id"),
        )
        key = options.get("idempotency_key") or new_idempotency_key()
        headers = {} if hint is None else {"Idempotency-Key": key}
        question = Question("POST", "/v1/schedule", body, headers)
        try:
            return await self._calls.ask(question, wire.decision, options.get("patience") or self._patience)
        except SchedulerError as error:
            if hint is not None and not isinstance(error, NoNodes):
                error.facts.setdefault("idempotency_key", key)
            raise

    async def confirm(
        self, reservation_id: str, sandbox_id: str, *, patience: Patience | None = None
    ) -> ReservationResult:
        body = {"sandbox_id": sandbox_id}
        question = Question("POST", f"/v1/reservations/{_segment(reservation_id)}/confirm", body)
        return await self._calls.ask(question, wire.reservation_result, patience or self._patience)

    async def cancel(self, reservation_id: str, reason: str = "", *, cause: Cause = "caller") -> ReservationResult:
        """`cause` node_refused: the node would not create it, so the scheduler may avoid the node for a while."""
        path = f"/v1/reservations/{_segment(reservation_id)}/cancel"
        plain = Question("POST", path, {"reason": reason})
        if cause == "caller":
            return await self._calls.ask(plain, wire.reservation_result, self._patience)
        question = Question("POST", path, {"reason": reason, "cause": cause})
        try:
            return await self._calls.ask(question, wire.reservation_result, self._patience)
        except InvalidRequest as error:
            if not any(broken.get("field") == "cause" for broken in error.facts["errors"]):
                raise
            # A replica of 0.1 knows no cause; the capacity must be free all the same.
            return await self._calls.ask(plain, wire.reservation_result, self._patience)

    async def cancel_by_key(self, idempotency_key: str, reason: str = "") -> None:
        """Also before the schedule has arrived: that key is then refused."""
        body = {"idempotency_key": idempotency_key, "reason": reason}
        await self._calls.ask(Question("POST", "/v1/reservations/cancel", body), dict, self._patience)

    async def renew(self, reservation_id: str, ttl_ms: int) -> ReservationResult:
        question = Question(
            "POST", f"/v1/reservations/{_segment(reservation_id)}/renew", {"ttl": format_duration(ttl_ms)}
        )
        return await self._calls.ask(question, wire.reservation_result, self._patience)

    async def lookup(self, sandbox_id: str) -> NodeAddress:
        """Where a sandbox runs. Raises NotFound."""
        question = Question("GET", f"/v1/bindings/{_segment(sandbox_id)}")
        return await self._calls.ask(question, wire.bound_node, self._patience)


def new_idempotency_key() -> str:
    return secrets.token_urlsafe(24)


def _segment(identity: str) -> str:
    """An id as one segment of a path, whatever it holds."""
    return quote(identity, safe="")
