"""The ledger inside the process: fakeredis with a Lua 5.1 interpreter, for a first run and for tests.

Commands run at once, on the event loop, one after the other: a script is as atomic as on a server. Nothing
survives the process, and nothing is shared with another.
"""

from __future__ import annotations

from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection
from redis.asyncio.connection import ConnectionPool

VERSION = (7, 0)

_shared: list[FakeServer] = []


def new_server() -> FakeServer:
    """An empty server of its own; hand it to several clients (`StoreOptions.fake_server`) to share it."""
    return FakeServer(version=VERSION, server_type="redis")


def shared_server() -> FakeServer:
    """The server all clients of this process share that ask for no other."""
    if not _shared:
        _shared.append(new_server())
    return _shared[0]


def embedded_pool(server: FakeServer | None) -> ConnectionPool:
    """Connections to `server`, or to the one this process shares."""
    return ConnectionPool(
        connection_class=FakeAsyncRedisConnection,
        server=server or shared_server(),
        version=VERSION,
        server_type="redis",
        protocol=2,
    )
