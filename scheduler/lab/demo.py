"""The main job, live: whole replicas over HTTP, a small fleet that reports, bursts of placements.

Every strategy gets the same burst on the same five machines, each placement confirmed when its sandbox
runs. Then, under least_loaded, one reservation is cancelled by hand and a node is drained.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scheduler.cancellation import end_tasks
from scheduler.domain.limits import MIB
from scheduler.domain.node import Node
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.wording import counted
from scheduler.errors import NoNodes
from scheduler.lab.clock import PacedAgenda, always
from scheduler.lab.fleet import FleetOptions
from scheduler.lab.http_surface import OverHttp
from scheduler.lab.live_fleet import LiveFleet, LiveFleetOptions
from scheduler.lab.replay import Contender, Replay, ReplayOptions, ReplayResult
from scheduler.lab.replicas import RunningReplica, replicas
from scheduler.lab.tables import replay_table
from scheduler.lab.trace import BUNDLED_NODES, BUNDLED_REQUESTS, Trace, read_trace

# The last one's replica goes on with the steps by hand, and with --keep.
LAST = Strategy.LEAST_LOADED
ORDER = (*(strategy for strategy in Strategy if strategy != LAST), LAST)
BURST = 64
BURST_MS = 2_000
GROUP_SIZE = 10
FLEET = FleetOptions(report_interval=always(400), boot=always(250))
REFRESH_SECONDS = 0.15


async def run_demo(console: Console, *, port: int = 0, keep: bool = False) -> None:
    """Returns when all has been shown; with `keep`, when the caller is interrupted."""
    trace = burst(read_trace(BUNDLED_NODES, BUNDLED_REQUESTS))
    console.print(f"[bold]Starting {len(ORDER)} replicas[/], one per strategy, each with its ledger inside …")
    async with replicas(ORDER, GROUP_SIZE, port) as started:
        results = [await show_burst(console, trace, replica) for replica in started]
        console.print()
        console.print(replay_table(results, f"The same {BURST} sandboxes on the same {len(trace.nodes)} machines"))
        await show_by_hand(console, OverHttp(started[-1].client))
        await show_drain(console, OverHttp(started[-1].client))
        console.print(next_steps(started[-1], keep=keep))
        if keep:
            await keep_moving(started[-1])


async def keep_moving(running: RunningReplica) -> None:
    """Another fleet takes the place of the full one, and sandboxes come and go on it until the replica is stopped."""
    fleet = LiveFleet(LiveFleetOptions(running.address, cpu_count=48, creates_per_second=3.0))
    await OverHttp(running.client).discover(fleet.addresses)
    moving = asyncio.create_task(fleet.run())
    try:
        await running.replica.run()
    finally:
        await end_tasks([moving])


def burst(trace: Trace) -> Trace:
    """The first requests of the trace, close together and never ending: a fleet that fills up."""
    first = trace.requests[:BURST]
    spaced = (
        replace(request, arrival_ms=number * BURST_MS // BURST, duration_ms=None)
        for number, request in enumerate(first)
    )
    return replace(trace, requests=tuple(spaced))


async def show_burst(console: Console, trace: Trace, replica: RunningReplica) -> ReplayResult:
    """One replica takes the whole burst while its nodes are watched through `GET /v1/nodes`."""
    surface = OverHttp(replica.client)
    replay = Replay(trace, surface, PacedAgenda(), ReplayOptions(fleet=FLEET))
    async with watched(console, surface, replica.strategy.value) as done:
        return await replay.run(Contender(replica.strategy), done.append)


@contextlib.asynccontextmanager
async def watched(console: Console, surface: OverHttp, title: str) -> AsyncIterator[list[int]]:
    """A live table of the nodes; the list takes how many requests are done. Without a terminal the
    table is printed once, at the end."""
    done = [0]

    async def picture() -> Table:
        return node_table(await surface.nodes(), f"{title}: {done[-1]} of {BURST}")

    if not console.is_terminal:
        yield done
        console.print(await picture())
        return
    with Live(await picture(), console=console, auto_refresh=False) as live:

        async def watch() -> None:
            while True:
                await asyncio.sleep(REFRESH_SECONDS)
                live.update(await picture(), refresh=True)

        watching = asyncio.create_task(watch())
        try:
            yield done
        finally:
            await end_tasks([watching])
            live.update(await picture(), refresh=True)


def node_table(nodes: Sequence[Node], title: str) -> Table:
    """Per node: how full it is with all reservations, what runs, and what is only reserved yet."""
    table = Table(title=title, title_justify="left")
    for column in ("node", "CPUs", "how full", "pressure", "running", "reserved"):
        table.add_column(column, justify="left" if column in ("node", "how full") else "right")
    for node in nodes:
        pressure = node.pressure.highest or 0.0
        color = "red" if pressure > 1 else "yellow" if pressure > 0.9 else "green"
        table.add_row(
            node.node_id,
            str(node.snapshot.cpu_count),
            ProgressBar(total=1.0, completed=min(pressure, 1.0), width=20, complete_style=color),
            Text(f"{pressure:.2f}", style=color),
            str(node.snapshot.sandbox_count),
            f"{node.pending.sandbox_count}",
        )
    return table


async def show_by_hand(console: Console, surface: OverHttp) -> None:
    """One reservation made and cancelled, and what the node's pending totals say after each step."""
    hint = Hint(HintKind.COLD_SANDBOX, cpu_count=1, memory_mb=1024, images=("registry.example/agent-python:3.12",))
    console.print("\n[bold]One reservation, cancelled.[/] Its capacity is free in the same instant, for all:")
    decision = await surface.schedule(ScheduleRequest(hint=hint))
    reservation = decision.reservation
    if reservation is None:
        return
    console.print(f"  placed on {decision.node.node_id}, reservation {reservation.reservation_id[:12]}… is pending")
    console.print(f"  {await _pending(surface, decision.node.node_id)}")
    await surface.cancel(reservation.reservation_id, "shown in the demo")
    console.print("  cancelled")
    console.print(f"  {await _pending(surface, decision.node.node_id)}")


