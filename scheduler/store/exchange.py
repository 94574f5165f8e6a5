"""One connection, some commands, their replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from scheduler.store.errors import TooFewReplicas

Argument = str | int | float | bytes
Command = Sequence[Argument]

# Redis looks ten times a second whether a WAIT is over.
_WAIT_SLACK_MS = 150


async def connection_of(pool: ConnectionPool) -> AbstractConnection:
    """A connected connection; give it back with `give_back`."""
    connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]
    return connection


async def give_back(pool: ConnectionPool, connection: AbstractConnection) -> None:
    """Errors of closing it never escape: what was answered stands, and what failed has its own error."""
    with contextlib.suppress(RedisError, OSError, RuntimeError):
        await pool.release(connection)


async def replies_to(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    """All commands in one write, all replies read; then raises what the first bad one says."""
    replies: list[Any] = []
    try:
        await connection.send_packed_command(connection.pack_commands(commands))
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except RedisError as error:
                if not connection.is_connected:
                    raise
                replies.append(error)
    except (RuntimeError, AttributeError) as error:
        # What the libraries below raise for a transport that was closed under them.
        if connection.is_connected:
            raise
        raise Disconnected("the connection was closed while it was in use") from error
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply
    return replies


async def wait_for_replicas(
    connection: AbstractConnection, wanted: int, rotations_key: str, limit: asyncio.Timeout
) -> None:
    """Until `wanted` replicas have all that the server had written when `connection` last heard from it.

    WAIT looks at the last write of its own connection, and a replay writes nothing although what it tells must be
    safe as well. So a write that changes nothing goes before it."""
    left_ms = ((limit.when() or 0) - asyncio.get_running_loop().time()) * 1000
    # The server gives up before this attempt does, and tells how many replicas it was.
    wait_ms = max(1, int(left_ms - min(_WAIT_SLACK_MS, left_ms / 2)))
    _, reached = await replies_to(connection, [("HSET", rotations_key, "fence", 1), ("WAIT", wanted, wait_ms)])
    if reached < wanted:
        raise TooFewReplicas(wanted)
