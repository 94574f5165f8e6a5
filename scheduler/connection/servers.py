"""The connections to each server: a pool, whose connections carry one call at a time, and one that calls share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import Connection, ConnectionPool, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from scheduler.connection.address import Address, Credentials
from scheduler.connection.guard import ServerGuard
from scheduler.connection.options import StoreOptions
from scheduler.connection.password import login_arguments
from scheduler.connection.shared import SharedConnections
from scheduler.connection.tls import TlsConnection, TlsContext

Host = tuple[str, int]


class ServerConnections:
    """The connections to one server. `shared` is None where there is no socket to share: on the embedded ledger."""

    def __init__(self, pool: ConnectionPool, shared: SharedConnections | None = None) -> None:
        self.pool = pool
        self.shared = shared

    async def close(self) -> None:
        try:
            if self.shared is not None:
                await self.shared.close()
        finally:
            await self.pool.aclose()


class Servers:
    """The connections by host. The client limits the connections in use; a pool has room for those, and for one that is
    asked where the ledger is."""

    def __init__(self, address: Address, options: StoreOptions, guard: ServerGuard) -> None:
        self._address = address
        self._guard = guard
        self._tls = TlsContext(
            options.tls_ca_file,
            options.tls_cert_file,
            options.tls_key_file,
            check_hostname=options.tls_check_hostname,
        )
        self._password_file = options.password_file
        self._sentinel_password_file = options.sentinel_password_file
        self._patience = options.attempt_timeout_ms / 1000
        self.connect_timeout = options.connect_timeout_ms / 1000
        self._connections_max = options.pool_size + 1
        self._by_host: dict[Host, ServerConnections] = {}

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The servers connected to so far."""
        return tuple(self._by_host)

    def at(self, host: Host) -> ServerConnections:
        connections = self._by_host.get(host)
        if connections is None:
            connections = self._by_host[host] = self.new(host)
        return connections

    def new(self, host: Host) -> ServerConnections:
        """Connections that the caller closes."""
        arguments = self._to_server()
        return self._with_shared(host=host[0], port=host[1], **arguments)

    def unix(self) -> ServerConnections:
        arguments = {**self._to_server(), "connection_class": UnixDomainSocketConnection}
        return self._with_shared(path=self._address.path, **arguments)

    def to_sentinel(self, host: Host) -> ConnectionPool:
        """Connections to a sentinel; the caller closes them."""
        arguments = self._arguments(self._address.sentinel_credentials, self._sentinel_password_file)
        return ConnectionPool(host=host[0], port=host[1], **{**arguments, "db": 0})

    def _with_shared(self, **arguments: Any) -> ServerConnections:
        pool = ConnectionPool(
            max_connections=self._connections_max, redis_connect_func=self._guard.on_connect, **arguments
        )
        return ServerConnections(pool, SharedConnections(pool, self._patience, self._guard))

    def _to_server(self) -> dict[str, Any]:
        return self._arguments(self._address.credentials, self._password_file)

    def _arguments(self, credentials: Credentials, password_file: str | None) -> dict[str, Any]:
        """The arguments of every connection. Retries and time limits are the client's, which has the budget."""
        return {
            "connection_class": TlsConnection if self._address.tls else Connection,
            "db": self._address.database,
            **login_arguments(credentials, password_file),
            "socket_timeout": None,
            "socket_connect_timeout": self.connect_timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,
            **({"tls": self._tls} if self._address.tls else {}),
        }

    async def close(self) -> None:
        await close_all(tuple(self._by_host.values()))


async def close_all(connections: Sequence[ServerConnections]) -> None:
    """Leaves no connection open, even when the closing task is cancelled."""
    try:
        for each in connections:
            await each.close()
    except asyncio.CancelledError:
        for each in connections:
            if each.shared is not None:
                each.shared.abort()
            await each.pool.disconnect()
        raise
