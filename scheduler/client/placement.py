"""One placement as a block: what happens inside is confirmed, or the promise is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any

from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Decision
from scheduler.domain.reservation import Reservation, ReservationResult
from scheduler.errors import SchedulerError
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.client.client import SchedulerClient

log = get_logger(__name__)


class NodeRefused(Exception):
    """Raise it where a sandbox is started to say: this node would not, try another one."""


class Placement:
    """`async with` it: entering schedules, leaving without a confirm cancels – after an error, after a
    cancellation, and also when the block simply forgot. Nobody else could tell that nothing was created."""

    def __init__(self, client: SchedulerClient, key: str, decide: Callable[[], Awaitable[Decision]]) -> None:
        self._client = client
        self._key = key
        self._decide = decide
        self._decision: Decision | None = None
        self._confirmed = False

    @property
    def decision(self) -> Decision:
        if self._decision is None:
            raise RuntimeError("a placement is decided by entering it: `async with client.place(hint) as placement`")
        return self._decision

    @property
    def node(self) -> NodeAddress:
        return self.decision.node

    @property
    def reservation(self) -> Reservation:
        reservation = self.decision.reservation
        assert reservation is not None  # noqa: S101 - placements are made for hints, and every hint reserves
        return reservation

    async def confirm(self, sandbox_id: str) -> ReservationResult:
        """The sandbox exists: it is bound to the node, and leaving the block cancels nothing."""
        result = await self._client.confirm(self.reservation.reservation_id, sandbox_id)
        self._confirmed = True
        return result

    async def __aenter__(self) -> Placement:
        try:
            self._decision = await self._decide()
        except asyncio.CancelledError:
            # The schedule may have arrived all the same, or arrive later: its key takes it back either way.
            await _finish(self._give_back(self._client.cancel_by_key(self._key, "the caller left")))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._confirmed:
            return
        reason = "not confirmed" if kind is None else f"{kind.__name__} in the caller"
        await _finish(self._give_back(self._client.cancel(self.reservation.reservation_id, reason)))

    async def _give_back(self, cancel: Coroutine[Any, Any, object]) -> None:
        """A cancel that fails hides no error of the block: the reservation then ends by its deadline."""
        try:
            await cancel
        except SchedulerError as error:
            log.warning("a reservation was not cancelled", code=error.code, detail=error.detail)


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Awaits the work to its end even when this task is cancelled meanwhile; the cancellation then goes on."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
