"""`grpc.health.v1.Health`: whether this port answers and, under the name `readiness`, whether the replica is ready.

The empty name and `scheduler.v1.Scheduler` are SERVING from the start, as AgentENV's are, whatever the ledger does.
`readiness` is SERVING while `/readyz` answers 200.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from scheduler.deadline import within
from scheduler.errors import SchedulerError

READINESS = "readiness"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# How often readiness is checked for watchers, however many there are.
_WATCH_SECONDS = 1.0
_CHECK_SECONDS = 5.0


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # it ships no annotations
    """`check_readiness` raises a SchedulerError while this replica is not ready."""

    def __init__(self, check_readiness: Callable[[], Awaitable[object]], watch_seconds: float = _WATCH_SECONDS) -> None:
        super().__init__()
        self._check_readiness = check_readiness
        self._watch_seconds = watch_seconds
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    async def serve(self, *names: str) -> None:
        """Report these names as SERVING from now on; `readiness` is checked for each request."""
        for name in names:
            await self.set(name, _SERVING)
        await self.set(READINESS, _NOT_SERVING)

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        if request.service == READINESS:
            remaining: float | None = context.time_remaining()
            await self._look(_CHECK_SECONDS if remaining is None else min(remaining, _CHECK_SECONDS))
        return await super().Check(request, context)

    async def Watch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:  # noqa: N802
        if request.service != READINESS:
            await super().Watch(request, context)
            return
        sent = None
        while True:
            async with self._looking:
                if asyncio.get_running_loop().time() - self._looked_at >= self._watch_seconds:
                    await self._look(_CHECK_SECONDS)
            status = self._server_status[READINESS]
            if status != sent:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                sent = status
            await asyncio.sleep(self._watch_seconds)

    async def _look(self, seconds: float) -> None:
        with within(seconds):
            try:
                await self._check_readiness()
                status = _SERVING
            except SchedulerError:
                status = _NOT_SERVING
        self._looked_at = asyncio.get_running_loop().time()
        await self.set(READINESS, status)
