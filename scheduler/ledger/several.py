"""Placements that arrive in one turn of the event loop, sent as one call.

Only how they are sent differs: each has its own id and is decided for itself (lua/schedule_sandboxes), and what is
kept here changes no outcome. Whoever gets no answer this way asks alone, in what is left of its own time: what is out
of the ordinary, all that a failed call carried, and all that a slow call still owes when their time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from scheduler.connection.budget import Budget
from scheduler.connection.exchange import Argument
from scheduler.domain.placement import ScheduleRequest
from scheduler.errors import SchedulerError
from scheduler.ledger.runner import Runner

SENT_AT_ONCE = 32
# While the ledger decides nothing this way (another strategy, nodes with limits), nothing is sent this way.
OFF_SECONDS = 1.0
# Calls whose time ends so much earlier than that of others in their turn are watched one by one.
_SLACK_SECONDS = 0.01

Answer = tuple[str, list[Any]]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A placement that waits for others of its turn."""

    arguments: Sequence[Argument]
    ends_at: float
    answer: asyncio.Future[Answer | None]

    def leave(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


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
        self._sending: set[asyncio.Task[None]] = set()

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
            loop.call_soon(self._send_turn, context=Context())
        self._turn.append(waiting)
        return await waiting.answer

    def _send_turn(self) -> None:
        turn = [waiting for waiting in self._turn if not waiting.answer.done()]
        self._turn.clear()
        self._crowded = len(turn) > 1
        for first in range(0, len(turn), SENT_AT_ONCE):
            together = turn[first : first + SENT_AT_ONCE]
            if len(together) == 1:
                together[0].leave()
                continue
            sending = asyncio.create_task(self._send(together), name="several placements")
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, together: Sequence[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        ends_at = max(waiting.ends_at for waiting in together)
        timers = [
            loop.call_at(waiting.ends_at, waiting.leave)
            for waiting in together
            if waiting.ends_at < ends_at - _SLACK_SECONDS
        ]
        try:
            budget = Budget((ends_at - loop.time()) * 1000)
            arguments = [argument for waiting in together for argument in waiting.arguments]
            status, replies = await self._runner.run("schedule_sandboxes", *arguments, budget=budget, once=True)
            decided = replies if status == "several" else [[b"alone"]] * len(together)
            if all(reply[0] == b"alone" for reply in decided):
                self._off_until = loop.time() + OFF_SECONDS
            for waiting, reply in zip(together, decided, strict=True):
                if reply[0] != b"alone" and not waiting.answer.done():
                    waiting.answer.set_result((reply[0].decode(), reply[1:]))
        except SchedulerError:
            pass  # whoever asks alone is told of what lasts
        finally:
            for timer in timers:
                timer.cancel()
            for waiting in together:
                waiting.leave()
