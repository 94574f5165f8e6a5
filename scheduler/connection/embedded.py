"""The embedded ledger: fakeredis with a Lua 5.1 interpreter, for a first run and for tests.

Commands run on the event loop one after the other, so a script is as atomic as on a server, and nothing else of the
process runs meanwhile (about a millisecond). Before each call other tasks get a turn, so that a busy replica still
answers health checks; a call cancelled in that turn sends nothing. The data ends with the process and is not shared
with another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from fakeredis import FakeRedis, FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection
from redis.asyncio.connection import ConnectionPool

VERSION = (7, 0)
# Scripts between two full collections of the interpreter's garbage.
_COLLECT_EVERY = 500
_COLLECT = "collectgarbage()"

_shared: list[FakeServer] = []


def new_server() -> FakeServer:
    """An empty server; pass it to several clients (`StoreOptions.fake_server`) to share it."""
    return FakeServer(version=VERSION, server_type="redis")


def shared_server() -> FakeServer:
    """The server shared by all clients of this process that name no other."""
    if not _shared:
        _shared.append(new_server())
    return _shared[0]


def embedded_pool(server: FakeServer | None, size: int) -> ConnectionPool:
    """At most `size` connections to `server`, or to the one this process shares."""
    server = server or shared_server()
    _compile_once(server)
    return ConnectionPool(
        max_connections=size,
        connection_class=EmbeddedConnection,
        # Without a timeout redis-py does not use asyncio.wait_for, which may lose a cancellation.
        socket_timeout=None,
        server=server,
        version=server.version,
        server_type=server.server_type,
        protocol=2,
    )


class EmbeddedConnection(FakeAsyncRedisConnection):
    """A connection to a server in this process, which yields to the event loop once per write."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        # Neither writing nor reading ever waits here: without this, calls in a row would let no other task run.
        await asyncio.sleep(0)
        await super().send_packed_command(command, check_health)


def _compile_once(server: FakeServer) -> None:
    """Cache compiled scripts. fakeredis compiles the text for every call and then collects all garbage, which takes
    most of a short script's time; it has no setting for this, so its interpreter is wrapped. Without the wrapped
    attribute it is only slower."""
    if not isinstance(getattr(server, "_lua_runtime", None), _CompilingRuntime):
        # The interpreter is made with the first script.
        FakeRedis(server=server, version=server.version).eval("return 1", 0)
        if hasattr(server, "_lua_runtime"):
            server._lua_runtime = _CompilingRuntime(server._lua_runtime)  # noqa: SLF001 - see above


class _CompilingRuntime:
    """A Lua interpreter whose `execute` compiles each text once; everything else is unchanged."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes, Callable[[], Any]] = {}
        self._since_collection = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def __len__(self) -> int:
        """How many texts are kept compiled."""
        return len(self._compiled)

    def execute(self, text: bytes | str) -> Any:
        if text == _COLLECT:
            self._since_collection += 1
            if self._since_collection < _COLLECT_EVERY:
                return None
            self._since_collection = 0
            return self._runtime.execute(text)
        code = text.encode() if isinstance(text, str) else text
        compiled = self._compiled.get(code)
        if compiled is None:
            compiled = self._compiled[code] = self._runtime.compile(code)
        return compiled()
