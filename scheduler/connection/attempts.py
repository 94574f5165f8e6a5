"""Makes attempts of a call until one is answered: over the connection that calls share, or over one of the pool.

Only one script that may be repeated goes over the shared connection. Whatever is more than one command, holds its
connection up (WAIT), or must not be repeated when others' connection is lost has one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError

from scheduler.cancellation import heed_cancellation
from scheduler.connection.address import Address
from scheduler.connection.budget import Budget
from scheduler.connection.errors import ClientClosed, TooFewReplicas, judge
from scheduler.connection.exchange import Command, connection_of, give_back, replies_to, wait_for_replicas
from scheduler.connection.guard import ServerGuard, UnverifiedServer, server_of
from scheduler.connection.keys import Keys
from scheduler.connection.options import StoreOptions
from scheduler.connection.scripts import Script
from scheduler.connection.servers import ServerConnections
from scheduler.connection.shared import Reply, SharedConnection, SharedConnections, pack
from scheduler.connection.topology import Topology
from scheduler.errors import CommandsWithheld, SchedulerError, StoreUnavailable, WritesRefused


@dataclass(slots=True)
class StoreStatistics:
    """Counts since the client was created, for the metrics."""

    attempts: int = 0
    retries: int = 0
    scripts_reloaded: int = 0
    relocations: int = 0
    backlog_slices: int = 0
    failures: int = 0
    connections_in_use: int = 0
    waiting_for_connection: int = 0
    sharing_connection: int = 0


@dataclass(slots=True)
class Refusals:
    """The last refusals of the server. While `withheld` is set, no script runs before its commands are allowed."""

    withheld: CommandsWithheld | None = None
    writes_refused: WritesRefused | None = None

    def note(self, error: SchedulerError) -> None:
        if isinstance(error, CommandsWithheld):
            self.withheld = error
        elif isinstance(error, WritesRefused):
            self.writes_refused = error


@dataclass(slots=True)
class Call:
    """What one attempt sends. `key` selects the server in a cluster; `script` is named in errors; `once`: its caller
    repeats it in another form, when it fails."""

    commands: tuple[Command, ...]
    key: str | None
    script: Script | None = None
    wait_replicas: int = 0
    retry: bool = True
    alone: bool = False
    once: bool = False

    @property
    def may_share(self) -> bool:
        return (
            self.script is not None
            and len(self.commands) == 1
            and self.retry
            and not self.wait_replicas
            and not self.alone
        )


@dataclass(slots=True)
class Met:
    """What an attempt met: the server (None before it had one), and whether the write was answered."""

    server: ServerConnections | None = None
    written: bool = False

    def detail_of(self, failure: Exception) -> int:
        """How much a failure says about the outcome of the call; a missing answer says least."""
        if isinstance(failure, TooFewReplicas):
            return 3
        return 2 if self.written else int(not isinstance(failure, TimeoutError))


class Attempts:
    def __init__(self, address: Address, options: StoreOptions, topology: Topology, guard: ServerGuard) -> None:
        self.statistics = StoreStatistics()
        self.refusals = Refusals()
        self._address = address
        self._options = options
        self._topology = topology
        self._guard = guard
        self._slots = asyncio.Semaphore(options.pool_size)
        self._closed = False

    def close(self) -> None:
        """From now on nothing is sent and no connection opened: calls end with StoreUnavailable."""
        self._closed = True

    async def until_answered(self, call: Call, budget: Budget) -> list[Any]:
        """Repeat the exchange until it succeeds, cannot succeed, or the budget is used up."""
        where = str(self._address)
        shown: SchedulerError | None = None
        detail = 0
        patient_until: float | None = None
        while True:
            met, began = Met(), asyncio.get_running_loop().time()
            try:
                return await self.make(call, budget, met)
            except NoScriptError as error:
                if call.script is not None:
                    raise ScriptUnknown(call.script) from error
                failure: Exception = error
            except (RedisError, OSError, UnicodeEncodeError, TooFewReplicas, UnverifiedServer, ClientClosed) as error:
                failure = error
            failure.__traceback__ = None  # it holds this frame, which holds the failure, and with it the whole request
            verdict = judge(failure, where, call.script, call.key)
            self.refusals.note(verdict.error)
            if met.written and verdict.retry and not isinstance(failure, TooFewReplicas):
                verdict = verdict.of_written(call.wait_replicas)
            if verdict.relocate and not self._closed and self._tells_of_a_move(failure, began):
                with heed_cancellation():
                    self.statistics.relocations += await self._topology.relocate(call.key, failure, met.server)
            # An earlier attempt's error may say more than the timeout of the last, shortened one.
            if not verdict.retry or shown is None or met.detail_of(failure) >= detail:
                shown, detail = verdict.error, met.detail_of(failure)
            if call.once:
                self.statistics.retries += 1
                raise shown from failure
            if not (verdict.refused and self._address.alone):
                patient_until = None
            elif patient_until is None:
                patient_until = budget.in_ms(self._options.refused_timeout_ms)
            if not (call.retry and verdict.retry and await budget.pause(patient_until)):
                self.statistics.failures += 1
                raise shown from failure
            self.statistics.retries += 1

    def _tells_of_a_move(self, failure: Exception, began: float) -> bool:
        """A caller in a hurry that was not answered says nothing of where the ledger is."""
        waited_ms = (asyncio.get_running_loop().time() - began) * 1000
        enough_ms = min(self._options.connect_timeout_ms, self._options.attempt_timeout_ms)
        return not isinstance(failure, TimeoutError) or waited_ms >= enough_ms

    async def make(self, call: Call, budget: Budget, met: Met) -> list[Any]:
        """One attempt: all commands in one write, all replies, then the wait for replicas. Raises the first error."""
        self._check_open()
        if call.may_share:
            ends_at = budget.ends_in(self._options.attempt_timeout_ms)
            server = self._topology.known(call.key)
            if server is None:
                with heed_cancellation():
                    async with asyncio.timeout_at(ends_at):
                        server = await self._topology.connections_for(call.key)
            if server.shared is not None:
                met.server = server
                self._check_open()
                return [await self._over_shared(server.shared, call.commands[0], ends_at)]
        with heed_cancellation():
            return await self._over_pool(call, budget, met)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed

    def open_connection(self, key: str) -> SharedConnection | None:
        """The connection that calls share, if one is open to the server that this client accepted."""
        server = self._topology.known(key)
        connection = None if server is None or server.shared is None else server.shared.current
        if connection is None or self._closed:
            return None
        try:
            self._guard.check(connection.server)
        except UnverifiedServer:
            return None
        return connection

    def send_at_once(self, connection: SharedConnection, command: Command, ends_at: float) -> Reply | None:
        """One attempt, sent before this returns; None for a command that no server can be sent."""
        try:
            packed = pack(command)
        except (RedisError, UnicodeEncodeError):
            return None
        self.statistics.attempts += 1
        self.statistics.sharing_connection += 1
        reply = connection.ask(packed, ends_at)
        reply.add_done_callback(self._shared_no_more)
        connection.flush()
        return reply

    def _shared_no_more(self, _: Reply) -> None:
        self.statistics.sharing_connection -= 1

    async def _over_shared(self, shared: SharedConnections, command: Command, ends_at: float) -> Any:
        """Nothing here loses a cancellation: what is waited for is a plain future."""
        packed = pack(command)
        statistics = self.statistics
        statistics.attempts += 1
        statistics.sharing_connection += 1
        try:
            connection = shared.current or await shared.connected(ends_at)
            try:
                self._guard.check(connection.server)
            except UnverifiedServer:
                connection.retire()
                raise
            reply = await connection.ask(packed, ends_at)
        finally:
            statistics.sharing_connection -= 1
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _over_pool(self, call: Call, budget: Budget, met: Met) -> list[Any]:
        async with self._turn(budget):
            self.statistics.attempts += 1
            ends_at = budget.ends_in(self._options.attempt_timeout_ms) if call.retry else budget.ends_at
            async with asyncio.timeout_at(ends_at) as limit:
                met.server = await self._topology.connections_for(call.key)
                pool = met.server.pool
                self._check_open()
                connection = await connection_of(pool)
                try:
                    await self._check(connection)
                    replies = await replies_to(connection, call.commands)
                    if call.wait_replicas and call.key:
                        met.written = True
                        await wait_for_replicas(connection, call.wait_replicas, Keys.beside(call.key).rotations, limit)
                finally:
                    await give_back(pool, connection)
                    if self._closed:  # the pool was closed while this connection was opened
                        await connection.disconnect(nowait=True)
        return replies

    async def _check(self, connection: AbstractConnection) -> None:
        """Raises UnverifiedServer, and closes the connection, so that its next use asks the server's identity again:
        a promoted replica keeps its connections and changes its replication history. One that was opened before a
        server was accepted is opened anew, to ask it."""
        self._check_open()
        if self._guard.is_unasked(server_of(connection)):
            await connection.disconnect(nowait=True)
            await connection.connect()  # type: ignore[no-untyped-call]
        try:
            self._guard.check(server_of(connection))
        except UnverifiedServer:
            await connection.disconnect(nowait=True)
            raise

    @asynccontextmanager
    async def _turn(self, budget: Budget) -> AsyncIterator[None]:
        """One of `pool_size` slots; waiting for it counts against the budget."""
        statistics = self.statistics
        statistics.waiting_for_connection += 1
        try:
            async with asyncio.timeout(budget.left_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"all {self._options.pool_size} connections to the ledger stayed busy; ask again"
            ) from None
        finally:
            statistics.waiting_for_connection -= 1
        statistics.connections_in_use += 1
        try:
            yield
        finally:
            statistics.connections_in_use -= 1
            self._slots.release()


class ScriptUnknown(Exception):
    """The server does not know the script: not loaded yet, or flushed."""

    def __init__(self, script: Script) -> None:
        super().__init__(script.name)
        self.script = script
