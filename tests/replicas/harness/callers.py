"""Gateways: they place, then confirm, cancel or forget, and repeat what got no answer under the same key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.replicas.harness.fleet import Fleet
from tests.replicas.harness.history import Answer, History
from tests.replicas.harness.rig import Rig


@dataclass(frozen=True, slots=True)
class Workload:
    """What the callers do. Of the placed ones a share is confirmed, a share cancelled; the rest is left pending.

    `creates` None: until told to stop. `think_seconds`: the rest of a caller between two sandboxes.
    `patience_seconds`: how long a caller repeats one call."""

    clients: int = 8
    creates: int | None = None
    think_seconds: float = 0.03
    cpu_count: int = 1
    memory_mb: int = 512
    confirm_share: float = 0.5
    cancel_share: float = 0.2
    patience_seconds: float = 30.0
    timeout_seconds: float = 3.0
    pause_seconds: float = 0.05
    label: str = "key"


class Callers:
    """`run()` until the work is done, or `stop()` is called and what was begun is finished."""

    def __init__(self, rig: Rig, history: History, workload: Workload, fleet: Fleet | None = None) -> None:
        self.rig = rig
        self.history = history
        self.workload = workload
        self.fleet = fleet
        self.refused = 0
        self.given_up = 0
        self._stopping = False
        self._keys = self._numbered()

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> History:
        limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
        timeout = self.workload.timeout_seconds
        async with httpx.AsyncClient(trust_env=False, timeout=timeout, limits=limits) as client:
            await asyncio.gather(*(self._one(client) for _ in range(self.workload.clients)))
        return self.history

    def _numbered(self) -> Iterator[str]:
        number = 0
        while not self._stopping and (self.workload.creates is None or number < self.workload.creates):
            yield f"{self.workload.label}-{number}"
            number += 1

    async def _one(self, client: httpx.AsyncClient) -> None:
        work, chance = self.workload, self.rig.random
        for key in self._keys:
            if self._stopping:
                return
            fate = chance.random()
            placed = await self._place(client, key)
            if placed is None:
                continue
            if fate < work.confirm_share:
                sandbox_id = f"sandbox-{key}"
                if self.fleet is not None and self.fleet.living:
                    self.fleet.nodes[placed.node_id].create(sandbox_id, work.cpu_count, work.memory_mb)
                path, body = f"/v1/reservations/{placed.reservation_id}/confirm", {"sandbox_id": sandbox_id}
                await self._repeat(client, "confirm", key, path, body)
            elif fate < work.confirm_share + work.cancel_share:
                await self._repeat(client, "cancel", key, f"/v1/reservations/{placed.reservation_id}/cancel", {})
            await asyncio.sleep(work.think_seconds * chance.uniform(0, 2))

    async def _place(self, client: httpx.AsyncClient, key: str) -> Answer | None:
        hint = {"kind": "cold_sandbox", "cpu_count": self.workload.cpu_count, "memory_mb": self.workload.memory_mb}
        answer = await self._repeat(
            client, "schedule", key, "/v1/schedule", {"hint": hint}, headers={"Idempotency-Key": key}
        )
        if answer is None:
            return None
        self.refused += answer.code == "no_nodes"
        return answer if answer.acknowledged else None

    async def _repeat(
        self,
        client: httpx.AsyncClient,
        call: str,
        key: str,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> Answer | None:
        """Until an answer says yes or no; None when patience ends first. 503 and 504 are neither, except for
        those that waiting does not help."""
        gives_up_at = time.monotonic() + self.workload.patience_seconds
        while True:
            answer = await self._ask(client, call, key, path, body, headers)
            undecided = answer.status is None or (answer.status in (503, 504) and not self._final(answer))
            if not undecided:
                return answer
            if time.monotonic() > gives_up_at:
                self.given_up += 1
                return None
            await asyncio.sleep(self.workload.pause_seconds * self.rig.random.uniform(0.5, 1.5))

    def _final(self, answer: Answer) -> bool:
        """Nothing to wait for: the fleet is full, or the reservation was lost with its ledger."""
        return answer.code in ("not_rebuilt", "no_nodes") and answer.fault != "waiting"

    async def _ask(
        self,
        client: httpx.AsyncClient,
        call: str,
        key: str,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str] | None,
    ) -> Answer:
        url = self.rig.any_url()
        began = time.monotonic()
        answer = Answer(call, key, began, began, None, fault="no replica")
        if url is not None:
            try:
                response = await client.post(url + path, json=body, headers=headers)
                answer = read_answer(call, key, began, response)
            except httpx.HTTPError as error:
                answer = Answer(call, key, began, time.monotonic(), None, replica=url, fault=type(error).__name__)
        self.history.note(answer)
        return answer


def read_answer(call: str, key: str, began: float, response: httpx.Response) -> Answer:
    """What a replica told, as the history keeps it."""
    body = response.json()
    reservation = body.get("reservation") or {}
    # For nodes that have not reported since a loss, or for replicas that still put back what they remember.
    waiting = "not_ready" in body.get("reasons", {}) or "waits_ms_at_most" in body
    return Answer(
        call=call,
        key=key,
        began=began,
        ended=time.monotonic(),
        status=response.status_code,
        code=body.get("code", ""),
        reservation_id=reservation.get("reservation_id", ""),
        node_id=reservation.get("node_id", ""),
        state=reservation.get("state", ""),
        sandbox_id=reservation.get("sandbox_id") or "",
        replayed=body.get("replayed", False),
        degraded=body.get("degraded", False),
        orphaned=body.get("orphaned", False),
        replica=str(response.request.url.copy_with(path="/", query=None)),
        fault="waiting" if waiting else "",
    )


async def eventually(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait inside the event loop; the load goes on meanwhile."""
    gives_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < gives_up_at, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.02)
