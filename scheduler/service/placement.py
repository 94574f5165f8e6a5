"""Placement: one request, one decision by the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.placement import BatchDecision, BatchRequest, Decision, Explanation, ScheduleRequest
from scheduler.errors import Conflict, NoNodes, SchedulerError
from scheduler.observability.call_log import CallLog
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics, status_label
from scheduler.service.decisions import DecisionService
from scheduler.service.requests import clean_batch_request, clean_schedule_request

if TYPE_CHECKING:
    from scheduler.ledger.placements import PlacementStore

log = get_logger("scheduler.placement")


class PlacementService:
    """Chooses a node for a request and, for a creation, reserves on it."""

    def __init__(self, store: PlacementStore, metrics: Metrics, calls: CallLog, decisions: DecisionService) -> None:
        self._store = store
        self._decisions = decisions
        self._metrics = metrics
        self._calls = calls
        # A refusal does not name its strategy, so the metrics use the last answer's.
        self._strategy = "unknown"

    async def schedule(self, request: ScheduleRequest) -> Decision:
        """The decision; the same one for a repeated key of the same caller.

        Raises NoNodes with reasons, Conflict with the recorded reservation, Overloaded."""
        request = clean_schedule_request(request)
        clock = asyncio.get_running_loop().time
        started = clock()
        status = status_label(None)
        try:
            with self._metrics.ledger_call("schedule"):
                decision = await self._store.schedule(request)
            self._strategy = decision.strategy.value
        except (SchedulerError, asyncio.CancelledError) as error:
            status = status_label(error)
            self._note_refusal(request, error)
            raise
        finally:
            self._metrics.observe_schedule(self._strategy, status, clock() - started)
        self._note_decision(decision)
        self._decisions.note_placed(request, decision)
        return decision

    async def schedule_batch(self, batch: BatchRequest) -> BatchDecision:
        """The decision on every creation, made in one step; the same one for a repeated key of the same caller.

        Raises NoNodes when all or none were wanted, Conflict, Overloaded."""
        batch = clean_batch_request(batch)
        clock = asyncio.get_running_loop().time
        started = clock()
        status = status_label(None)
        try:
            with self._metrics.ledger_call("schedule_batch"):
                decision = await self._store.schedule_batch(batch)
            self._strategy = decision.strategy.value
        except (SchedulerError, asyncio.CancelledError) as error:
            status = status_label(error)
            self._note_refusal(batch.requests[0], error)
            raise
        finally:
            self._metrics.observe_schedule(self._strategy, status, clock() - started)
        self._note_batch(decision, batch)
        return decision

    async def explain(
        self, request: ScheduleRequest, limit: int | None = None, after: str | None = None
    ) -> Explanation:
        """Rank or refusal reason of every node for this request; nothing is reserved and no cursor moves.

        `limit`: at most so many nodes, in id order, those after the id `after`; a rank still is that among all."""
        request = clean_schedule_request(request)
        with self._metrics.ledger_call("explain"):
            found = await self._store.explain(request)
        return found if limit is None else _page_of(found, limit, after or "")

    def _note_decision(self, decision: Decision) -> None:
        self._metrics.count_assignment(decision.strategy.value)
        if decision.replayed:
            self._metrics.count_replay("schedule")
        if decision.degraded:
            self._metrics.count_degraded()
            self._calls.warning(log, "placed on a node that is not fresh", node_id=decision.node.node_id)
        reservation = decision.reservation
        if reservation is not None:
            self._calls.info(
                log,
                "placed",
                node_id=decision.node.node_id,
                reservation_id=reservation.reservation_id,
                sandbox_id=reservation.sandbox_id,
                replayed=decision.replayed,
            )

    def _note_batch(self, decision: BatchDecision, batch: BatchRequest) -> None:
        self._decisions.note_batch(batch, decision)
        if decision.replayed:
            self._metrics.count_replay("schedule_batch")
        for placed in decision.placed:
            self._metrics.count_assignment(decision.strategy.value)
            if placed.degraded:
                self._metrics.count_degraded()
        for refused in decision.refused:
            self._metrics.count_refusal(NoNodes(sum(refused.reasons.values()), refused.reasons))
        self._calls.info(
            log,
            "placed a batch",
            placed=len(decision.placed),
            refused=len(decision.refused),
            caller=batch.requests[0].caller,
        )

    def _note_refusal(self, request: ScheduleRequest, error: BaseException) -> None:
        if isinstance(error, NoNodes):
            self._metrics.count_refusal(error)
            self._decisions.note_refused(request, error)
            self._calls.info(log, "refused", candidates=error.candidates, reasons=error.reasons, caller=request.caller)
        elif isinstance(error, Conflict):
            self._metrics.count_conflict("schedule")


def _page_of(found: Explanation, limit: int, after: str) -> Explanation:
    left = [node for node in found.nodes if node.node_id.encode() > after.encode()]
    page = tuple(left[:limit])
    return replace(found, nodes=page, cursor=page[-1].node_id if len(left) > limit else None)
