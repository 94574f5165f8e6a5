"""That calls meet the server they were meant for.

A server that was started anew, or another one that took over, may lack the last of what the ledger told. Once a
replica has agreed with one (`trust`), every new connection first hears which server process is at its other end,
and calls that meet another are held back, not answered from a ledger that may have gaps, until the replica has
looked at what is there and trusts that one. Who never trusts any server, such as a tool, is never held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoPermissionError

from scheduler.store.server import ServerIdentity, parse_info

_looking: ContextVar[bool] = ContextVar("looking_at_another_server", default=False)


class AnotherServer(Exception):
    """The connection leads to another server process than the one agreed with."""


class ServerGuard:
    """One client's idea of the right server. `distrusted` is set by whoever was held back."""

    def __init__(self) -> None:
        self._trusted = ServerIdentity()
        self.distrusted = asyncio.Event()

    def trust(self, server: ServerIdentity) -> None:
        """From now on this server is the right one."""
        self._trusted = server
        self.distrusted.clear()

    def doubt(self) -> None:
        """A reply said that the ledger is not the one agreed with: look at once."""
        self.distrusted.set()

    def reassure(self) -> None:
        """The ledger was looked at, and is the one agreed with."""
        self.distrusted.clear()

    async def introduce(self, connection: AbstractConnection) -> None:
        """How every connection to a real server begins: log in, then hear which process it is."""
        await connection.on_connect()
        if self._trusted.run_id is None:
            return
        info: dict[str, str] = {}
        for section in ("server", "replication"):
            await connection.send_command("INFO", section)
            try:
                info |= parse_info(await connection.read_response())
            except NoPermissionError:
                return  # whoever trusts needs INFO as well, and says so in full
        connection.server = ServerIdentity.of(info)  # type: ignore[attr-defined]  # read by `check` alone

    def check(self, connection: AbstractConnection) -> None:
        """Raises AnotherServer unless the connection leads to the trusted process, or `looking` is in force."""
        server: ServerIdentity | None = getattr(connection, "server", None)
        if server is None or self._trusted.run_id is None or server.is_same(self._trusted) or _looking.get():
            return
        self.distrusted.set()
        raise AnotherServer

    @contextmanager
    def looking(self) -> Iterator[None]:
        """For the one who looks: calls of this block pass, whichever server they meet."""
        token = _looking.set(True)
        try:
            yield
        finally:
            _looking.reset(token)
