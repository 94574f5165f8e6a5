"""What a placement costs inside Redis, beside the scripts of version 0.1 in the same run.

    python -m tests.lab.beside_old

Both versions get a ledger of their own on one server, the same fleet and the same requests, in rounds that take turns.
Every figure is the server's own, the median of the rounds; ratios are what travels between machines.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from statistics import median
from typing import Any

from scheduler.connection.client import StoreOptions
from scheduler.connection.keys import Keys
from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.lab.bench_fleet import FULL, RESERVATION_TTL_MS, endpoint_of, node_id_of, snapshot_of
from scheduler.lab.calls import CallRecorder, Command
from scheduler.lab.scratch import REPORT_TTL_MS
from scheduler.lab.server_figures import BATCH, ScriptCost, ServerFigures
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.ledger.settings import encode
from tests.support.servers import RedisServer
from tests.upgrade.old_ledger import SCRIPTS

# The server's CPU for a call instead of the script's wall clock: for a machine that does other things.
BUSY = "--cpu" in sys.argv
# What the scripts take today and did not in version 0.1.
LATER_ARGUMENTS = {
    "schedule_sandbox": {"sandbox_id", "require", "resources", "spread"},
    "record_heartbeat": {
        "roster_edits", "added_count", "acknowledged_generation", "hung_up", "labels", "resources", "stable_digest",
    },
}  # fmt: skip
PATIENT = StoreOptions(operation_timeout_ms=60_000, attempt_timeout_ms=60_000)
Snapshots = Callable[[int], NodeSnapshot]
SIZES = {
    "1 size": lambda call, random: (2, 2048),
    "16 sizes in turn": lambda call, random: (1 + call % 4, 1024 + 64 * (call % 16)),
    "1,000 random sizes": lambda call, random: (1 + random.randrange(10), 512 * (1 + random.randrange(100))),
}


def of_classes(count: int) -> Snapshots:
    """The benchmark's fleet, with so many memory capacities that no two share a class."""

    def snapshot(number: int) -> NodeSnapshot:
        found = snapshot_of(number, 0)
        memory = found.memory_total_bytes * 2 ** (-(number % count) / 8)
        return replace(
            found,
            memory_total_bytes=int(memory) // MIB * MIB,
            allocated_memory_bytes=found.allocated_memory_bytes // 16,
        )

    return snapshot if count > 1 else lambda number: snapshot_of(number, 0)


def cost_of(found: ScriptCost) -> float:
    return found.cpu_us if BUSY else found.script_us


