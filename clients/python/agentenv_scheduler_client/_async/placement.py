"""One placement as a block: scheduled on entering, and ended by what the block tells of its sandbox.

What is known decides what happens to the reservation:

    the schedule was not answered            cancelled by its key, unless the caller gave that key: no node was
                                             asked for anything
    the block never looked at its node       cancelled: nothing can have been created
    NodeRefused, or `cancel()`               cancelled: the caller says that nothing was created
    `confirm()` answered                     confirmed
    `confirm()` not answered                 confirmed again and again until its deadline, never cancelled
    anything else: an error, a caller that   held until its deadline: the node may be creating the sandbox,
    was interrupted, an oversight            and a cancel would give its capacity to somebody else
"""

from __future__ import annotations

from types import TracebackType

from agentenv_scheduler_client._async.calls import AsyncCalls
from agentenv_scheduler_client._async.reservations import AsyncReservations
from agentenv_scheduler_client._async.waiting import Left, Start, Stop, Work
from agentenv_scheduler_client.asking import Patience
from agentenv_scheduler_client.deadline import Deadline
from agentenv_scheduler_client.errors import Conflict, NodeRefused, OutcomeUnknown, SchedulerError
from agentenv_scheduler_client.idempotency import Key
from agentenv_scheduler_client.late import log
from agentenv_scheduler_client.nodes import NodeAddress
from agentenv_scheduler_client.placements import Decision
from agentenv_scheduler_client.reservations import CancelCause, Reservation, ReservationResult, ReservationState

# A caller that was interrupted is kept this long by the cancel of its reservation, which then goes on without it.
_KEPT_SECONDS = 1.0


