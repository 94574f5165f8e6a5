"""A TCP relay that tests put before a server to cut, hold or lose what passes.

It speaks no protocol: it forwards bytes, and a test says when to stop doing so.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536


async def begin_what_was_accepted() -> None:
    """Let a server that was closed hand the connections it has accepted to their tasks, which takes asyncio a few turns
    of the loop: one that never began would leave its socket open."""
    for _ in range(10):
        await asyncio.sleep(0)


class Relay:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`upstream_port` inside the running event loop.

    `down()` refuses and closes everything, `up()` recovers. `drop_replies(n)` lets the next
    n requests reach the server and cuts the connection instead of handing back the reply: the
    server has committed, the caller does not know. `drop_requests(n)` cuts before the server hears of
    it, `tear_replies(n)` in the middle of the reply. `delay_seconds` slows every chunk down; `hold()`
    forwards nothing and closes nothing, as a peer does that vanished from the network, until `release()`.
    """

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._down = False
        self._replies_to_drop = 0
        self._replies_to_tear = 0
        self._requests_to_drop = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.delay_seconds = 0.0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def down(self) -> None:
        """From now on connections are accepted only to be closed at once."""
        self._down = True
        self.cut()

    def up(self) -> None:
        self._down = False

    def cut(self) -> None:
        """Close every connection there is; new ones work."""
        for writer in list(self._writers):
            writer.transport.abort()

    def drop_replies(self, count: int = 1) -> None:
        self._replies_to_drop = count

    def drop_requests(self, count: int = 1) -> None:
        self._requests_to_drop = count

    def tear_replies(self, count: int = 1) -> None:
        self._replies_to_tear = count

    def hold(self) -> None:
        """From now on nothing passes and nothing is closed."""
        self._flowing.clear()

    def release(self) -> None:
        """What was held passes now."""
        self._flowing.set()

    @property
    def faults_left(self) -> int:
        """Of those asked for, how many have not happened yet."""
        return self._replies_to_drop + self._replies_to_tear + self._requests_to_drop

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await begin_what_was_accepted()
            self.down()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if not self._down:
                await self._forward_both_ways(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # Either side went away, or the test is over: both ends are closed below.
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        self._writers.add(upstream_writer)
        requests = asyncio.create_task(self._requests(reader, upstream_writer))
        replies = asyncio.create_task(self._replies(upstream_reader, writer))
        try:
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (requests, replies):
                task.cancel()
                with suppress(OSError, asyncio.CancelledError):
                    await task
            self._writers.discard(upstream_writer)
            upstream_writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self._requests_to_drop > 0:
                self._requests_to_drop -= 1
                return
            await self._pass()
            writer.write(chunk)
            await writer.drain()

    async def _pass(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        await self._flowing.wait()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self._replies_to_drop > 0:
                self._replies_to_drop -= 1
                return
            await self._pass()
            if self._replies_to_tear > 0:
                self._replies_to_tear -= 1
                writer.write(chunk[: len(chunk) // 2])
                await writer.drain()
                return
            writer.write(chunk)
            await writer.drain()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
