"""One connection to a server that all ordinary calls share.

Commands of one turn of the event loop leave in one write, unless `flush` is called earlier. The server answers the
commands of a connection in their order, so every command that was written has its place in `_owed`, and keeps it when
its call is cancelled or its time is over: its reply is dropped when it comes, and never reaches another call. Nothing
is sent for a call that ended before its turn. When the connection is lost, every call that waits fails with the reason.

One timer watches all calls. A reply that is owed for longer than one attempt may take makes the connection
suspect: calls that wait keep it until they end, others get a new one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool, DefaultParser
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import DataError, InvalidResponse, RedisError

from scheduler.cancellation import end_tasks, heed_cancellation
from scheduler.connection.exchange import Command
from scheduler.connection.guard import ServerGuard, server_of
from scheduler.connection.server import ServerIdentity

Reply = asyncio.Future[Any]

_INCOMPLETE: Final = object()


def pack(command: Command) -> bytes:
    """The command as it is sent. Raises DataError for an argument of another type."""
    try:
        packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub means one item
    except TypeError as error:
        raise DataError(str(error)) from error
    return packed


class SharedConnection(asyncio.Protocol):
    """Takes a connection over that redis-py has opened and logged in. `patience`: seconds that a reply may be owed.

    `server` is the process at the other end, if it was asked."""

    def __init__(self, connection: AbstractConnection, patience: float) -> None:
        self.server: ServerIdentity | None = server_of(connection)
        self._retired = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._paused = False
        self._outbox: list[tuple[bytes, Reply, float]] = []
        # In the order of their commands: call, end of its time, when the reply is overdue.
        self._owed: deque[tuple[Reply, float, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._watch_at = math.inf
        self._reason: Exception | None = None
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_INCOMPLETE
        )
        # redis-py has no other way to the transport. The writer is kept: when it is deleted it closes the transport.
        self._writer = connection._writer  # noqa: SLF001
        assert self._writer is not None, "not connected"  # noqa: S101 - a mistake of ours
        connection._reader = connection._writer = None  # noqa: SLF001
        self._transport: asyncio.WriteTransport = self._writer.transport
        self._transport.set_protocol(self)
        if self._transport.get_extra_info("ssl_object") is None:
            # What is written leaves at once; uvloop would keep it until its own turn ends. Not over TLS, which takes an
            # empty buffer for a full one then, and pauses writing until the server sends something.
            self._transport.set_write_buffer_limits(0)

    @property
    def usable(self) -> bool:
        """False: no new call may be sent."""
        return not self._retired and not self._transport.is_closing()

    def ask(self, packed: bytes, ends_at: float) -> Reply:
        """The reply to one packed command. An error, TimeoutError after `ends_at` among them, is a value too."""
        reply = self._loop.create_future()
        if self._transport.is_closing():
            reply.set_result(_like(self._reason))
            return reply
        if not self._outbox:
            self._loop.call_soon(self.flush)
        self._outbox.append((packed, reply, ends_at))
        if ends_at < self._watch_at:
            self._watch_from(ends_at)
        return reply

    def retire(self) -> None:
        """Send no more calls; close the connection as soon as nobody waits for a reply."""
        self._retired = True
        self._watch()

    def close(self, reason: Exception | None = None) -> None:
        """Close the connection at once; every call that waits gets the reason."""
        self._retired = True
        self._reason = self._reason or reason
        self._transport.abort()
        self._end_all()

    # -- what the transport calls --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        reader, owed = self._reader, self._owed
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not _INCOMPLETE:
                if not owed:
                    unasked = "the server answered what nobody had asked"
                    self.close(answer if isinstance(answer, RedisError) else Disconnected(unasked))
                    return
                reply = owed.popleft()[0]
                if not reply.done():
                    reply.set_result(answer)
        except RedisError as error:  # no reply can be told from the next any more
            self.close(error)
        if self._retired:
            self._watch()

    def eof_received(self) -> None:
        """The server answers no more. The transport by itself would first send what waits, however long that takes."""
        self.close(Disconnected("the server closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        self._retired = True
        self._reason = self._reason or error
        self._end_all()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    # -- sending and watching ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what waits for the turn's end."""
        if self._paused or self._transport.is_closing():
            return
        packed, overdue_at = [], self._loop.time() + self._patience
        for command, reply, ends_at in self._outbox:
            if not reply.done():
                packed.append(command)
                self._owed.append((reply, ends_at, overdue_at))
        self._outbox.clear()
        if packed:
            self._transport.write(b"".join(packed))

    def _watch_from(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._watch_at = when
        self._timer = self._loop.call_at(when, self._watch)

    def _watch(self) -> None:
        """End the calls whose time is over, and look again when the next one's is."""
        if self.closed.done():
            return
        now, earliest = self._loop.time(), math.inf
        self._outbox[:] = [entry for entry in self._outbox if not entry[1].done()]
        for reply, ends_at in [(reply, ends_at) for _, reply, ends_at in self._outbox] + [
            (reply, ends_at) for reply, ends_at, _ in self._owed
        ]:
            if reply.done():
                continue
            if ends_at <= now:
                reply.set_result(TimeoutError())
            else:
                earliest = min(earliest, ends_at)
        if self._owed and self._owed[0][2] <= now:
            self._retired = True
        elif self._owed and not self._retired:
            earliest = min(earliest, self._owed[0][2])
        if earliest < math.inf:
            self._watch_from(earliest)
            return
        self._watch_at = math.inf
        if self._retired:
            self.close()

    def _end_all(self) -> None:
        """Each call gets an error of its own: what is raised in several tasks collects all their frames."""
        if self._timer is not None:
            self._timer.cancel()
        for reply in [reply for reply, _, _ in self._owed] + [reply for _, reply, _ in self._outbox]:
            if not reply.done():
                reply.set_result(_like(self._reason))
        self._owed.clear()
        self._outbox.clear()


def _like(reason: Exception | None) -> Exception:
    if not isinstance(reason, RedisError | OSError):
        return Disconnected("the connection was closed")
    own = type(reason)(*reason.args)
    own.__cause__ = reason
    return own


class SharedConnections:
    """The shared connection of one server, made anew when it is lost.

    The connection belongs to no call: one that is cancelled while it waits for the connection takes it from nobody."""

    def __init__(self, pool: ConnectionPool, patience: float, guard: ServerGuard) -> None:
        self._pool = pool
        self._patience = patience
        self._guard = guard
        self._all: set[SharedConnection] = set()
        self._current: SharedConnection | None = None
        self._connecting: asyncio.Task[SharedConnection] | None = None

    @property
    def current(self) -> SharedConnection | None:
        """The connection, if there is one that may be used."""
        current = self._current
        if current is None or not current.usable:
            return None
        if self._guard.is_unasked(current.server):
            current.retire()
            return None
        return current

    async def connected(self, ends_at: float) -> SharedConnection:
        """The connection, opened if need be. Raises TimeoutError after `ends_at`, or why it cannot be opened."""
        current = self.current
        if current is not None:
            return current
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="connecting to the ledger")
            # Its callers may all have gone when it fails.
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with asyncio.timeout_at(ends_at):
            await asyncio.wait([connecting := self._connecting])
        if connecting.cancelled():
            raise Disconnected("the connections were closed")  # nobody cancelled the call
        return connecting.result()

    async def close(self) -> None:
        """Leaves no connection open, even when the closing task is cancelled."""
        opened = self.abort()
        try:
            if self._connecting is not None:
                await end_tasks([self._connecting])
        finally:
            opened |= self.abort()
        for connection in opened:
            await asyncio.shield(connection.closed)

    def abort(self) -> set[SharedConnection]:
        """The connections that are closed now, in the next turns of the loop."""
        opened = set(self._all)
        for connection in opened:
            connection.close()
        if self._connecting is not None:
            self._connecting.cancel()
        return opened

    async def _connect(self) -> SharedConnection:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            with heed_cancellation():
                async with asyncio.timeout(self._patience):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    if await connection.can_read():
                        await connection.read_response()  # raises what a server says that takes no more clients
                        raise Disconnected("the server spoke before it was asked")
            shared = SharedConnection(connection, self._patience)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            self._connecting = None
        self._all.add(shared)
        shared.closed.add_done_callback(lambda _: self._all.discard(shared))
        self._current = shared
        return shared
