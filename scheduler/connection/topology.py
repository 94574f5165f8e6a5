"""Finds the server that holds the ledger.

A domain is on exactly one server at a time: the one of the address, the primary that Sentinel names, or the primary
of the domain's slot in a cluster. `pool_for` returns connections to it; after a failure that may mean a move,
`relocate` makes the next `pool_for` look it up again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from redis import exceptions as redis_errors
from redis.asyncio import Sentinel
from redis.asyncio.connection import (
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, InvalidResponse, MovedError, RedisError, ResponseError

from scheduler.cancellation import end_tasks
from scheduler.connection.address import Address, Credentials, Scheme
from scheduler.connection.exchange import connection_of, give_back, replies_to
from scheduler.connection.guard import ServerGuard
from scheduler.connection.options import StoreOptions
from scheduler.connection.password import login_arguments

Host = tuple[str, int]

# At most one reconnection in this time, however many calls meet a read-only server.
_PACE_SECONDS = 0.1


class Topology(Protocol):
    async def pool_for(self, key: str | None) -> ConnectionPool:
        """Connections to the server that holds `key`; None: any server of the ledger."""

    async def relocate(self, key: str | None, error: BaseException, met: ConnectionPool | None) -> bool:
        """A call over the pool `met` failed with `error`, so the ledger may have moved. False: already handled for
        another call."""

    async def close(self) -> None: ...


def open_topology(address: Address, options: StoreOptions, guard: ServerGuard) -> Topology:
    """Connects to nothing yet. `guard` checks every new connection."""
    if address.scheme is Scheme.EMBEDDED:
        from scheduler.connection.embedded import embedded_pool  # brings fakeredis, which takes long to import

        return FixedTopology(lambda: embedded_pool(options.fake_server), options)
    pools = Pools(address, options, guard)
    if address.scheme is Scheme.SENTINEL:
        return SentinelTopology(address, pools)
    if address.scheme is Scheme.CLUSTER:
        return ClusterTopology(address, pools)
    if address.scheme is Scheme.UNIX:
        return FixedTopology(pools.unix, options)
    return FixedTopology(lambda: pools.new(address.hosts[0]), options)


class Pools:
    """One connection pool per server. The client, not the pool, limits the connections in use."""

    def __init__(self, address: Address, options: StoreOptions, guard: ServerGuard) -> None:
        self._address = address
        self._guard = guard
        self._tls = {
            "ssl_ca_certs": options.tls_ca_file,
            "ssl_certfile": options.tls_cert_file,
            "ssl_keyfile": options.tls_key_file,
            "ssl_check_hostname": options.tls_check_hostname,
        }
        self._password_file = options.password_file
        self._sentinel_password_file = options.sentinel_password_file
        self.connect_timeout = options.connect_timeout_ms / 1000
        self._by_host: dict[Host, ConnectionPool] = {}

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The servers connected to so far."""
        return tuple(self._by_host)

    def at(self, host: Host) -> ConnectionPool:
        pool = self._by_host.get(host)
        if pool is None:
            pool = self._by_host[host] = self.new(host)
        return pool

    def new(self, host: Host) -> ConnectionPool:
        """A pool that the caller closes."""
        arguments = self._to_server()
        return ConnectionPool(host=host[0], port=host[1], redis_connect_func=self._guard.on_connect, **arguments)

    def unix(self) -> ConnectionPool:
        arguments = {**self._to_server(), "connection_class": UnixDomainSocketConnection}
        return ConnectionPool(path=self._address.path, redis_connect_func=self._guard.on_connect, **arguments)

    def to_sentinel(self) -> dict[str, Any]:
        return self._arguments(self._address.sentinel_credentials, self._sentinel_password_file)

    def _to_server(self) -> dict[str, Any]:
        return self._arguments(self._address.credentials, self._password_file)

    def _arguments(self, credentials: Credentials, password_file: str | None) -> dict[str, Any]:
        """The arguments of every connection. Retries and time limits are the client's, which has the budget."""
        return {
            "connection_class": SSLConnection if self._address.tls else Connection,
            "db": self._address.database,
            **login_arguments(credentials, password_file),
            "socket_timeout": None,
            "socket_connect_timeout": self.connect_timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,
            **(self._tls if self._address.tls else {}),
        }

    async def close(self) -> None:
        await close_pools(tuple(self._by_host.values()))


async def close_pools(pools: Sequence[ConnectionPool]) -> None:
    """Leaves no connection open, even when the closing task is cancelled."""
    try:
        for pool in pools:
            await pool.aclose()
    except asyncio.CancelledError:
        for pool in pools:
            await pool.disconnect()
        raise


