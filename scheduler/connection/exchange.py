"""Sends commands over one connection and reads their replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from scheduler.connection.errors import TooFewReplicas

Argument = str | int | float | bytes
Command = Sequence[Argument]

# Redis checks ten times a second whether a WAIT is over.
_WAIT_SLACK_MS = 150


async def connection_of(pool: ConnectionPool) -> AbstractConnection:
    """A connected connection; give it back with `give_back`."""
    connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]
    return connection


async def give_back(pool: ConnectionPool, connection: AbstractConnection) -> None:
    """Return the connection to its pool. Errors while closing it are suppressed: the reply, or the first error,
    stands."""
    with contextlib.suppress(RedisError, OSError, RuntimeError):
        await pool.release(connection)


async def replies_to(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    """All commands in one write, all replies read; then raises the first error among them."""
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
        # redis-py and asyncio raise these when the transport was closed meanwhile.
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
    """Wait until `wanted` replicas have every write that preceded the last reply on `connection`.

    WAIT covers the last write of its own connection, and a replayed call writes nothing although its answer must be
    durable too. So a write that changes nothing is sent before it."""
    left_ms = ((limit.when() or 0) - asyncio.get_running_loop().time()) * 1000
    # The server's timeout ends before this attempt's, so that it can answer how many replicas confirmed.
    wait_ms = max(1, int(left_ms - min(_WAIT_SLACK_MS, left_ms / 2)))
    _, reached = await replies_to(connection, [("HSET", rotations_key, "fence", 1), ("WAIT", wanted, wait_ms)])
    if reached < wanted:
        raise TooFewReplicas(wanted)
