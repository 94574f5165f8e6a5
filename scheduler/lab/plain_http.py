"""HTTP/1.1 with as little as a benchmark's caller needs: one connection, one call at a time, JSON both ways.

A full client costs several times what a replica spends on a call, so that a benchmark would measure its own caller."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from scheduler.errors import SchedulerError


class PlainHttp:
    """`async with PlainHttp(url) as http: status, body = await http.post(path, value)`"""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def post(self, path: str, value: Any, headers: str = "") -> tuple[int, Any]:
        """The status and the answer. `headers`: further ones, each ended by a line break. Raises SchedulerError when
        the connection ends or the answer has no length."""
        body = json.dumps(value, separators=(",", ":")).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n{headers}"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            answered = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            _, found, rest = answered.partition("\r\ncontent-length:")
            if not found:
                raise SchedulerError("an answer without a length", code="unanswered")
            content = await self._reader.readexactly(int(rest.partition("\r\n")[0]))
        except (OSError, EOFError) as failure:
            raise SchedulerError(f"no answer: {failure}", code="unanswered") from failure
        return int(answered.split(" ", 2)[1]), json.loads(content) if content else None
