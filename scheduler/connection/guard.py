"""Reject calls that reach a different Redis process than the one this replica verified.

A server that was restarted, or one that took over, may lack the latest writes. Once a replica has accepted a server,
every new connection first asks which process is at its other end, and calls over a connection to any other process
fail and are retried until the replica has checked that server and accepted it. A client that never accepts a server,
such as a tool, is never held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoPermissionError

from scheduler.connection.server import ServerIdentity, parse_info

_verifying: ContextVar[bool] = ContextVar("verifying_a_server", default=False)


def server_of(connection: AbstractConnection) -> ServerIdentity | None:
    """The process the connection leads to, if it was asked when it was opened."""
    server: ServerIdentity | None = getattr(connection, "server", None)
    return server


class UnverifiedServer(Exception):
    """The connection leads to another server process than the accepted one."""


class ServerGuard:
    """Which server process one client has accepted. `check_requested` asks the replica to check the server now."""

    def __init__(self) -> None:
        self._accepted = ServerIdentity()
        self.check_requested = asyncio.Event()

    def accept(self, server: ServerIdentity) -> None:
        """From now on only calls to this server pass."""
        self._accepted = server
        self.check_requested.clear()

    def request_check(self) -> None:
        """A reply showed that the ledger may be another one than before."""
        self.check_requested.set()

    def check_passed(self) -> None:
        """The ledger is still the accepted one."""
        self.check_requested.clear()

    async def on_connect(self, connection: AbstractConnection) -> None:
        """Log in, and note which process the connection leads to. Called for every connection to a real server."""
        await connection.on_connect()
        if self._accepted.run_id is None:
            return
        info: dict[str, str] = {}
        for section in ("server", "replication"):
            await connection.send_command("INFO", section)
            try:
                info |= parse_info(await connection.read_response())
            except NoPermissionError:
                # A replica needs INFO to accept a server, and reports the missing permission there.
                info = {}
                break
        connection.server = ServerIdentity.of(info)  # type: ignore[attr-defined]  # read by `server_of` alone

    def is_unasked(self, server: ServerIdentity | None) -> bool:
        """Whether a connection to `server` was opened before a server was accepted, so that nobody asked it which
        process it leads to."""
        return server is None and self._accepted.run_id is not None

    def check(self, server: ServerIdentity | None) -> None:
        """Raises UnverifiedServer unless `server`, to which a connection leads, is the accepted process, or inside of
        `verifying`."""
        accepted = self._accepted
        if server is None or server.run_id is None or accepted.run_id is None:
            return  # not asked, or not told
        if server.is_same(accepted) or _verifying.get():
            return
        self.check_requested.set()
        raise UnverifiedServer

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """Calls inside the block reach any server: this is how a replica checks one it has not accepted."""
        token = _verifying.set(True)
        try:
            yield
        finally:
            _verifying.reset(token)