class Contender:
    """One version's ledger: the product's own commands, or these as version 0.1 took them."""

    def __init__(self, ledger: Ledger, old: bool) -> None:
        self.ledger, self.old = ledger, old
        self._record = CallRecorder(ledger)
        self._key = Keys(ledger.domain).fenced_settings
        self._shas: dict[str, str] = {}

    async def open(self) -> None:
        settings = LedgerSettings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=REPORT_TTL_MS)
        if not self.old:
            await self.ledger.settings.put(settings, "bench")
            # Only these, as a server gets each script when it is first used; all together make every call slower.
            for name in (*LATER_ARGUMENTS, "schedule_batch"):
                await self.ledger.client.command("SCRIPT", "LOAD", self.ledger.client.scripts.get(name).text)
            return
        for name, text in SCRIPTS.items():
            self._shas[name] = (await self.ledger.client.command("SCRIPT", "LOAD", text)).decode()
        content = [part for item in encode(settings).items() for part in item]
        await self._call("put_settings", "", "bench", "1", "digest", "epoch", "0", "", *content)

    async def _call(self, name: str, *arguments: object) -> Any:
        return await self.ledger.client.command("EVALSHA", self._shas[name], 1, self._key, *arguments)  # type: ignore[arg-type]

    async def schedule(self, request: ScheduleRequest) -> Command:
        return self._as_taken("schedule_sandbox", await self._record.schedule(request))

    async def together(self, requests: Sequence[ScheduleRequest]) -> list[Command]:
        """All of them in one batch, which 0.1 did not have."""
        if self.old:
            return [await self.schedule(request) for request in requests]
        return [await self._record.batch(requests)]

    async def report(self, number: int, snapshot: NodeSnapshot) -> Command:
        report = Heartbeat(node_id_of(number), f"instance-{number}", cluster_id="bench", snapshot=snapshot)
        return self._as_taken("record_heartbeat", await self._record.heartbeat(report))

    def _as_taken(self, name: str, command: Command) -> Command:
        """The command as this contender's version takes it: 0.1 knew fewer arguments, in the same order."""
        if not self.old:
            return command
        later = LATER_ARGUMENTS[name]
        parameters = self.ledger.client.scripts.get(name).contract.arguments
        fixed, tail = len(parameters) - 1, command[3 + len(parameters) :]
        known = [given for given, each in zip(command[4:], parameters[:fixed], strict=False) if each.name not in later]
        return ("EVALSHA", self._shas[name], 1, self._key, *known, *tail)

    async def load(self, nodes: int, snapshots: Snapshots) -> None:
        addresses = [NodeAddress(node_id_of(number), endpoint_of(number)) for number in range(nodes)]
        if self.old:
            for first in range(0, nodes, 500):
                triplets = [
                    part for each in addresses[first : first + 500] for part in (each.node_id, each.endpoint, "active")
                ]
                await self._call("set_nodes", "", "0", len(triplets) // 3, *triplets)
        else:
            await self.ledger.nodes.replace(addresses, ())
        reports = await self.send([await self.report(number, snapshots(number)) for number in range(nodes)])
        assert {reply[0] for reply in reports} == {b"accepted"}, "a report was not taken"
        reply = await self.first_answer(request_for((2, 2048)))
        assert reply[0] == b"placed", f"what would be measured is no placement: {reply}"

    async def first_answer(self, request: ScheduleRequest) -> Any:
        """Once all that is done a little at a time is done: 0.1 builds its index so."""
        for _ in range(1000):
            (reply,) = await self.send([await self.schedule(request)])
            if reply[0] != b"again":
                break
        return reply

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        replies: list[Any] = []
        for first in range(0, len(commands), BATCH):
            replies += await self.ledger.client.pipeline(commands[first : first + BATCH])
        return replies


def request_for(size: tuple[int, int]) -> ScheduleRequest:
    hint = Hint(HintKind.COLD_SANDBOX, *size, images=("registry.invalid/app:1",))
    return ScheduleRequest(hint=hint, reservation_ttl_ms=RESERVATION_TTL_MS)


async def measure(
    contenders: Sequence[Contender], figures: ServerFigures, name: str, rounds: int, calls: int
) -> list[float]:
    """Microseconds per placement of each contender. Building an index counts, as it does for callers."""
    found: list[list[float]] = [[] for _ in contenders]
    for turn in range(rounds):
        for index, contender in enumerate(contenders):
            random = Random(turn)
            commands = [await contender.schedule(request_for(SIZES[name](call, random))) for call in range(calls)]
            found[index].append(cost_of(await figures.round(commands)))
    return [median(each) for each in found]


async def batches(contenders: Sequence[Contender], figures: ServerFigures, rounds: int, calls: int) -> list[float]:
    """Microseconds per placement where 64 of one size are asked for together."""
    found: list[list[float]] = [[] for _ in contenders]
    asked = [request_for((2, 2048))] * 64
    for _ in range(rounds):
        for index, contender in enumerate(contenders):
            commands = [command for _ in range(max(1, calls // 64)) for command in await contender.together(asked)]
            placements = max(1, calls // 64) * 64
            found[index].append(cost_of(await figures.round(commands)) * len(commands) / placements)
    return [median(each) for each in found]


async def refusals(
    contenders: Sequence[Contender], figures: ServerFigures, nodes: int, rounds: int, calls: int
) -> list[float]:
    found: list[list[float]] = [[] for _ in contenders]
    for contender in contenders:
        await contender.send([await contender.report(number, FULL) for number in range(nodes)])
        reply = await contender.first_answer(request_for((2, 2048)))
        assert reply[0] == b"refused", f"what would be measured is no refusal: {reply}"
    for _ in range(rounds):
        for index, contender in enumerate(contenders):
            commands = [await contender.schedule(request_for((2, 2048))) for _ in range(calls)]
            found[index].append(cost_of(await figures.round(commands)))
    return [median(each) for each in found]


def show(nodes: int, classes: int, what: str, costs: Sequence[float]) -> None:
    row = "  ".join(f"{each:8.1f}" for each in costs)
    print(f"{nodes:>7,} nodes {classes:>3} classes  {what:<20} {row}", flush=True)


async def compare(address: str, nodes: int, classes: int, rounds: int, calls: int, with_old: bool) -> None:
    contenders = []
    for old in (True, False) if with_old else (False,):
        ledger = await open_ledger(address, domain=f"{'old' if old else 'new'}-{nodes}-{classes}", options=PATIENT)
        contender = Contender(ledger, old)
        await contender.open()
        await contender.load(nodes, of_classes(classes))
        contenders.append(contender)
    figures = ServerFigures(contenders[0].ledger.client)
    for name in SIZES:
        if with_old and name.startswith("1,000") and nodes > 1_000:
            continue
        show(nodes, classes, name, await measure(contenders, figures, name, rounds, calls))
    show(nodes, classes, "64 in a batch", await batches(contenders, figures, rounds, calls))
    show(nodes, classes, "refused, all full", await refusals(contenders, figures, nodes, rounds, calls))
    for contender in contenders:
        await contender.ledger.client.command("FLUSHALL")
        await contender.ledger.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", default="1000,10000,100000")
    options.add_argument("--classes", default="1,3,10,30,64")
    options.add_argument("--cpu", action="store_true", help="the server's CPU per call, for a busy machine")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--calls", type=int, default=1000)
    asked = options.parse_args()
    print("µs per placement inside Redis: version 0.1 (where it stands), this version")
    with RedisServer() as server:
        for nodes in map(int, asked.nodes.split(",")):
            asyncio.run(compare(server.address, nodes, 1, asked.rounds, asked.calls, with_old=True))
        for classes in map(int, asked.classes.split(",")):
            asyncio.run(compare(server.address, 10_000, classes, asked.rounds, asked.calls, with_old=False))


if __name__ == "__main__":
    main()
