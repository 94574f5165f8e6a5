"""Placements that arrive in one turn of the event loop, sent as one call, or as a few.

Only how they are sent differs: each has its own id and is decided for itself (lua/schedule_sandboxes), and what is
kept here changes no outcome. Whoever gets no answer this way asks alone, in what is left of its own time: what is out
of the ordinary, all that a failed call carried, and all that a slow call still owes when their time is over.

As soon as half of the placements that are under way wait here, they are sent without waiting for the turn's end: the
ledger decides them while this replica reads the other half, and the two never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

from scheduler.connection.budget import Budget
from scheduler.connection.errors import script_is_unknown
from scheduler.connection.exchange import Argument
from scheduler.domain.placement import ScheduleRequest
from scheduler.errors import SchedulerError
from scheduler.ledger.runner import Runner

SCRIPT = "schedule_sandboxes"
SENT_AT_ONCE = 32
# Fewer wait for the end of their turn: a call for them alone costs more than waiting.
SENT_BEFORE_THE_TURN_ENDS = 8
# While the ledger decides nothing this way (another strategy, nodes with limits), nothing is sent this way.
OFF_SECONDS = 1.0
# Calls whose time ends so much earlier than that of others in their turn are watched one by one.
_SLACK_SECONDS = 0.01

Answer = tuple[str, list[Any]]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A placement that waits for others of its turn. `leaves`: the timer of one that waits shorter than they do."""

    arguments: Sequence[Argument]
    ends_at: float
    answer: asyncio.Future[Answer | None]
    leaves: asyncio.TimerHandle | None = None

    def settle(self, answer: Answer | None) -> None:
        if self.leaves is not None:
            self.leaves.cancel()
        if not self.answer.done():
            self.answer.set_result(answer)

    def leave(self) -> None:
        self.settle(None)


class SeveralPlacements:
    """One per replica. A placement that is alone in its turn is left to its caller, as long as turns are like that."""

    def __init__(self, runner: Runner) -> None:
        options = runner.client.options
        self._runner = runner
        self._attempt_ms = options.attempt_timeout_ms
        # Embedded there is no exchange to be saved; a durable write has a connection of its own to wait on.
        self.possible = not runner.client.embedded and not options.wait_replicas
        self.under_way = 0
        self._crowded = False
        self._off_until = 0.0
        self._turn: list[_Waiting] = []
        self._asking: set[asyncio.Task[None]] = set()

    def takes(self, request: ScheduleRequest) -> bool:
        """Whether the placement may go with others: others are there, and its request is ordinary."""
        if not self.possible or (self.under_way < 2 and not self._crowded):
            return False
        hint = request.hint
        return not (
            hint is None
            or request.exclude_nodes
            or request.sandbox_id is not None
            or not hint.cpu_count
            or not hint.memory_mb
            or hint.require
            or hint.resources
            or hint.spread is not None
            or asyncio.get_running_loop().time() < self._off_until
        )

    async def answer(self, arguments: Sequence[Argument], budget: Budget) -> Answer | None:
        """The status and the rest of the reply for one creation of lua/schedule_sandboxes; None: it is to ask alone."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(arguments, budget.ends_in(self._attempt_ms), loop.create_future())
        if not self._turn:
            # What is sent belongs to no one request: neither its deadline nor its log fields.
            loop.call_soon(self._end_turn, context=Context())
        self._turn.append(waiting)
        if len(self._turn) >= min(SENT_AT_ONCE, max(SENT_BEFORE_THE_TURN_ENDS, self.under_way / 2)):
            self._send(self._taken())
        return await waiting.answer

    def _taken(self) -> list[_Waiting]:
        """Those that wait for the turn's end, and have not been cancelled."""
        taken = [waiting for waiting in self._turn if not waiting.answer.done()]
        self._turn.clear()
        return taken

    def _end_turn(self) -> None:
        turn = self._taken()
        if turn:
            self._crowded = len(turn) > 1
        if len(turn) == 1:
            turn[0].leave()
        elif turn:
            self._send(turn)

    def _send(self, together: Sequence[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        ends_at = max(waiting.ends_at for waiting in together)
        for waiting in together:
            if waiting.ends_at < ends_at - _SLACK_SECONDS:
                waiting.leaves = loop.call_at(waiting.ends_at, waiting.leave, context=Context())
        reply = self._runner.send_at_once(SCRIPT, *_arguments_of(together), ends_at=ends_at)
        if reply is None:
            self._ask(together, ends_at)
        else:
            reply.add_done_callback(partial(self._receive, together, ends_at), context=Context())

    def _receive(self, together: Sequence[_Waiting], ends_at: float, replied: asyncio.Future[Any]) -> None:
        reply = replied.result()
        if script_is_unknown(reply):
            self._ask(together, ends_at)
            return
        try:
            if isinstance(reply, list):
                self._hand_out(together, reply[0].decode(), reply[1:])
        finally:
            _leave(together)  # whatever came, nobody waits for more

    def _ask(self, together: Sequence[_Waiting], ends_at: float) -> None:
        """Send them where a connection is to be opened, or the script to be loaded, first."""
        asking = asyncio.create_task(self._answers(together, ends_at), name="several placements", context=Context())
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _answers(self, together: Sequence[_Waiting], ends_at: float) -> None:
        try:
            budget = Budget((ends_at - asyncio.get_running_loop().time()) * 1000)
            status, replies = await self._runner.run(SCRIPT, *_arguments_of(together), budget=budget, once=True)
            self._hand_out(together, status, replies)
        except SchedulerError:
            pass  # whoever asks alone is told of what lasts
        finally:
            _leave(together)

    def _hand_out(self, together: Sequence[_Waiting], status: str, replies: Sequence[Any]) -> None:
        decided = replies if status == "several" else [[b"alone"]] * len(together)
        if status in ("several", "alone") and all(reply[0] == b"alone" for reply in decided):
            self._off_until = asyncio.get_running_loop().time() + OFF_SECONDS
        for waiting, reply in zip(together, decided, strict=True):
            waiting.settle(None if reply[0] == b"alone" else (reply[0].decode(), reply[1:]))


def _arguments_of(together: Sequence[_Waiting]) -> list[Argument]:
    return [argument for waiting in together for argument in waiting.arguments]


def _leave(together: Sequence[_Waiting]) -> None:
    for waiting in together:
        waiting.leave()
