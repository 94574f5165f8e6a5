"""Limits how many messages are received at once, and how long one may take.

gRPC buffers a message while it arrives, so a call's message is requested only after its caller is allowed; until
then the caller can send no more than its flow-control window, 64 KiB. At most `messages_max` are received at once,
and a large one keeps its slot until its call ends. One that takes longer than `hurried_seconds` is refused when
others wait, so a caller that trickles bytes blocks nobody for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from scheduler.errors import DeadlineExceeded, Malformed, Overloaded

# A message up to this size gives its slot back as soon as it has arrived.
SMALL_BYTES_MAX = 64 * 1024


class Intake:
    """The slots of one port."""

    def __init__(self, messages_max: int = 32, patience_seconds: float = 10.0, hurried_seconds: float = 1.0) -> None:
        self._places = asyncio.Semaphore(messages_max)
        self._patience = patience_seconds
        self._hurried = hurried_seconds
        self._arriving: dict[asyncio.Timeout, float] = {}
        self._waiting = 0

    @asynccontextmanager
    async def message(self, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        """The message of a call, for as long as the block runs.

        Raises Overloaded when it was refused in favour of waiting calls, DeadlineExceeded when it took too long,
        Malformed without a message. A message larger than the port allows ends the call inside grpc."""
        await self._take_place()
        held = True
        try:
            frame = await self._receive(context)
            if len(frame) <= SMALL_BYTES_MAX:
                self._places.release()
                held = False
            yield frame
        finally:
            if held:
                self._places.release()

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        self._waiting += 1
        try:
            for timeout in list(self._arriving):
                self._hurry(timeout)
            await self._places.acquire()
        finally:
            self._waiting -= 1

    async def _receive(self, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._patience) as timeout:
                self._arriving[timeout] = now
                try:
                    if self._waiting:
                        self._hurry(timeout)
                    frame = await context.read()
                finally:
                    del self._arriving[timeout]
        except TimeoutError:
            if asyncio.get_running_loop().time() - now >= self._patience:
                raise DeadlineExceeded("the message did not arrive in time") from None
            raise Overloaded("the message arrived too slowly while others waited; ask again") from None
        if not isinstance(frame, bytes):
            raise Malformed("the call carries no message")
        return frame

    def _hurry(self, timeout: asyncio.Timeout) -> None:
        if not timeout.expired():
            ends_at = self._arriving[timeout] + self._hurried
            before = timeout.when()
            if before is None or ends_at < before:
                timeout.reschedule(max(ends_at, asyncio.get_running_loop().time()))
