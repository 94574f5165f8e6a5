"""Sends scripts and commands to the ledger, at any form of address.

Every call has one time budget: waiting for a connection, connecting, attempts and pauses all count. Attempts are
repeated after faults that pass by themselves (a failover, a restart, a dropped connection), which is safe because
every script is idempotent by ids that its caller chose. Replies are RESP2: bytes, integers, lists and None.

Scripts share one connection (shared.py); commands, durable writes and calls that are made once use a pool of
connections, each of which carries one call at a time. A task that is cancelled during a call always ends with
CancelledError.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scheduler.cancellation import heed_cancellation
from scheduler.connection import permissions, server
from scheduler.connection.address import Address, Scheme, parse_address, redact
from scheduler.connection.attempts import Attempts, Call, ScriptUnknown, StoreStatistics
from scheduler.connection.budget import Budget
from scheduler.connection.exchange import Argument, Command
from scheduler.connection.guard import ServerGuard
from scheduler.connection.keys import Keys
from scheduler.connection.options import StoreOptions
from scheduler.connection.replicas import RedisReplicas
from scheduler.connection.scripts import Script, ScriptLibrary
from scheduler.connection.topology import Topology, open_topology
from scheduler.errors import CommandsWithheld, Overloaded, ScriptError, StoreUnavailable

__all__ = ["Argument", "StoreClient", "StoreOptions", "StoreStatistics", "connect", "redact"]

AGAIN = b"again"
_BACKLOG = "a backlog is being processed; ask again"


async def connect(
    redis_addr: str,
    options: StoreOptions | None = None,
    *,
    library: ScriptLibrary | None = None,
    home_key: str | None = None,
) -> StoreClient:
    """A client for the ledger at `redis_addr`; nothing is sent before the first call.

    `home_key` is a key of the domain: in a cluster it selects the server for `ping`, `info` and the like. Raises
    ConfigurationError for an address of an unknown form."""
    options = options or StoreOptions()
    address = parse_address(redis_addr)
    if library is None:
        # The embedded ledger does not know the shebang.
        library = _own_scripts(shebang=options.shebang and address.scheme is not Scheme.EMBEDDED)
    client = StoreClient(address, options, library, home_key)
    if options.read_addr:
        client.reader = StoreClient(parse_address(options.read_addr), options, library, home_key)
    return client


@functools.cache
def _own_scripts(*, shebang: bool) -> ScriptLibrary:
    """Assembled once for all clients of the process."""
    return ScriptLibrary.load(shebang=shebang)


class StoreClient:
    """The connections to one ledger. Created by `connect`, ended by `close`.

    `reader` serves plain reads that may lag: the server of `read_addr`, or this client itself."""

    def __init__(
        self, address: Address, options: StoreOptions, library: ScriptLibrary, home_key: str | None = None
    ) -> None:
        self.address = address
        self.options = options
        self.scripts = library
        self.home_key = home_key
        self.guard = ServerGuard()
        self.replicas = RedisReplicas(0 if self.embedded else options.wait_replicas, options.operation_timeout_ms)
        self.reader: StoreClient = self
        self._topology: Topology = open_topology(address, options, self.guard)
        self._attempts = Attempts(address, options, self._topology, self.guard)
        self.statistics = self._attempts.statistics
        self.refusals = self._attempts.refusals
        self._proving = asyncio.Lock()
        # How often each script was loaded because the server had forgotten it.
        self._loaded: Counter[str] = Counter()
        self._loading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<StoreClient {self.address}>"

    @property
    def embedded(self) -> bool:
        return self.address.scheme is Scheme.EMBEDDED

    @property
    def cluster(self) -> bool:
        return self.address.scheme is Scheme.CLUSTER

    # -- scripts ----------------------------------------------------------------------------------------------

    async def run(
        self,
        script_name: str,
        args: Sequence[Argument] = (),
        *,
        settings_key: str,
        durable: bool = False,
        retry: bool = True,
        alone: bool = False,
        budget: Budget | None = None,
        once: bool = False,
    ) -> list[Any]:
        """Run one script and return its reply, status word first.

        The reply `again` means that the script processed one slice of a backlog: it is called again until it answers
        or the budget is used up, then Overloaded is raised. `durable` waits for `wait_replicas` replicas on the same
        connection and raises StoreUnavailable when too few confirm in time; the write stands then, and the same call
        may be repeated. `retry=False` makes one attempt, for calls that are not idempotent. `alone`: on a connection
        of its own, so that no other call's reply is waited for, and this one's delays no other. `budget`: the time
        for it, where it began before. `once`: one attempt of a call that is idempotent and that its caller repeats in
        another form."""
        if self.refusals.withheld is not None and script_name != permissions.PROOF:
            await self.prove_commands(settings_key)
        script = self.scripts.get(script_name)
        if self.home_key is None:
            self.home_key = settings_key
        budget = budget or Budget(self.options.operation_timeout_ms)
        call = Call(
            commands=(("EVALSHA", script.sha, 1, settings_key, *args),),
            key=settings_key,
            script=script,
            wait_replicas=self.replicas.wanted if durable else 0,
            retry=retry,
            alone=alone,
            once=once,
        )
        slices = 0
        while True:
            try:
                reply = await self._run_once(call, budget)
            except StoreUnavailable as unavailable:
                if slices and budget.over:
                    # The ledger answered every time; only the budget ended.
                    raise Overloaded(_BACKLOG) from unavailable
                raise
            if not (isinstance(reply, list) and reply and reply[0] == AGAIN):
                return reply if isinstance(reply, list) else [reply]
            slices += 1
            self.statistics.backlog_slices += 1
            # Let other tasks run between the slices.
            await asyncio.sleep(0)
            if budget.over:
                raise Overloaded(_BACKLOG)

    def send_at_once(
        self, script_name: str, args: Sequence[Argument], *, settings_key: str, ends_at: float
    ) -> asyncio.Future[Any] | None:
        """Send one script at once, once, over the connection that calls share. The future's result is the reply; an
        error is a value too, TimeoutError after `ends_at` (the loop's clock) among them.

        None: something is to be waited for first, as when no connection is open, or it cannot be sent. `run` does
        it, or tells why."""
        connection = self._attempts.open_connection(settings_key)
        if connection is None or self.refusals.withheld is not None:
            return None
        script = self.scripts.get(script_name)
        return self._attempts.send_at_once(connection, ("EVALSHA", script.sha, 1, settings_key, *args), ends_at)

    async def _run_once(self, call: Call, budget: Budget) -> Any:
        sent, forgotten = call, 0
        forgetful = StoreUnavailable("the ledger keeps forgetting scripts; ask again").at(str(self.address))
        while True:
            times = self._loaded[call.script.sha] if call.script else 0
            try:
                return (await self._attempts.until_answered(sent, budget))[-1]
            except StoreUnavailable as unavailable:
                if forgotten > 1 and budget.over:
                    # The ledger answered every time; only the last attempt was cut short.
                    raise forgetful from unavailable
                raise
            except ScriptUnknown as unknown:
                forgotten += 1
                if forgotten == 1:
                    try:
                        await self._load(unknown.script, call.key, times, budget)
                    except TimeoutError:
                        raise forgetful from unknown
                    continue
                # Flushed again between loading and calling: a restart, or a SCRIPT FLUSH.
                if not await budget.pause():
                    raise forgetful from unknown
                self.statistics.scripts_reloaded += 1
                load: Command = ("SCRIPT", "LOAD", unknown.script.text)
                sent = replace(call, commands=(load, *call.commands))

    async def _load(self, script: Script, key: str | None, times: int, budget: Budget) -> None:
        """Load a script that the server does not know, unless it was loaded meanwhile (more than `times`): of a
        thousand calls under way when a server forgets its scripts, one sends the text and the others wait for it.

        Raises TimeoutError."""
        with heed_cancellation():
            async with asyncio.timeout(max(0.0, budget.left_seconds)), self._loading:
                if self._loaded[script.sha] > times:
                    return
                await self._attempts.until_answered(Call((("SCRIPT", "LOAD", script.text),), key), budget)
                self._loaded[script.sha] += 1
                self.statistics.scripts_reloaded += 1

    # -- plain commands ---------------------------------------------------------------------------------------

    async def command(self, *args: Argument, retry: bool = True) -> Any:
        """One command, repeated when the connection fails unless `retry` is False. In a cluster it goes to the
        server of its first ledger key."""
        return (await self.pipeline([args], retry=retry))[0]

    async def pipeline(self, commands: Sequence[Command], *, retry: bool = True) -> list[Any]:
        """Several commands in one round trip on one connection, not atomic. Raises the first error."""
        if not commands:
            return []
        budget = Budget(self.options.operation_timeout_ms)
        key = next((str(arg) for command in commands for arg in command[1:] if _is_ledger_key(arg)), self.home_key)
        return await self._attempts.until_answered(Call(tuple(commands), key, retry=retry), budget)

    async def ping(self) -> None:
        """Returns when the server answered; one attempt, within the connect timeout."""
        await self._attempts.until_answered(
            Call((("PING",),), self.home_key, retry=False), Budget(self.options.connect_timeout_ms)
        )

    async def info(self, section: str = "server") -> dict[str, str]:
        """One section of INFO; empty on the embedded ledger, which has none."""
        if self.embedded:
            return {}
        return server.parse_info(await self.command("INFO", section))

    async def server_identity(self) -> server.ServerIdentity:
        """Which server process answers, and its replication history. `replicas` is brought up to date with it."""
        identity, replication = await self.info("server"), await self.info("replication")
        self.replicas.note(server.replicas_online(replication))
        return server.ServerIdentity.of({**identity, **replication})

    async def load_scripts(self) -> int:
        """Load every script into the server; returns their number."""
        scripts = list(self.scripts)
        await self.pipeline([("SCRIPT", "LOAD", script.text) for script in scripts])
        return len(scripts)

    async def check_server(self) -> None:
        """Raises StoreUnusable, with the reason, when the server cannot hold the ledger."""
        await self.ping()
        if not self.embedded:
            server.check_fit(await self.info("server"), await self.info("replication"), str(self.address))

    async def hazards(self) -> tuple[str, ...]:
        """What in the server's configuration may cost the ledger keys, a sentence each; none where it does not say."""
        try:
            return server.hazards(await self.info("memory"), await self.info("persistence"))
        except (CommandsWithheld, ScriptError):
            return ()

    async def prove_commands(self, settings_key: str) -> None:
        """Raises CommandsWithheld, naming them, unless the server's ACL allows every command that scripts need."""
        met = self.refusals.withheld
        async with self._proving:
            if met is not None and self.refusals.withheld is None:
                return  # another task has checked it meanwhile
            try:
                await self._prove_commands(settings_key)
            except CommandsWithheld as withheld:
                self.refusals.withheld = withheld
                raise
            self.refusals.withheld = None

    async def _prove_commands(self, settings_key: str) -> None:
        names = permissions.commands(waits=self.replicas.wanted > 0)
        reply = await self.run(permissions.PROOF, ["", *names], settings_key=settings_key, alone=True)
        withheld = permissions.withheld_in(reply)
        if withheld is None:
            await self.pipeline(permissions.trial(Keys.beside(settings_key)))
        elif withheld:
            raise CommandsWithheld(
                f"the ledger: the server's ACL withholds {', '.join(withheld)}; "
                "docs/security.md lists what the scheduler needs"
            ).at(str(self.address))

    async def close(self) -> None:
        """Leaves no connection open. Calls that wait end with StoreUnavailable, as does every later one."""
        self._attempts.close()
        try:
            if self.reader is not self:
                await self.reader.close()
        finally:
            with heed_cancellation():
                await self._topology.close()


def _is_ledger_key(argument: Argument) -> bool:
    return isinstance(argument, str) and argument.startswith("aenv:{")
