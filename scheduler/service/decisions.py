"""The last decisions, kept in the ledger for people who ask why.

They are written after the answer, some at a time, and at most once: no outcome depends on them, and no placement waits
for them. What does not fit the queue while the ledger is slow is dropped, and counted (`decisions_dropped`)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scheduler.domain.journal import DecisionQuery, Entry
from scheduler.domain.placement import BatchDecision, BatchRequest, Decision, Hint, HintKind, ScheduleRequest
from scheduler.errors import DeadlineExceeded, NoNodes, SchedulerError
from scheduler.ledger.journals import Journal
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import refusal_reason

if TYPE_CHECKING:
    from scheduler.ledger.journals import JournalStore

log = get_logger("scheduler.decisions")

QUEUE_MAX = 1_000
WRITTEN_AT_ONCE = 200
OFF_SECONDS = 10.0
_METADATA_SHOWN = 16
_TEXT_SHOWN = 200
_VALUES_SHOWN = 8


class DecisionService:
    """Queues decisions and writes them. `due` is set while some wait."""

    def __init__(
        self, journals: JournalStore, *, logged: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._journals = journals
        self._logged = logged
        self._clock = clock
        self._queue: deque[tuple[float, dict[str, Any]]] = deque()
        self._dropped = 0
        self._off_until = 0.0
        self.due = asyncio.Event()

    def note_placed(self, request: ScheduleRequest, decision: Decision) -> None:
        """A placement of a sandbox; routing without a hint and repeated answers are no news."""
        reservation = decision.reservation
        if reservation is not None and not decision.replayed:
            self._note(
                request,
                {
                    "outcome": "placed",
                    "node_id": decision.node.node_id,
                    "reservation_id": reservation.reservation_id,
                    "strategy": decision.strategy.value,
                    "degraded": decision.degraded,
                },
            )

    def note_batch(self, batch: BatchRequest, decision: BatchDecision) -> None:
        """Note each creation of a batch by itself."""
        if decision.replayed:
            return
        for placed in decision.placed:
            single = Decision(placed.node, decision.strategy, degraded=placed.degraded, reservation=placed.reservation)
            self.note_placed(batch.requests[placed.index], single)
        for refused in decision.refused:
            reasons = dict(refused.reasons)
            exceeded = None if refused.over_limit is None else asdict(refused.over_limit)
            self.note_refused(batch.requests[refused.index], NoNodes(sum(reasons.values()), reasons, exceeded))

    def note_refused(self, request: ScheduleRequest, error: NoNodes) -> None:
        told = {"outcome": "refused", "reason": refusal_reason(error), "reasons": dict(error.reasons)}
        self._note(request, told | {"over_limit": error.facts.get("over_limit")})

    async def flush(self) -> None:
        """Write what waits. Raises SchedulerError, and what was being written is lost then."""
        self.due.clear()
        while self._queue:
            count = min(WRITTEN_AT_ONCE, len(self._queue))
            taken = [self._queue.popleft() for _ in range(count)]
            now, dropped = self._clock(), self._dropped
            self._dropped = 0
            entries = [(max(0, round(1000 * (now - at))), facts) for at, facts in taken]
            try:
                kept = await self._journals.append(Journal.DECISIONS, entries, dropped)
            except DeadlineExceeded:  # it had passed already, and nothing was sent
                self._queue.extendleft(reversed(taken))
                self._dropped += dropped
                raise
            except SchedulerError:
                self._dropped += dropped + count
                raise
            if kept == 0:
                self._off_until = now + OFF_SECONDS
                self._queue.clear()

    async def page(self, query: DecisionQuery, limit: int, cursor: str | None) -> tuple[tuple[Entry, ...], str | None]:
        """Newest first; other replicas' decisions of the last moment may still be missing."""
        await self.flush()
        return await self._journals.page(Journal.DECISIONS, limit, cursor, query.wants)

    def _note(self, request: ScheduleRequest, facts: dict[str, Any]) -> None:
        facts |= {"hint": _shown(request.hint), "caller": request.caller, "request_id": request.request_id}
        if self._logged:
            log.info("decision", **facts)
        now = self._clock()
        if now < self._off_until:
            return
        if len(self._queue) >= QUEUE_MAX:
            self._queue.popleft()
            self._dropped += 1
        self._queue.append((now, facts))
        self.due.set()


def _shown(hint: Hint | None) -> dict[str, Any] | None:
    """The hint, cut to a size that a thousand of may be kept."""
    if hint is None:
        return None
    shown: dict[str, Any] = {"kind": hint.kind.value, "metadata": _some(hint.metadata)}
    if hint.require:
        shown["require"] = {label: list(values[:_VALUES_SHOWN]) for label, values in hint.require.items()}
    if hint.resources:
        shown["resources"] = dict(hint.resources)
    if hint.spread is not None:
        shown["spread"] = {name: value for name, value in asdict(hint.spread).items() if value is not None}
    if hint.kind is HintKind.SANDBOX:
        return shown | {"template_id": hint.template_id[:_TEXT_SHOWN]}
    images = [image[:_TEXT_SHOWN] for image in hint.images[:4]]
    return shown | {"cpu_count": hint.cpu_count, "memory_mb": hint.memory_mb, "images": images}


def _some(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name[:_TEXT_SHOWN]: value[:_TEXT_SHOWN] for name, value in list(metadata.items())[:_METADATA_SHOWN]}
