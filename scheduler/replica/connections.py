"""The connections of one HTTP port: counted, limited in number, and accepted one at a time.

A connection is *busy* while one of its requests is being answered, and *idle* otherwise: silent, sending a head,
kept alive, or in its TLS handshake. At the limit the connection that has been idle longest is closed for the new
one, so a health check always gets a connection.
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
# The length of the system's backlog: a flood must not keep a replica from stopping.
_ACCEPTED_AT_STOP_MAX = 2048
_SECONDS_FOR_THE_LAST_HANDSHAKES = 0.25


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may cost before its request is handled.

    `head_bytes_max`: for the request line and headers together, and again for the trailers of a body.
    `head_seconds`: from connecting, or from the first byte after an answer, until the head is complete; also for a
    peer that does not read its answer. `idle_seconds`: how long a connection is kept open between two requests."""

    connections_max: int = 1024
    head_bytes_max: int = 16 * 1024
    headers_max: int = 100
    head_seconds: float = 10.0
    idle_seconds: float = 75.0


class Connection(asyncio.Protocol):
    """One connection. `accepted`: its socket, until the transport owns it."""

    transport: asyncio.Transport
    accepted: socket.socket | None = None

    def abort(self) -> None:
        """Close the socket at once, whatever is in progress."""
        transport: asyncio.Transport | None = self.transport  # uvicorn's are None until connected
        if transport is not None:
            transport.abort()
        elif self.accepted is not None:
            # In its TLS handshake, which ends with the stream; the event loop then closes the socket.
            with contextlib.suppress(OSError):
                self.accepted.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections of one port; the idle ones in the order in which they became idle."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)
        self._idle.setdefault(connection)

    def mark_busy(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Idle from now on, so last in the order of idle connections."""
        if connection in self._open:
            self._idle.pop(connection, None)
            self._idle[connection] = None

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def close_longest_idle(self) -> bool:
        """Close the connection that has been idle longest. False: none is idle."""
        longest = next(iter(self._idle), None)
        if longest is None:
            return False
        self.lost(longest)
        longest.abort()
        return True

    def has_capacity(self) -> bool:
        """Whether one more connection fits; closes the longest idle one when needed."""
        return len(self._open) < self.most or self.close_longest_idle()


class Acceptor:
    """Accepts connections from a listening socket, one in each turn of the event loop, and only while `connections`
    has capacity.

    asyncio's own servers accept every waiting connection at once, so a flood would exhaust the descriptors. Setting
    `tls` replaces the certificates for later connections."""

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
        self._loop.add_reader(self._listening, self._accept_one)

    async def close(self) -> None:
        """Accept only connections already in the backlog; handshakes that take too long are aborted."""
        if self._next_try is not None:
            self._next_try.cancel()
        self._loop.remove_reader(self._listening)
        for _ in range(_ACCEPTED_AT_STOP_MAX):
            if not self._accept_one():
                break
        self._listening.close()
        if self._openings:
            await asyncio.wait(self._openings, timeout=_SECONDS_FOR_THE_LAST_HANDSHAKES)
        for connection in self._openings.values():
            connection.abort()
        await asyncio.gather(*self._openings)

    def _accept_one(self) -> bool:
        """Accept one connection. False: none was accepted."""
        try:
            sock, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            # No descriptors left: close the longest idle connection before the next try.
            self._warn("a connection could not be accepted", error=error.strerror)
            self._connections.close_longest_idle()
            self._loop.remove_reader(self._listening)
            self._next_try = self._loop.call_later(_SECONDS_UNTIL_NEXT_TRY, self.open)
            return False
        if len(self._connections) >= self._connections.most:
            self._warn("the limit of open connections is reached", connections_max=self._connections.most)
        if not self._connections.has_capacity():
            _refuse(sock, with_answer=self.tls is None)
            return False
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._make_connection()
        connection.accepted = sock
        self._connections.opened(connection)
        opening = self._loop.create_task(self._connect(sock, connection))
        self._openings[opening] = connection
        opening.add_done_callback(self._openings.pop)
        return True

    async def _connect(self, sock: socket.socket, connection: Connection) -> None:
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


def _refuse(sock: socket.socket, *, with_answer: bool) -> None:
    """Answer 503, because every connection is busy, and read what has arrived so that the answer is not lost."""
    with sock, contextlib.suppress(OSError):
        sock.setblocking(False)
        if with_answer:
            sock.send(raw_problem(Overloaded("every connection is busy; this one was not accepted")))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(65_536)
