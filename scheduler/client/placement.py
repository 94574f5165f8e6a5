"""One placement as a block: scheduled on entering, and ended by what the block tells of its sandbox.

What is known decides what happens to the reservation:

    the schedule was not answered            cancelled by its key, unless the caller gave that key: no node was
                                             asked for anything
    the block never looked at its node       cancelled: nothing can have been created
    NodeRefused, or `cancel()`               cancelled: the caller says that nothing was created
    `confirm()` answered                     confirmed
    `confirm()` not answered                 confirmed again and again until its deadline, never cancelled
    anything else: an error, a cancelled     held until its deadline: the node may be creating the sandbox,
    task, an oversight                       and a cancel would give its capacity to somebody else
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any

from scheduler.client.background import Background
from scheduler.client.calls import Patience
from scheduler.client.errors import NodeRefused, OutcomeUnknown
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Decision
from scheduler.domain.reservation import Reservation, ReservationResult, ReservationState
from scheduler.errors import Conflict, SchedulerError
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.client.client import SchedulerClient

log = get_logger(__name__)

Stop = Callable[[NodeAddress, str], Awaitable[object]]

# A caller whose task was cancelled is kept this long by the cancel of its reservation, which then goes on without it.
_KEPT_SECONDS = 1.0


class Deadline:
    """When a caller wants its answer; without one it waits."""

    def __init__(self, seconds: float | None = None) -> None:
        self.at = None if seconds is None else asyncio.get_running_loop().time() + seconds

    def left(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - asyncio.get_running_loop().time())

    def at_most(self, seconds: float) -> float:
        left = self.left()
        return seconds if left is None else min(left, seconds)


class Key:
    """An idempotency key. One that the caller gave may have been used before: what is found under it may belong
    to an earlier run of the caller, so it is cancelled on the caller's word only."""

    def __init__(self, text: str, *, given: bool) -> None:
        self.text = text
        self.given = given


