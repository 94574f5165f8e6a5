"""The client: the nouns of the API, and `create`, which calls them in the right order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypedDict, Unpack

import httpx

from agentenv_scheduler_client._async.calls import AsyncCalls
from agentenv_scheduler_client._async.catalog import (
    AsyncArtifacts,
    AsyncBindings,
    AsyncGroups,
    AsyncTemplates,
    AsyncWarmKeys,
)
from agentenv_scheduler_client._async.nodes import AsyncNodes
from agentenv_scheduler_client._async.placement import AsyncPlacement
from agentenv_scheduler_client._async.reservations import AsyncReservations
from agentenv_scheduler_client._async.waiting import AsyncWaiting, Start, Stop
from agentenv_scheduler_client.asking import Patience, Question, given, nothing, path
from agentenv_scheduler_client.catalog import AuditPage, DecisionPage, Readiness, Replicas, Settings, Summary
from agentenv_scheduler_client.connection import ClientOptions, Connection
from agentenv_scheduler_client.deadline import Deadline
from agentenv_scheduler_client.errors import NodeRefused, NoNodes, SchedulerError
from agentenv_scheduler_client.idempotency import Key
from agentenv_scheduler_client.pages import answered_object, version_in
from agentenv_scheduler_client.placements import (
    EXCLUDED_MAX,
    ApiRequest,
    BatchDecision,
    BatchOptions,
    Creation,
    Decision,
    Explanation,
    Hint,
    HintReading,
    RequestOptions,
    ScheduleOptions,
    batch_body,
    read_hint,
    schedule_body,
)
from agentenv_scheduler_client.reading import body_of, read
from agentenv_scheduler_client.version import USER_AGENT


class CreateOptions(TypedDict, total=False):
    """`sandbox_id`: the name that the caller gives the sandbox; the ledger then knows it before the node does.
    `stop(node, sandbox_id)` is called when the ledger refuses the sandbox for good: its reservation was cancelled, or
    the id belongs to another one. `nodes_tried_max` is 3 unless given; beyond 64, the
    first of those that refused may be tried again.
    `timeout_seconds`: the deadline of the whole create, whatever it is waiting for; none by default."""

    reservation_ttl_seconds: float | None
    sandbox_id: str | None
    stop: Stop | None
    nodes_tried_max: int
    timeout_seconds: float | None


class PlaceOptions(TypedDict, total=False):
    """`timeout_seconds` bounds the schedule and how long a confirm is waited for, together."""

    reservation_ttl_seconds: float | None
    exclude_nodes: tuple[str, ...]
    idempotency_key: str | None
    sandbox_id: str | None
    timeout_seconds: float | None


class AsyncSchedulerClient:
    """Calls one scheduler address (a balancer in front of the replicas, usually). To be entered by `async with`.

    A call that fails on the way, or that the server asks to repeat, is repeated within its patience. Repeating is
    safe: every call is idempotent by its key or its ids. `transport` replaces the network, for tests."""

    def __init__(
        self, base_url: str, *, transport: httpx.AsyncBaseTransport | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        connection = Connection(base_url, options, USER_AGENT)
        patience = Patience(options.get("timeout_seconds", 10.0), options.get("attempts", 4))
        http = httpx.AsyncClient(base_url=base_url, verify=connection.verify, transport=transport)
        self._calls = AsyncCalls(http, connection, AsyncWaiting(), patience)

    def with_patience(self, seconds: float, attempts: int | None = None) -> AsyncSchedulerClient:
        """This client over the same connections, with another bound for each call. Close the first one only."""
        other = object.__new__(type(self))
        other._calls = self._calls.patient(Patience(seconds, attempts))
        return other

    async def __aenter__(self) -> AsyncSchedulerClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits, for as long as one call may take, for confirms and cancels that are still under way."""
        try:
            await self._calls.waiting.finish(self._calls.patience.seconds)
        finally:
            await self._calls.close()

    @property
    def reservations(self) -> AsyncReservations:
        return AsyncReservations(self._calls)

    @property
    def nodes(self) -> AsyncNodes:
        return AsyncNodes(self._calls)

    @property
    def bindings(self) -> AsyncBindings:
        return AsyncBindings(self._calls)

    @property
    def templates(self) -> AsyncTemplates:
        return AsyncTemplates(self._calls)

    @property
    def groups(self) -> AsyncGroups:
        return AsyncGroups(self._calls)

    @property
    def warm_keys(self) -> AsyncWarmKeys:
        return AsyncWarmKeys(self._calls)

    @property
    def artifacts(self) -> AsyncArtifacts:
        return AsyncArtifacts(self._calls)

    async def schedule(self, what: Hint | ApiRequest | None = None, **options: Unpack[ScheduleOptions]) -> Decision:
        """A node, and for a sandbox creation a reservation on it; None is ordinary routing.

        Without a key of the caller's own one is made, so that a repetition after a lost answer finds what the first
        attempt did; an error carries the key."""
        key = Key(options.get("idempotency_key")).text
        headers = {} if what is None else {"Idempotency-Key": key}
        question = Question("POST", path("schedule"), schedule_body(what, options), headers=headers)
        try:
            return await self._calls.ask(question, lambda answer: read(Decision, answer))
        except SchedulerError as error:
            if what is not None and not isinstance(error, NoNodes):
                error.idempotency_key = key
            raise

    async def schedule_batch(self, creations: Sequence[Creation], **options: Unpack[BatchOptions]) -> BatchDecision:
        """Nodes and reservations for up to 256 creations, decided in one step, each after the one before it.

        The key is treated as with `schedule`. Raises NoNodes only when all or none are wanted."""
        key = Key(options.get("idempotency_key")).text
        question = Question(
            "POST", path("schedule", "batch"), batch_body(creations, options), headers={"Idempotency-Key": key}
        )
        try:
            return await self._calls.ask(question, lambda answer: read(BatchDecision, answer))
        except SchedulerError as error:
            if not isinstance(error, NoNodes):
                error.idempotency_key = key
            raise

    async def explain(self, what: Hint | ApiRequest | None = None, **options: Unpack[RequestOptions]) -> Explanation:
        """Where every node stands for this request. Reserves nothing. Of more than 1,000 nodes each page is of another
        moment."""
        body = schedule_body(what, options)
        whole: Explanation | None = None
        cursor: str | None = None
        while True:
            question = Question("POST", path("explain"), body, params=given(cursor=cursor))
            page = await self._calls.ask(question, lambda answer: read(Explanation, answer))
            whole = page if whole is None else replace(whole, nodes=whole.nodes + page.nodes)
            cursor = page.cursor
            if cursor is None:
                return replace(whole, cursor=None)

    async def read_hint(self, request: ApiRequest) -> HintReading:
        """What a sandbox API request would be read as."""
        return await self._calls.ask(Question("POST", path("hints"), body_of(request)), read_hint)

    def place(self, hint: Hint, **options: Unpack[PlaceOptions]) -> AsyncPlacement:
        """A placement to be entered by `async with`; its module says what becomes of an unconfirmed one."""
        return self._placement(hint, Deadline(options.get("timeout_seconds"), self._calls.waiting.now), options)

    async def create(self, hint: Hint, start: Start, **options: Unpack[CreateOptions]) -> str:
        """Places, starts and confirms one sandbox; answers its id.

        `start(node)` creates it there and answers the sandbox id. When it raises NodeRefused the reservation is
        cancelled and another node tried. Any other error leaves open whether the sandbox runs: OutcomeUnknown, and
        nothing is cancelled. Raises Conflict when the ledger refuses the sandbox for good, NoNodes when no (further)
        node may be chosen."""
        deadline = Deadline(options.get("timeout_seconds"), self._calls.waiting.now)
        asking: PlaceOptions = {
            "reservation_ttl_seconds": options.get("reservation_ttl_seconds"),
            "sandbox_id": options.get("sandbox_id"),
        }
        refused: list[str] = []
        while True:
            try:
                asking["exclude_nodes"] = tuple(refused[-EXCLUDED_MAX:])
                async with self._placement(hint, deadline, asking) as placement:
                    sandbox_id = await placement.start(start)
                    await placement.confirm(sandbox_id, stop=options.get("stop"))
                    return sandbox_id
            except NodeRefused:
                # `start` may have made a refusal of an interrupt; whoever sent that still wants this to end.
                self._calls.waiting.check_left()
                refused.append(placement.node.node_id)
                if len(refused) >= options.get("nodes_tried_max", 3):
                    raise

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answer as it comes, for a call or for members that this version does not know. Repeated like any other,
        so it must be one that may be."""
        return await self._calls.ask(Question(method, path, body, params or {}), answered_object)

    async def settings(self) -> Settings:
        """The settings that all replicas agree on."""
        return await self._calls.ask(Question("GET", path("settings")), lambda answer: read(Settings, answer))

    async def replicas(self) -> Replicas:
        """The replicas that live."""
        return await self._calls.ask(Question("GET", path("replicas")), lambda answer: read(Replicas, answer))

    async def summary(self) -> Summary:
        """The whole ledger on one page; cheap enough to be asked every second."""
        return await self._calls.ask(Question("GET", path("summary")), lambda answer: read(Summary, answer))

    async def decisions(
        self, *, reason: str = "", node_id: str = "", caller: str = "", limit: int = 100, cursor: str | None = None
    ) -> DecisionPage:
        """A page of the last decisions, newest first; `limit` is at most 1,000."""
        params = given(limit=str(limit), reason=reason, node_id=node_id, caller=caller, cursor=cursor)
        question = Question("GET", path("decisions"), params=params)
        return await self._calls.ask(question, lambda answer: read(DecisionPage, answer))

    async def audit(self, *, limit: int = 100, cursor: str | None = None) -> AuditPage:
        """A page of who did what, newest first. For keys of role admin."""
        params = given(limit=str(limit), cursor=cursor)
        return await self._calls.ask(Question("GET", path("audit"), params=params), lambda a: read(AuditPage, a))

    async def check_health(self) -> None:
        """Returns when the process answers. Asked once."""
        await self._once.ask(Question("GET", "/healthz"), nothing)

    async def check_readiness(self) -> Readiness:
        """Returns when this replica may be sent traffic. Raises Unavailable when not. Asked once."""
        return await self._once.ask(Question("GET", "/readyz"), lambda answer: read(Readiness, answer))

    async def server_version(self) -> str:
        """The version of the replica that answers, read from its OpenAPI document."""
        return await self._calls.ask(Question("GET", "/openapi.json"), version_in)

    @property
    def _once(self) -> AsyncCalls:
        return self._calls.patient(Patience(self._calls.patience.seconds, attempts=1))

    def _placement(self, hint: Hint, deadline: Deadline, options: PlaceOptions) -> AsyncPlacement:
        key = Key(options.get("idempotency_key"))
        asked: dict[str, Any] = {
            "reservation_ttl_seconds": options.get("reservation_ttl_seconds"),
            "exclude_nodes": options.get("exclude_nodes", ()),
            "sandbox_id": options.get("sandbox_id"),
        }
        question = Question("POST", path("schedule"), schedule_body(hint, asked), headers={"Idempotency-Key": key.text})

        async def decide() -> Decision:
            patience = self._calls.patience
            bounded = self._calls.patient(Patience(deadline.at_most(patience.seconds), patience.attempts))
            return await bounded.ask(question, lambda answer: read(Decision, answer))

        return AsyncPlacement(self._calls, key, decide, deadline)
