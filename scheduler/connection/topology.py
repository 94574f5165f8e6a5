"""Finds the server that holds the ledger.

A domain is on exactly one server at a time: the one of the address, the primary that Sentinel names, or the primary
of the domain's slot in a cluster. `connections_for` returns the connections to it; after a failure that may mean a
move, `relocate` makes the next `connections_for` look it up again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from redis.asyncio import Sentinel
from redis.asyncio.sentinel import MasterNotFoundError
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, InvalidResponse, MovedError, RedisError, ResponseError

from scheduler.cancellation import end_tasks
from scheduler.connection.address import Address, Scheme
from scheduler.connection.exchange import connection_of, give_back, replies_to
from scheduler.connection.guard import ServerGuard
from scheduler.connection.options import StoreOptions
from scheduler.connection.servers import Host, ServerConnections, Servers, close_all

# At most one reconnection in this time, however many calls meet a read-only server.
_PACE_SECONDS = 0.1


class Topology(Protocol):
    def known(self, key: str | None) -> ServerConnections | None:
        """What `connections_for` returns, if that is known without asking anybody."""

    async def connections_for(self, key: str | None) -> ServerConnections:
        """Connections to the server that holds `key`; None: any server of the ledger."""

    async def relocate(self, key: str | None, error: BaseException, met: ServerConnections | None) -> bool:
        """A call over the connections `met` failed with `error`, so the ledger may have moved. False: already handled
        for another call."""

    async def close(self) -> None: ...


def open_topology(address: Address, options: StoreOptions, guard: ServerGuard) -> Topology:
    """Connects to nothing yet. `guard` checks every new connection."""
    if address.scheme is Scheme.EMBEDDED:
        from scheduler.connection.embedded import embedded_pool  # brings fakeredis, which takes long to import

        return FixedTopology(lambda: ServerConnections(embedded_pool(options.fake_server, options.pool_size)), options)
    servers = Servers(address, options, guard)
    if address.scheme is Scheme.SENTINEL:
        return SentinelTopology(address, servers)
    if address.scheme is Scheme.CLUSTER:
        return ClusterTopology(address, servers)
    if address.scheme is Scheme.UNIX:
        return FixedTopology(servers.unix, options)
    return FixedTopology(lambda: servers.new(address.hosts[0]), options)


class FixedTopology:
    """One address that never changes."""

    def __init__(self, connect: Callable[[], ServerConnections], options: StoreOptions) -> None:
        self._connect = connect
        self._now = connect()
        # As long as a call over old connections may still be in progress.
        self._patience = options.attempt_timeout_ms / 1000
        self._old: dict[ServerConnections, asyncio.Task[None]] = {}
        self._moved_at = -_PACE_SECONDS

    def known(self, key: str | None) -> ServerConnections | None:
        return self._now

    async def connections_for(self, key: str | None) -> ServerConnections:
        return self._now

    async def relocate(self, key: str | None, error: BaseException, met: ServerConnections | None) -> bool:
        """Another server may answer at the same address now: connect again. Calls in progress keep their
        connections."""
        now = asyncio.get_running_loop().time()
        if not isinstance(error, ResponseError) or met is not self._now or now < self._moved_at + _PACE_SECONDS:
            return False
        self._moved_at = now
        self._now = self._connect()
        self._old[met] = asyncio.create_task(self._close_later(met), name="closing connections to the former server")
        return True

    async def _close_later(self, former: ServerConnections) -> None:
        await asyncio.sleep(self._patience)
        with contextlib.suppress(RedisError, OSError, RuntimeError):
            await former.close()
        self._old.pop(former, None)

    async def close(self) -> None:
        old = dict(self._old)
        try:
            await end_tasks(old.values())
        finally:
            await close_all((self._now, *old))


class SentinelTopology:
    """The primary that a sentinel names; asked when first needed and after each failure."""

    def __init__(self, address: Address, servers: Servers) -> None:
        self._name = address.master_name
        self._servers = servers
        # The sentinel that answered last comes first, one that did not last.
        self._sentinels: list[Sentinel] = [
            Sentinel([host], sentinel_kwargs={"connection_pool": servers.to_sentinel(host)})  # type: ignore[no-untyped-call]
            for host in address.hosts
        ]
        self._primary: Host | None = None
        # Many calls meet a failure at once; one of them asks for all.
        self._asking = asyncio.Lock()

    def known(self, key: str | None) -> ServerConnections | None:
        return None if self._primary is None else self._servers.at(self._primary)

    async def connections_for(self, key: str | None) -> ServerConnections:
        primary = self._primary
        if primary is None:
            async with self._asking:
                primary = self._primary or await self._find()
                self._primary = primary
        return self._servers.at(primary)

    async def relocate(self, key: str | None, error: BaseException, met: ServerConnections | None) -> bool:
        if self._primary is None or met is not self._servers.at(self._primary):
            return False
        self._primary = None
        return True

    async def close(self) -> None:
        try:
            await self._servers.close()
        finally:
            clients = [client for sentinel in self._sentinels for client in sentinel.sentinels]
            await close_all([ServerConnections(client.connection_pool) for client in clients])

    async def _find(self) -> Host:
        """Ask the sentinels in turn; one that does not answer well within the connect timeout is skipped."""
        problems: list[str] = []
        for sentinel in tuple(self._sentinels):
            # Also when the time of this call ends while it is asked: the next one asks another first.
            self._sentinels.remove(sentinel)
            self._sentinels.append(sentinel)
            try:
                # Not the connections' own socket_timeout: redis-py implements that with asyncio.wait_for.
                async with asyncio.timeout(self._servers.connect_timeout):
                    host, port = await sentinel.discover_master(self._name)
            except (RedisError, OSError) as error:
                problems.append(str(error) or f"no answer within {self._servers.connect_timeout} s")
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return str(host), int(port)
        raise MasterNotFoundError("; ".join(problems))


class ClusterTopology:
    """The primary of each key's slot, as the cluster reports it.

    An ASK is not followed: it means that part of the slot is on another server, and a script needs all of it, so the
    call waits until the slot has moved completely."""

    def __init__(self, address: Address, servers: Servers) -> None:
        self._seeds = address.hosts
        self._servers = servers
        # All that may be asked: who answered last comes first, who did not, or named a primary that fails, last.
        self._asked: list[Host] = list(dict.fromkeys(address.hosts))
        self._primaries: dict[int, Host] = {}
        self._asking = asyncio.Lock()

    def known(self, key: str | None) -> ServerConnections | None:
        primary = None if key is None else self._primaries.get(key_slot(key.encode()))
        return None if primary is None else self._servers.at(primary)

    async def connections_for(self, key: str | None) -> ServerConnections:
        if key is None:
            return self._servers.at(next(iter(self._primaries.values()), self._seeds[0]))
        slot = key_slot(key.encode())
        primary = self._primaries.get(slot)
        if primary is None:
            async with self._asking:
                primary = self._primaries.get(slot) or await self._find(slot)
                self._primaries[slot] = primary
        return self._servers.at(primary)

    async def relocate(self, key: str | None, error: BaseException, met: ServerConnections | None) -> bool:
        if key is None:
            self._primaries.clear()
            return True
        slot = key_slot(key.encode())
        if isinstance(error, MovedError) and error.host:
            self._primaries[slot] = (error.host, error.port)
            return True
        primary = self._primaries.get(slot)
        if primary is None or met is not self._servers.at(primary):
            return False
        del self._primaries[slot]
        self._asked.append(self._asked.pop(0))
        return True

    async def close(self) -> None:
        await self._servers.close()

    async def _find(self, slot: int) -> Host:
        """Ask one server after the other; raises the last failure."""
        failure: Exception = ClusterDownError("CLUSTERDOWN Hash slot not served")
        for seed in tuple(dict.fromkeys((*self._asked, *self._servers.hosts))):
            # Also when the time of this call ends while it is asked: the next one asks another first.
            self._move(seed, len(self._asked))
            try:
                async with asyncio.timeout(self._servers.connect_timeout):
                    ranges = await self._ask(seed)
            except (RedisError, OSError) as error:
                failure = error
                continue
            for first, last, primary, *_ in ranges:
                if first <= slot <= last:
                    self._move(seed, 0)
                    # A server that does not know its own name answers an empty one: it is the server asked.
                    return (primary[0].decode() if primary[0] else seed[0], primary[1])
        raise failure

    def _move(self, host: Host, place: int) -> None:
        if host in self._asked:
            self._asked.remove(host)
        self._asked.insert(place, host)

    async def _ask(self, seed: Host) -> list[Any]:
        pool = self._servers.at(seed).pool
        connection = await connection_of(pool)
        try:
            (reply,) = await replies_to(connection, [("CLUSTER", "SLOTS")])
        finally:
            await give_back(pool, connection)
        if not isinstance(reply, list):
            raise InvalidResponse("CLUSTER SLOTS was not answered with a list")
        return reply