async def show_drain(console: Console, surface: OverHttp) -> None:
    """The node that would be next is drained; ten more placements leave it alone."""
    hint = Hint(HintKind.COLD_SANDBOX, cpu_count=1, memory_mb=256)
    favourite = await surface.schedule(ScheduleRequest(hint=hint))
    await surface.drain(favourite.node)
    console.print(
        f"\n[bold]{favourite.node.node_id} is drained[/] (it would have been next). Ten more placements go to:"
    )
    chosen = await place_up_to(10, surface, ScheduleRequest(hint=hint))
    counted = ", ".join(f"{node_id} {chosen.count(node_id)}" for node_id in sorted(set(chosen)))
    console.print(f"  {counted}; {favourite.node.node_id} {chosen.count(favourite.node.node_id)}")


async def place_up_to(most: int, surface: OverHttp, request: ScheduleRequest) -> list[str]:
    """Where that many placements went; fewer when no more fit on the fleet."""
    chosen: list[str] = []
    with contextlib.suppress(NoNodes):
        for _ in range(most):
            decision = await surface.schedule(request)
            chosen.append(decision.node.node_id)
    return chosen


async def _pending(surface: OverHttp, node_id: str) -> str:
    node = next(node for node in await surface.nodes() if node.node_id == node_id)
    pending = node.pending
    return (
        f"pending there: {counted(pending.sandbox_count, 'sandbox', 'sandboxes')}, "
        f"{counted(pending.cpu_count, 'CPU')}, {pending.memory_bytes // MIB} MiB"
    )


def next_steps(replica: RunningReplica, *, keep: bool) -> Group:
    lines = [Text("\nTry next", style="bold")]
    if keep:
        lines += [
            Text(f"  {replica.address}/", style="bold").append("  the console, in a browser", style="not bold"),
            Text(f"  {replica.strategy.value} goes on, with eight nodes that fill and empty, until you press Ctrl-C:"),
            Text(f"  curl -s {replica.address}/v1/nodes"),
            Text(
                f"  curl -s {replica.address}/v1/schedule -H 'content-type: application/json' "
                """-d '{"hint": {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 512}}'"""
            ),
            Text(f"  curl -s {replica.address}/v1/reservations?limit=3"),
        ]
    else:
        lines += [
            try_line("demo --keep", "the same, and a fleet that moves, with its console"),
            try_line("serve", "a replica with its ledger inside, on port 8090"),
            Text(f"  {'curl -s http://127.0.0.1:8090/v1/nodes':<53}what it then knows of its nodes"),
        ]
    lines += [
        try_line("replay", "judge the strategies on a trace, yours or the bundled one"),
        try_line("serve --redis-addr localhost:6379", "a ledger that replicas can share; read it with redis-cli"),
        Text("  docs/strategies.md says when to choose which, docs/redis-cli.md how to read the ledger"),
    ]
    return Group(*lines)


def try_line(command: str, what: str) -> Text:
    return Text(f"  agentenv-scheduler {command:<34}{what}")