class FixedTopology:
    """One address that never changes."""

    def __init__(self, make_pool: Callable[[], ConnectionPool], options: StoreOptions) -> None:
        self._make_pool = make_pool
        self._pool = make_pool()
        # As long as a call over an old pool may still be in progress.
        self._patience = options.attempt_timeout_ms / 1000
        self._old: dict[ConnectionPool, asyncio.Task[None]] = {}
        self._moved_at = -_PACE_SECONDS

    async def pool_for(self, key: str | None) -> ConnectionPool:
        return self._pool

    async def relocate(self, key: str | None, error: BaseException, met: ConnectionPool | None) -> bool:
        """Another server may answer at the same address now: connect again. Calls in progress keep their
        connections."""
        now = asyncio.get_running_loop().time()
        if not isinstance(error, ResponseError) or met is not self._pool or now < self._moved_at + _PACE_SECONDS:
            return False
        self._moved_at = now
        self._pool = self._make_pool()
        self._old[met] = asyncio.create_task(self._close_later(met), name="closing connections to the former server")
        return True

    async def _close_later(self, pool: ConnectionPool) -> None:
        await asyncio.sleep(self._patience)
        with contextlib.suppress(RedisError, OSError, RuntimeError):
            await pool.aclose()
        self._old.pop(pool, None)

    async def close(self) -> None:
        old = dict(self._old)
        try:
            await end_tasks(old.values())
        finally:
            await close_pools((self._pool, *old))


class SentinelTopology:
    """The primary that a sentinel names; asked when first needed and after each failure."""

    def __init__(self, address: Address, pools: Pools) -> None:
        self._name = address.master_name
        self._pools = pools
        arguments = pools.to_sentinel()
        arguments.pop("connection_class")
        arguments["db"] = 0
        arguments["ssl"] = address.tls
        # The sentinel that answered last comes first.
        self._sentinels: list[Sentinel] = [
            Sentinel([host], sentinel_kwargs=arguments)  # type: ignore[no-untyped-call]
            for host in address.hosts
        ]
        self._primary: Host | None = None
        # Many calls meet a failure at once; one of them asks for all.
        self._asking = asyncio.Lock()

    async def pool_for(self, key: str | None) -> ConnectionPool:
        primary = self._primary
        if primary is None:
            async with self._asking:
                primary = self._primary or await self._find()
                self._primary = primary
        return self._pools.at(primary)

    async def relocate(self, key: str | None, error: BaseException, met: ConnectionPool | None) -> bool:
        if self._primary is None or (met is not None and met is not self._pools.at(self._primary)):
            return False
        self._primary = None
        return True

    async def close(self) -> None:
        try:
            await self._pools.close()
        finally:
            clients = [client for sentinel in self._sentinels for client in sentinel.sentinels]
            await close_pools([client.connection_pool for client in clients])

    async def _find(self) -> Host:
        """Ask the sentinels in turn; one that does not answer within the connect timeout is skipped."""
        problems: list[str] = []
        for sentinel in tuple(self._sentinels):
            try:
                # Not the connections' own socket_timeout: redis-py implements that with asyncio.wait_for.
                async with asyncio.timeout(self._pools.connect_timeout):
                    host, port = await sentinel.discover_master(self._name)
            except (redis_errors.ConnectionError, redis_errors.TimeoutError, TimeoutError) as error:
                problems.append(str(error) or f"no answer within {self._pools.connect_timeout} s")
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return str(host), int(port)
        raise MasterNotFoundError("; ".join(problems))


class ClusterTopology:
    """The primary of each key's slot, as the cluster reports it.

    An ASK is not followed: it means that part of the slot is on another server, and a script needs all of it, so the
    call waits until the slot has moved completely."""

    def __init__(self, address: Address, pools: Pools) -> None:
        self._seeds = address.hosts
        self._pools = pools
        self._primaries: dict[int, Host] = {}
        self._asking = asyncio.Lock()

    async def pool_for(self, key: str | None) -> ConnectionPool:
        if key is None:
            return self._pools.at(next(iter(self._primaries.values()), self._seeds[0]))
        slot = key_slot(key.encode())
        primary = self._primaries.get(slot)
        if primary is None:
            async with self._asking:
                primary = self._primaries.get(slot) or await self._find(slot)
                self._primaries[slot] = primary
        return self._pools.at(primary)

    async def relocate(self, key: str | None, error: BaseException, met: ConnectionPool | None) -> bool:
        if key is None:
            self._primaries.clear()
            return True
        slot = key_slot(key.encode())
        if isinstance(error, MovedError) and error.host:
            self._primaries[slot] = (error.host, error.port)
            return True
        primary = self._primaries.get(slot)
        if primary is None or (met is not None and met is not self._pools.at(primary)):
            return False
        del self._primaries[slot]
        return True

    async def close(self) -> None:
        await self._pools.close()

    async def _find(self, slot: int) -> Host:
        """Ask one server after the other, the configured ones first; raises the last failure."""
        failure: Exception = ClusterDownError("CLUSTERDOWN Hash slot not served")
        for seed in dict.fromkeys((*self._seeds, *self._pools.hosts)):
            try:
                async with asyncio.timeout(self._pools.connect_timeout):
                    ranges = await self._ask(seed)
            except (RedisError, OSError) as error:
                failure = error
                continue
            for first, last, primary, *_ in ranges:
                if first <= slot <= last:
                    # A server that does not know its own name answers an empty one: it is the server asked.
                    return (primary[0].decode() if primary[0] else seed[0], primary[1])
        raise failure

    async def _ask(self, seed: Host) -> list[Any]:
        pool = self._pools.at(seed)
        connection = await connection_of(pool)
        try:
            (reply,) = await replies_to(connection, [("CLUSTER", "SLOTS")])
        finally:
            await give_back(pool, connection)
        if not isinstance(reply, list):
            raise InvalidResponse("CLUSTER SLOTS was not answered with a list")
        return reply
