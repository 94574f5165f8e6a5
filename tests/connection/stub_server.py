"""A server that speaks just enough RESP to say what a test wants to hear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.relay import begin_what_was_accepted

# One command in, the raw reply out; None: say nothing. Several stubs answer the n-th command differently.
Answer = Callable[[list[bytes]], bytes | None]


def bulk(text: str) -> bytes:
    encoded = text.encode()
    return b"$%d\r\n%s\r\n" % (len(encoded), encoded)


def info(**fields: str) -> bytes:
    return bulk("".join(f"{name}:{value}\r\n" for name, value in fields.items()))


class StubServer:
    """Answers every command with `answer(command)`, on a loopback port of its own."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.commands: list[list[bytes]] = []

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await begin_what_was_accepted()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (command := await _read_command(reader)) is not None:
                self.commands.append(command)
                reply = self._answer(command)
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


async def _read_command(reader: asyncio.StreamReader) -> list[bytes] | None:
    head = await reader.readline()
    if not head:
        return None
    parts = []
    for _ in range(int(head[1:])):
        length = int((await reader.readline())[1:])
        parts.append((await reader.readexactly(length + 2))[:-2])
    return parts