class AsyncPlacement:
    """Made by `place` of the client; to be entered by `async with`."""

    def __init__(self, calls: AsyncCalls, key: Key, decide: Work[Decision], deadline: Deadline) -> None:
        self._calls = calls
        self._reservations = AsyncReservations(calls)
        self._waiting = calls.waiting
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
        sandbox, when given. Every error carries node, reservation and sandbox_id."""
        self._told_sandbox = sandbox_id
        try:
            result = await self._waiting.detach(lambda: self._confirm(sandbox_id, stop), self._deadline.left())
        except TimeoutError:
            detail = "the confirm was not answered in time; it goes on as long as the client is open"
            raise self._unknown(detail, sandbox_id) from None
        self._over = True
        return result

    async def cancel(self, reason: str = "") -> ReservationResult:
        """Nothing was created, or what was created is gone: the capacity is free at once."""
        result = await self._reservations.cancel(self._reserved.reservation_id, reason)
        self._over = True
        return result

    async def renew(self, ttl_seconds: float) -> ReservationResult:
        """The create takes longer: the capacity is held for so long from now."""
        result = await self._reservations.renew(self._reserved.reservation_id, ttl_seconds)
        self._ends_at = self._waiting.now() + ttl_seconds
        return result

    async def start(self, start: Start) -> str:
        """The sandbox id that `start(node)` answers, within the caller's deadline.

        NodeRefused passes; any other error, and the deadline, become OutcomeUnknown."""
        node = self.node
        try:
            return await self._waiting.until(self._deadline.at, lambda: start(node))
        except NodeRefused:
            raise
        except Exception as error:
            how = f"the create on node {node.node_id} ended in {type(error).__name__}"
            raise self._unknown(how) from error

    async def __aenter__(self) -> AsyncPlacement:
        try:
            self._decision = await self._decide()
        except Left:
            await self._take_back_key("the caller left", _KEPT_SECONDS)
            raise
        except SchedulerError as error:
            error.idempotency_key = self._key.text
            if error.unanswered and not isinstance(error, Conflict):
                await self._take_back_key("the schedule was not answered", 0)
            raise
        reserved = self._reserved
        # By this process' own clock: only the length of the time is the server's.
        self._ends_at = self._waiting.now() + (reserved.expires_at_ms - reserved.created_at_ms) / 1000
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._over:
            return
        # Of what an earlier run of the caller reserved, nobody knows here how far it got.
        earlier_run = self._key.given and self._made.replayed
        if self._told_sandbox is None and not earlier_run:
            if isinstance(error, NodeRefused):
                reason = str(error) or "the node refused"
                await self._give_back(lambda: self._cancelled(reason, CancelCause.NODE_REFUSED), self._deadline.left())
                return
            if not self._node_known:
                kept = self._deadline.at_most(_KEPT_SECONDS)
                await self._give_back(lambda: self._cancelled("nothing was begun"), kept)
                return
        held = (
            f"reservation {self._reserved.reservation_id} on node {self._made.node.node_id} is held until its deadline"
        )
        log.warning("how a create ended is not known: %s (sandbox %s)", held, self._told_sandbox)
        if error is not None and not isinstance(error, SchedulerError):
            error.add_note(held)

    @property
    def _made(self) -> Decision:
        if self._decision is None:
            raise RuntimeError("a placement is decided by entering it: `async with client.place(hint) as placement`")
        return self._decision

    @property
    def _reserved(self) -> Reservation:
        if self._made.reservation is None:
            raise RuntimeError("the scheduler reserved nothing for a hint; it is none that this client knows")
        return self._made.reservation

    async def _confirm(self, sandbox_id: str, stop: Stop | None) -> ReservationResult:
        # A sandbox that exists is told also when its reservation has run out meanwhile.
        seconds = max(self._ends_at - self._waiting.now(), self._calls.patience.seconds)
        to_the_end = AsyncReservations(self._calls.patient(Patience(seconds, attempts=None)))
        try:
            return await to_the_end.confirm(self._reserved.reservation_id, sandbox_id)
        except SchedulerError as error:
            if not error.answered:
                detail = "the confirm was not answered before the reservation's deadline"
                raise self._unknown(detail, sandbox_id) from error
            self._over = True  # the ledger has spoken
            recorded = error.reservation
            error.node = self._made.node
            error.reservation = recorded or self._reserved
            error.sandbox_id = sandbox_id
            if isinstance(error, Conflict) and stop is not None:
                await self._stop(error, stop)
            raise

    async def _stop(self, conflict: Conflict, stop: Stop) -> None:
        """Stops the sandbox that the ledger does not accept; `stopped` of the conflict says whether it worked."""
        node, sandbox_id = self._made.node, str(conflict.sandbox_id)
        try:
            await stop(node, sandbox_id)
        except Exception as error:  # noqa: BLE001 - the conflict is what the caller must hear
            conflict.stopped = False
            conflict.add_note(f"and sandbox {sandbox_id} was not stopped: {error!r}")
            log.exception("sandbox %s on node %s was not stopped", sandbox_id, node.node_id)
            return
        conflict.stopped = True
        recorded = conflict.reservation
        if recorded is not None and recorded.state == ReservationState.PENDING:
            await self._cancelled("its sandbox was stopped")

    async def _take_back_key(self, reason: str, wait_seconds: float) -> None:
        """The schedule may have arrived all the same, or arrive later: its key takes it back either way."""
        if not self._key.given:
            await self._give_back(lambda: self._key_cancelled(reason), wait_seconds)

    async def _give_back(self, cancel: Work[None], wait_seconds: float | None) -> None:
        try:
            await self._waiting.detach(cancel, wait_seconds)
        except TimeoutError:
            return  # it goes on

    async def _cancelled(self, reason: str, cause: CancelCause = CancelCause.CALLER) -> None:
        """A cancel that fails hides no error of the block: the reservation then ends by its deadline."""
        reservation_id = self._reserved.reservation_id
        try:
            await self._reservations.cancel(reservation_id, reason, cause=cause)
        except SchedulerError as error:
            log.warning("reservation %s was not cancelled: %s (%s)", reservation_id, error.detail, error.code)

    async def _key_cancelled(self, reason: str) -> None:
        try:
            await self._reservations.cancel_by_key(self._key.text, reason)
        except SchedulerError as error:
            log.warning("key %s was not cancelled: %s (%s)", self._key.text, error.detail, error.code)

    def _unknown(self, detail: str, sandbox_id: str | None = None) -> OutcomeUnknown:
        return OutcomeUnknown(detail, self._made.node, self._reserved, sandbox_id)
