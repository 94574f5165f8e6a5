"""Weighs single script calls on a real server: the CPU of its main thread, and the commands that a script ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.connection import server
from scheduler.connection.client import Argument, StoreClient
from scheduler.ledger.ledger import Ledger

_AGAIN = b"again"
# What the meter itself asks for.
_NOT_OURS = {"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_evalsha"}


@dataclass(frozen=True, slots=True)
class Weighed:
    """One call of a script. `cpu_ms` is blind to whatever else the machine does; `commands` are those it ran."""

    script: str
    cpu_ms: float
    commands: int


class ScriptMeter(StoreClient):
    """A client that sends each script call between two readings of the server's figures, on one connection.

    Slices of a backlog are calls of their own. For a server that nobody else uses."""

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client.address, client.options, client.scripts, client.home_key)
        self.calls: list[Weighed] = []

    async def run(self, script_name: str, args: Sequence[Argument] = (), *, settings_key: str, **how: Any) -> list[Any]:
        call = ("EVALSHA", self.scripts.get(script_name).sha, 1, settings_key, *args)
        while True:
            _, before, reply, after, counts = await self.pipeline(
                [("CONFIG", "RESETSTAT"), ("INFO", "cpu"), call, ("INFO", "cpu"), ("INFO", "commandstats")]
            )
            commands = sum(
                int(figures.partition(",")[0].removeprefix("calls="))
                for name, figures in server.parse_info(counts).items()
                if name not in _NOT_OURS
            )
            self.calls.append(Weighed(script_name, _main_thread_ms(after) - _main_thread_ms(before), commands))
            if not (isinstance(reply, list) and reply and reply[0] == _AGAIN):
                return reply if isinstance(reply, list) else [reply]


def _main_thread_ms(info: Any) -> float:
    used = server.parse_info(info)
    return 1_000 * (float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"]))


def metered(ledger: Ledger) -> ScriptMeter:
    """Have every script call of this ledger weighed from now on. The meter is the caller's to close."""
    meter = ScriptMeter(ledger.client)
    ledger.runner.client = meter
    return meter
