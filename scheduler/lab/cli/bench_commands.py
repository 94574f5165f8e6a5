"""`agentenv-scheduler bench bounds` and `bench burst`: the longest single step, and a fleet filled at once."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from scheduler.cancellation import run_command
from scheduler.lab.cli.options import AsJson, quiet_logs, show

RealServer = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="A real server of its own; default: a private one for the run.")
]


def register(bench_app: typer.Typer) -> None:
    bench_app.command(
        epilog="\b\nExamples:\n"
        "  agentenv-scheduler bench bounds\n"
        "  agentenv-scheduler bench bounds --nodes 10000 --reservations 20000 --json"
    )(bounds)
    bench_app.command(
        epilog="\b\nExamples:\n"
        "  agentenv-scheduler bench burst\n"
        "  agentenv-scheduler bench burst --nodes 1000 --creations 10000 --replicas 3 --json"
    )(burst)


def bounds(
    nodes: Annotated[int, typer.Option(min=100, help="Nodes in the fleet.")] = 100_000,
    reservations: Annotated[
        int, typer.Option(min=100, help="Open reservations, those on one node included.")
    ] = 100_000,
    on_one_node: Annotated[int, typer.Option(min=10, max=16_000, help="Of these, confirmed on one node.")] = 10_000,
    roster: Annotated[int, typer.Option(min=10, help="Sandboxes that one node lists.")] = 20_000,
    redis_addr: RealServer = None,
    as_json: AsJson = False,
) -> None:
    """Let everything pile up, and measure the longest single script of each kind (CPU of the server's main thread)."""
    from scheduler.lab.bench_bounds import BoundsOptions, bench_bounds
    from scheduler.lab.scratch import real_server
    from scheduler.lab.tables import step_cost_table

    options = BoundsOptions(nodes, max(reservations, on_one_node), on_one_node, max(roster, on_one_node))
    quiet_logs()
    with real_server(redis_addr) as address, Console(stderr=True).status("starting") as status:
        costs = run_command(bench_bounds(address, options, status.update))
    show(step_cost_table(costs), [cost.as_dict() for cost in costs], as_json=as_json)


def burst(
    nodes: Annotated[int, typer.Option(min=1, help="Nodes, all alike and empty.")] = 10_000,
    creations: Annotated[
        int, typer.Option(min=1, help="As many as the fleet can take: a multiple of the nodes.")
    ] = 100_000,
    batch: Annotated[int, typer.Option(min=1, max=256, help="Creations in one call.")] = 100,
    replicas: Annotated[int, typer.Option(min=1, max=16, help="Replicas, each a process of its own.")] = 2,
    callers: Annotated[int, typer.Option(min=1, max=64, help="Batches under way at once.")] = 8,
    redis_addr: RealServer = None,
    as_json: AsJson = False,
) -> None:
    """Fill a fleet to its last CPU through whole replicas, each sandbox confirmed.

    Exits with 1 when anything was refused while it fitted, or given twice."""
    from scheduler.lab.burst import BurstOptions, run_burst
    from scheduler.lab.scratch import real_server
    from scheduler.lab.tables import burst_table

    options = BurstOptions(nodes, creations, batch, replicas, callers)
    quiet_logs()
    with real_server(redis_addr) as address, Console(stderr=True).status("starting") as status:
        result = run_command(run_burst(address, options, status.update))
    show(burst_table(result), result.as_dict(), as_json=as_json)
    if not result.sound:
        raise typer.Exit(1)
