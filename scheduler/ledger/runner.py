"""Calls scripts with the settings key and the clock, and handles the replies that every script may give."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from scheduler.connection.budget import Budget
from scheduler.connection.client import Argument, StoreClient
from scheduler.connection.keys import Keys
from scheduler.errors import NotFound, NotRebuilt, PuttingBack, ScriptError, StoreUnavailable, StoreUnusable
from scheduler.ledger.format import FORMAT
from scheduler.ledger.memory import ReservationMemory
from scheduler.ledger.odd_hashes import find_odd_hash

# Of its own, so that whoever seeds the shared generator does not make all replicas choose alike.
_RANDOM = random.Random()

Clock = Callable[[], int | None]
"""Virtual milliseconds in tests; None means the server's own clock."""


def server_clock() -> int | None:
    return None


def fresh_entropy() -> int:
    """Random bits for a script's random choices; a simulation passes its own."""
    return _RANDOM.getrandbits(32)


class Runner:
    """Runs the scripts of one domain. The first element of every reply is a status word."""

    def __init__(self, client: StoreClient, keys: Keys, clock: Clock = server_clock) -> None:
        self.client = client
        self.keys = keys
        self.clock = clock
        self.entropy: Callable[[], int] = fresh_entropy
        self.newest_sequence = 0
        self.memory = ReservationMemory()
        # The loss after which this replica has written back what it remembers.
        self.rebuilt_of = ""

    def note_sequence(self, sequence: int) -> None:
        """The ledger has answered this sequence. A lower sequence later means that the ledger lost writes."""
        self.newest_sequence = max(self.newest_sequence, sequence)

    def never_opened(self) -> StoreUnavailable:
        """The error for a domain without settings, which may be another than the one that was meant."""
        text = f"the ledger of domain {self.keys.domain} holds no settings yet; a replica writes them when it starts"
        return StoreUnavailable(text).at(str(self.client.address))

    def budget(self) -> Budget:
        """The time of a call that begins now. Raises DeadlineExceeded."""
        return Budget(self.client.options.operation_timeout_ms)

    def send_at_once(self, script: str, *args: Argument, ends_at: float) -> asyncio.Future[Any] | None:
        """Send the script at once, where nothing is to be waited for first: the script's reply as it is, in which an
        error is a value. None: run it."""
        now_ms = self.clock()
        sent = ["" if now_ms is None else now_ms, *args]
        return self.client.send_at_once(script, sent, settings_key=self.keys.settings, ends_at=ends_at)

    async def run(
        self,
        script: str,
        *args: Argument,
        durable: bool = False,
        lagging: bool = False,
        alone: bool = False,
        budget: Budget | None = None,
        once: bool = False,
    ) -> tuple[str, list[Any]]:
        """The status and the rest of the reply. `durable`: the write must survive the server; `lagging`: a read
        replica may answer; `alone`: it must not wait for the replies of other calls; `budget`: the time for it, where
        it began before; `once`: one attempt, which others repeat when it fails."""
        now_ms = self.clock()
        client = self.client.reader if lagging else self.client
        try:
            reply = await client.run(
                script,
                ["" if now_ms is None else now_ms, *args],
                settings_key=self.keys.settings,
                durable=durable,
                alone=alone,
                budget=budget,
                once=once,
            )
        except ScriptError as error:
            odd = None if once else await find_odd_hash(self.client, self.keys, args)
            if odd is None:
                raise
            raise odd from error
        status = reply[0].decode() if isinstance(reply[0], bytes) else str(reply[0])
        if status == "uninitialised":
            self.client.guard.request_check()
            raise self.never_opened()
        if status == "unknown":
            raise not_understood(*(part.decode("utf-8", "replace") for part in reply[1:3]))
        if status == "not_rebuilt":
            if reply[2].decode() != self.rebuilt_of:
                self.client.guard.request_check()
            raise PuttingBack(
                "the ledger was lost or another server took over; what replicas remember of it is being put back",
                waits_ms_at_most=int(reply[1]),
            )
        return status, list(reply[1:])


def not_understood(what: str, found: str) -> StoreUnavailable:
    """The error for a ledger whose `what` (format, strategy, …) this version does not know."""
    if what != "format":
        return StoreUnusable(f"the ledger's {what} is {found!r}, which this version does not know")
    if found == "converting":
        return StoreUnavailable(f"the ledger is being converted to format {FORMAT}; ask again")
    if found in ("1", "2", "3"):
        made_by = "version 0.1" if found == "1" else f"format {found}"
        return StoreUnusable(
            f"the ledger is of {made_by} and this version needs format {FORMAT}: "
            "agentenv-scheduler inspect upgrade converts it"
        )
    return StoreUnusable(f"the ledger is of format {found or 'unknown'}; this version knows format {FORMAT}")


def missing(what: str, identity: str, facts: Sequence[Any]) -> Exception:
    """NotFound, or NotRebuilt while a lost ledger is still being rebuilt."""
    if facts and int(facts[0]) == 1:
        return NotRebuilt(f"{what} {identity!r} is not known; the ledger is being rebuilt")
    return NotFound(f"{what} {identity!r} is not known")


def unexpected(script: str, status: str) -> ScriptError:
    return ScriptError(f"{script} answered {status!r}")
