"""What the Redis server says of its own work: microseconds per script call, memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scheduler.connection.client import StoreClient
from scheduler.errors import ConfigurationError
from scheduler.lab.calls import Command

# Long enough to hide the round trip, short enough that a busy machine seldom interrupts a whole one.
BATCH = 25


@dataclass(frozen=True, slots=True)
class ScriptCost:
    """Means over the calls of one round: `script_us` is the script alone on the wall clock; `cpu_us` is all
    the server's main thread did for a call, parsing and replying included, and is blind to interruptions."""

    script_us: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class CallStatistics:
    calls: int
    microseconds: int

    @property
    def mean_us(self) -> float:
        return self.microseconds / self.calls if self.calls else 0.0


def call_statistics(commandstats: dict[str, str], command: str = "evalsha") -> CallStatistics:
    """One line of INFO commandstats: `calls=5,usec=210,usec_per_call=42.00,…`; zeros when it never ran."""
    line = commandstats.get(f"cmdstat_{command}", "")
    fields = dict(part.split("=", 1) for part in line.split(",") if "=" in part)
    return CallStatistics(int(fields.get("calls", 0)), int(fields.get("usec", 0)))


class ServerFigures:
    def __init__(self, client: StoreClient) -> None:
        if client.embedded:
            raise ConfigurationError("a benchmark needs a real Redis server; the embedded ledger keeps no figures")
        self._client = client

    async def used_memory_bytes(self) -> int:
        """Once the server has let go of everything that was deleted before: it does so in the background."""
        while True:
            memory = await self._client.info("memory")
            if not int(memory.get("lazyfree_pending_objects", 0)):
                return int(memory["used_memory"])
            await asyncio.sleep(0.05)

    async def round(self, commands: Sequence[Command]) -> ScriptCost:
        """Server-side means of these script calls, sent in pipelines."""
        await self.reset()
        before_us = await self._cpu_us()
        for first in range(0, len(commands), BATCH):
            await self._client.pipeline(commands[first : first + BATCH])
        cpu_us = (await self._cpu_us() - before_us) / len(commands)
        return ScriptCost((await self.since_reset()).mean_us, cpu_us)

    async def reset(self) -> None:
        await self._client.command("CONFIG", "RESETSTAT")

    async def since_reset(self) -> CallStatistics:
        """All script calls since the last reset."""
        return call_statistics(await self._client.info("commandstats"))

    async def _cpu_us(self) -> float:
        used = await self._client.info("cpu")
        return 1_000_000 * (float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"]))

    async def load_script(self, text: str) -> str:
        """Its SHA, for EVALSHA."""
        sha = await self._client.command("SCRIPT", "LOAD", text)
        return sha.decode() if isinstance(sha, bytes) else str(sha)


def middle(rounds: Sequence[float]) -> float:
    return median(rounds) if rounds else 0.0


def middle_cost(rounds: Sequence[ScriptCost]) -> ScriptCost:
    """Each figure's own median."""
    return ScriptCost(middle([each.script_us for each in rounds]), middle([each.cpu_us for each in rounds]))
