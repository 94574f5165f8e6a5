"""Placing from many processes at once, each with its own pool and connection; forked, so that they start soon."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from scheduler import errors
from scheduler.domain.placement import ScheduleRequest
from scheduler.ledger.ledger import Ledger, open_ledger
from tests.support.patience import be_patient


@dataclass(frozen=True)
class Granted:
    """One acknowledged placement, as the process that asked for it was told."""

    reservation_id: str
    node_id: str


@dataclass(frozen=True)
class Task:
    """What one process does: place `requests` in turn, `at_once` in flight, round after round
    until one whole round is refused, or once when `until_full` is false."""

    redis_addr: str
    domain: str
    requests: tuple[ScheduleRequest, ...]
    at_once: int = 4
    until_full: bool = False


def place_from_processes(tasks: Sequence[Task]) -> list[Granted]:
    """Run every task in a process of its own, at the same time; all that was granted."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(len(tasks), mp_context=context) as processes:
        return [granted for answers in processes.map(_run, tasks) for granted in answers]


def _run(task: Task) -> list[Granted]:
    return asyncio.run(_place(task))


async def _place(task: Task) -> list[Granted]:
    be_patient()
    ledger = await open_ledger(task.redis_addr, domain=task.domain)
    granted: list[Granted] = []
    try:
        while True:
            before = len(granted)
            for start in range(0, len(task.requests), task.at_once):
                batch = task.requests[start : start + task.at_once]
                answers = await asyncio.gather(*(_place_one(ledger, request) for request in batch))
                granted += [answer for answer in answers if answer is not None]
            if not task.until_full or len(granted) == before:
                return granted
    finally:
        await ledger.close()


async def _place_one(ledger: Ledger, request: ScheduleRequest) -> Granted | None:
    try:
        decision = await ledger.placements.schedule(request)
    except errors.NoNodes:
        return None
    assert decision.reservation is not None
    return Granted(decision.reservation.reservation_id, decision.node.node_id)
