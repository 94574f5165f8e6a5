"""The connections of one HTTP port: counted, at most so many, and taken in one at a time.

A connection is *working* while a request of it is being answered, and *waiting* otherwise: silent, in the middle of
a head, kept alive, or not through its TLS handshake. At the limit the connection that has waited longest makes way
for the new one, so that a health check always gets in, however many silent connections there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.errors import Overloaded
from scheduler.observability.logging import get_logger
from scheduler.replica.problems import raw_problem

log = get_logger(__name__)

_SECONDS_BETWEEN_WARNINGS = 10.0
_SECONDS_UNTIL_NEXT_TRY = 0.05
# As many as the system keeps waiting for us (the backlog), so that a flood does not keep a replica from leaving.
_WAITING_AT_THE_END_MAX = 2048
_SECONDS_FOR_THE_LAST_HANDSHAKES = 0.25


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one caller may cost before anything of its request is looked at.

    `head_bytes_max`: request line and headers, and again the trailers of a body. `head_seconds`: from connecting, or
    from the first byte after an answer, until the head is whole; also for a peer that takes nothing of its answer.
    `idle_seconds`: how long a connection is kept between two requests."""

    connections_max: int = 1024
    head_bytes_max: int = 16 * 1024
    headers_max: int = 100
    head_seconds: float = 10.0
    idle_seconds: float = 75.0


class Connection(asyncio.Protocol):
    """One of them. `accepted`: its socket, which belongs to the transport as soon as there is one."""

    transport: asyncio.Transport
    accepted: socket.socket | None = None

    def abort(self) -> None:
        """Let go of the socket at once, whatever is under way."""
        transport: asyncio.Transport | None = self.transport  # uvicorn's are None until connected
        if transport is not None:
            transport.abort()
        elif self.accepted is not None:
            # In its TLS handshake: the end of the stream ends that, and the event loop lets go of the socket.
            with contextlib.suppress(OSError):
                self.accepted.shutdown(socket.SHUT_RDWR)


class Connections:
    """Those that are open, the waiting ones in the order in which they began to wait."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)
        self._waiting.setdefault(connection)

    def works(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """From now on, and so behind all others that wait."""
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def make_way(self) -> bool:
        """Close the one that has waited longest. False: none waits."""
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self.lost(longest)
        longest.abort()
        return True

    def has_way(self) -> bool:
        """Whether one more may be let in, another closed for it where needed."""
        return len(self._open) < self.most or self.make_way()


class Entrance:
    """Takes connections in from a listening socket and hands each to a `Connection` of its own.

    The event loop's own servers accept all that are waiting in one go and ask nobody, which a flood turns into a
    process without descriptors; here it is one in each turn of the loop, when `connections` has a place for it.
    `tls` may be replaced: it is for those that come from then on."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        make_connection: Callable[[], Connection],
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self._listening = listening
        self._connections = connections
        self._make_connection = make_connection
        self.tls = tls
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._openings: dict[asyncio.Task[None], Connection] = {}
        self._next_try: asyncio.TimerHandle | None = None
        self._warned_at = float("-inf")

    def open(self) -> None:
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._take_one)

    async def close(self) -> None:
        """Nothing new, but for those that have knocked already; handshakes that go on for longer are broken off."""
        if self._next_try is not None:
            self._next_try.cancel()
        self._loop.remove_reader(self._listening)
        for _ in range(_WAITING_AT_THE_END_MAX):
            if not self._take_one():
                break
        self._listening.close()
        if self._openings:
            await asyncio.wait(self._openings, timeout=_SECONDS_FOR_THE_LAST_HANDSHAKES)
        for connection in self._openings.values():
            connection.abort()
        await asyncio.gather(*self._openings)

    def _take_one(self) -> bool:
        """False: nobody was let in."""
        try:
            sock, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            # No descriptors left: whoever has waited longest gives one back before the next try.
            self._warn("a connection could not be accepted", error=error.strerror)
            self._connections.make_way()
            self._loop.remove_reader(self._listening)
            self._next_try = self._loop.call_later(_SECONDS_UNTIL_NEXT_TRY, self.open)
            return False
        if len(self._connections) >= self._connections.most:
            self._warn("as many connections as are allowed are open", connections_max=self._connections.most)
        if not self._connections.has_way():
            _turn_away(sock, with_words=self.tls is None)
            return False
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._make_connection()
        connection.accepted = sock
        self._connections.opened(connection)
        opening = self._loop.create_task(self._hand_over(sock, connection))
        self._openings[opening] = connection
        opening.add_done_callback(self._openings.pop)
        return True

    async def _hand_over(self, sock: socket.socket, connection: Connection) -> None:
        patience: dict[str, float] = {}
        if self.tls is not None:
            patience = dict.fromkeys(("ssl_handshake_timeout", "ssl_shutdown_timeout"), self._limits.head_seconds)
        try:
            await self._loop.connect_accepted_socket(lambda: connection, sock, ssl=self.tls, **patience)
        except (OSError, ssl.SSLError) as error:
            log.debug("a connection ended before it began", error=str(error))
            self._connections.lost(connection)

    def _warn(self, event: str, **fields: object) -> None:
        if self._loop.time() - self._warned_at >= _SECONDS_BETWEEN_WARNINGS:
            self._warned_at = self._loop.time()
            log.warning(event, open=len(self._connections), **fields)


def _turn_away(sock: socket.socket, *, with_words: bool) -> None:
    """Every connection is busy with a request: 503, and what has arrived is read so that the answer is not lost."""
    with sock, contextlib.suppress(OSError):
        sock.setblocking(False)
        if with_words:
            sock.send(raw_problem(Overloaded("every connection is busy; this one was not taken in")))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(65_536)