class Placement:
    """`async with` it; made by `SchedulerClient.place`."""

    def __init__(
        self,
        client: SchedulerClient,
        background: Background,
        key: Key,
        decide: Callable[[], Awaitable[Decision]],
        deadline: Deadline,
    ) -> None:
        self._client = client
        self._background = background
        self._key = key
        self._decide = decide
        self._deadline = deadline
        self._decision: Decision | None = None
        self._ends_at = 0.0
        self._node_known = False
        self._told_sandbox: str | None = None
        self._over = False

    @property
    def decision(self) -> Decision:
        """Whoever has looked at it, or at `node`, may have asked the node for a sandbox."""
        self._node_known = True
        return self._made

    @property
    def node(self) -> NodeAddress:
        return self.decision.node

    @property
    def reservation(self) -> Reservation:
        self._node_known = True
        return self._reserved

    async def confirm(self, sandbox_id: str, *, stop: Stop | None = None) -> ReservationResult:
        """The sandbox exists: it is bound to the node. Asked until the reservation's deadline.

        Raises OutcomeUnknown when there is no answer by then, or by the caller's deadline; the confirm goes on.
        Raises Conflict when another truth is recorded, after `stop(node, sandbox_id)` has stopped the
        sandbox, when given. Every error carries node, reservation and sandbox_id in its facts."""
        self._told_sandbox = sandbox_id
        try:
            result = await self._background.run(self._confirm(sandbox_id, stop), self._deadline.left())
        except TimeoutError:
            detail = "the confirm was not answered in time; it goes on as long as the client is open"
            raise self._unknown(detail, sandbox_id) from None
        self._over = True
        return result

    async def cancel(self, reason: str = "") -> ReservationResult:
        """Nothing was created, or what was created is gone: the capacity is free at once."""
        result = await self._client.cancel(self._reserved.reservation_id, reason)
        self._over = True
        return result

    async def renew(self, ttl_ms: int) -> ReservationResult:
        """The create takes longer: the capacity is kept for `ttl_ms` from now."""
        result = await self._client.renew(self._reserved.reservation_id, ttl_ms)
        self._ends_at = _now() + ttl_ms / 1000
        return result

    async def start(self, start: Callable[[NodeAddress], Awaitable[str]]) -> str:
        """The sandbox id that `start(node)` answers, within the caller's deadline.

        NodeRefused passes; any other error, and the deadline, become OutcomeUnknown."""
        node = self.node
        try:
            async with asyncio.timeout_at(self._deadline.at):
                return await start(node)
        except NodeRefused:
            raise
        except Exception as error:
            how = f"the create on node {node.node_id} ended in {type(error).__name__}"
            raise self._unknown(how) from error

    async def __aenter__(self) -> Placement:
        try:
            self._decision = await self._decide()
        except asyncio.CancelledError:
            await self._take_back_key("the caller left", _KEPT_SECONDS)
            raise
        except SchedulerError as error:
            error.facts["idempotency_key"] = self._key.text
            if error.facts.get("unanswered") and not isinstance(error, Conflict):
                await self._take_back_key("the schedule was not answered", 0)
            raise
        reserved = self._reserved
        # By this process' own clock: only the length of the time is the server's.
        self._ends_at = _now() + (reserved.expires_at_ms - reserved.created_at_ms) / 1000
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._over:
            return
        reservation_id = self._reserved.reservation_id
        # Of what an earlier run of the caller reserved, nobody knows here how far it got.
        earlier_run = self._key.given and self._made.replayed
        if self._told_sandbox is None and not earlier_run:
            if isinstance(error, NodeRefused):
                work = self._client.cancel(reservation_id, str(error) or "the node refused", cause="node_refused")
                await self._give_back(work, self._deadline.left())
                return
            if not self._node_known:
                work = self._client.cancel(reservation_id, "nothing was begun")
                await self._give_back(work, self._deadline.at_most(_KEPT_SECONDS))
                return
        log.warning(
            "how a create ended is not known; its reservation is held until its deadline",
            node_id=self._made.node.node_id,
            reservation_id=reservation_id,
            sandbox_id=self._told_sandbox,
        )
        if error is not None and not isinstance(error, SchedulerError):
            error.add_note(f"reservation {reservation_id} on node {self._made.node.node_id} is held until its deadline")

    @property
    def _made(self) -> Decision:
        if self._decision is None:
            raise RuntimeError("a placement is decided by entering it: `async with client.place(hint) as placement`")
        return self._decision

    @property
    def _reserved(self) -> Reservation:
        reservation = self._made.reservation
        assert reservation is not None  # noqa: S101 - placements are made for hints, and every hint reserves
        return reservation

    async def _confirm(self, sandbox_id: str, stop: Stop | None) -> ReservationResult:
        # A sandbox that exists is told also when its reservation has run out meanwhile.
        seconds = max(self._ends_at - _now(), self._client.timeout_seconds)
        reservation_id = self._reserved.reservation_id
        try:
            return await self._client.confirm(reservation_id, sandbox_id, patience=Patience(seconds, attempts=None))
        except SchedulerError as error:
            if not error.facts.get("answered"):
                detail = "the confirm was not answered before the reservation's deadline"
                raise self._unknown(detail, sandbox_id) from error
            self._over = True  # the ledger has spoken
            for name, fact in self._facts(sandbox_id).items():
                error.facts.setdefault(name, fact)
            if isinstance(error, Conflict) and stop is not None:
                await self._stop(error, sandbox_id, stop)
            raise

    async def _stop(self, conflict: Conflict, sandbox_id: str, stop: Stop) -> None:
        """Stops the sandbox that the ledger does not accept; `stopped` in the facts says whether it worked."""
        try:
            await stop(self._made.node, sandbox_id)
        except Exception as error:  # the conflict is what the caller must hear
            conflict.facts["stopped"] = False
            conflict.add_note(f"and sandbox {sandbox_id} was not stopped: {error!r}")
            log.exception("a sandbox was not stopped", sandbox_id=sandbox_id, node_id=self._made.node.node_id)
            return
        conflict.facts["stopped"] = True
        recorded = conflict.facts["reservation"]
        if isinstance(recorded, Reservation) and recorded.state is ReservationState.PENDING:
            await self._cancelled(self._client.cancel(self._reserved.reservation_id, "its sandbox was stopped"))

    async def _take_back_key(self, reason: str, wait_seconds: float) -> None:
        """The schedule may have arrived all the same, or arrive later: its key takes it back either way."""
        if not self._key.given:
            await self._give_back(self._client.cancel_by_key(self._key.text, reason), wait_seconds)

    async def _give_back(self, cancel: Coroutine[Any, Any, object], wait_seconds: float | None) -> None:
        try:
            await self._background.run(self._cancelled(cancel), wait_seconds)
        except TimeoutError:
            return  # it goes on

    async def _cancelled(self, cancel: Coroutine[Any, Any, object]) -> None:
        """A cancel that fails hides no error of the block: the reservation then ends by its deadline."""
        try:
            await cancel
        except SchedulerError as error:
            log.warning("a reservation was not cancelled", code=error.code, detail=error.detail)

    def _facts(self, sandbox_id: str) -> dict[str, Any]:
        return {"node": self._made.node, "reservation": self._reserved, "sandbox_id": sandbox_id}

    def _unknown(self, detail: str, sandbox_id: str | None = None) -> OutcomeUnknown:
        return OutcomeUnknown(detail, self._made.node, self._reserved, sandbox_id)


def _now() -> float:
    return asyncio.get_running_loop().time()
