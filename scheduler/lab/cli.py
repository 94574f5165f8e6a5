"""The lab's commands: `replay`, `lifecycle`, `bench schedule`, `demo`, `fleet`."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from scheduler.config import kinds
from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import Admission, GroupPlacement, GroupSettings, LedgerSettings
from scheduler.domain.wording import counted
from scheduler.errors import ConfigurationError
from scheduler.lab.trace import BUNDLED_NODES, BUNDLED_REQUESTS
from scheduler.observability.logging import configure_logging

DEFAULT_GROUP_SIZE = 10

RedisAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="embedded, host:port, redis://… Default: a private server for the run, else the embedded ledger.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Seed = Annotated[int, typer.Option(help="Of everything random; the same seed is the same run.")]
ReportInterval = Annotated[str, typer.Option(metavar="DURATION", help="Between two reports of a node.")]

bench_app = typer.Typer(no_args_is_help=True, help="What the scheduler costs the Redis server.")


def register(app: typer.Typer) -> None:
    """Add the lab's commands to the command line."""
    app.command()(replay)
    app.command()(lifecycle)
    app.command()(demo)
    app.command()(fleet)
    app.add_typer(bench_app, name="bench")


def replay(
    nodes: Annotated[Path, typer.Option(metavar="FILE", help="node_id,cpu_count,memory_mb")] = BUNDLED_NODES,
    requests: Annotated[
        Path, typer.Option(metavar="FILE", help="arrival_s,duration_s,cpu,memory_mb,image_or_template")
    ] = BUNDLED_REQUESTS,
    strategy: Annotated[str, typer.Option(metavar="A,B", help="Which to compare; default: all.")] = ",".join(Strategy),
    time_scale: Annotated[float, typer.Option(help="Requests arrive this many times as fast; none lives shorter.")] = 1,
    redis_addr: RedisAddress = None,
    report_interval: ReportInterval = "5s",
    boot_time: Annotated[str, typer.Option(metavar="DURATION", help="From the VM's start until it runs.")] = "2s",
    overcommit_cpu: Annotated[str, typer.Option(metavar="FACTOR", help="A number, or unlimited.")] = "1",
    overcommit_memory: Annotated[str, typer.Option(metavar="FACTOR", help="A number, or unlimited.")] = "1",
    admission: Annotated[str, typer.Option(help="strategy or always")] = "strategy",
    group_max_sandboxes: Annotated[int, typer.Option(min=1, help="Budget of a group.")] = DEFAULT_GROUP_SIZE,
    group_max_cpus: Annotated[int, typer.Option(min=0, help="Budget of a group; 0: none.")] = 0,
    group_max_memory_mb: Annotated[int, typer.Option(min=0, help="Budget of a group; 0: none.")] = 0,
    group_placement: Annotated[
        str, typer.Option(metavar="A,B", help="Where a group opens: round_robin, least_loaded, or both to compare.")
    ] = "round_robin",
    lifecycle_: Annotated[str, typer.Option("--lifecycle", help="explicit or heartbeat")] = "explicit",
    warm_keys: Annotated[int, typer.Option(min=1, help="How many keys a node keeps warm.")] = 8,
    seed: Seed = 1,
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: .png or .svg")] = None,
) -> None:
    """Run a trace against one or more strategies and compare what became of it.

    Without files the bundled trace is used. Time is simulated: months replay in minutes."""
    from scheduler.lab.compare import Setup, compare_strategies, contenders
    from scheduler.lab.fleet import FleetOptions
    from scheduler.lab.plot import check_plot_file, draw
    from scheduler.lab.replay import ReplayOptions
    from scheduler.lab.scratch import best_server
    from scheduler.lab.tables import replay_table
    from scheduler.lab.trace import read_trace

    if plot is not None:
        check_plot_file(plot)
    trace = read_trace(nodes, requests).compressed(time_scale)
    strategies = [_read("--strategy", kinds.choice(Strategy), name) for name in _parts(strategy)]
    settings = LedgerSettings(
        admission=_read("--admission", kinds.choice(Admission), admission),
        overcommit_cpu=_read("--overcommit-cpu", kinds.overcommit(), overcommit_cpu),
        overcommit_memory=_read("--overcommit-memory", kinds.overcommit(), overcommit_memory),
        groups=GroupSettings(
            max_sandbox_count=group_max_sandboxes,
            max_cpu_count=group_max_cpus,
            max_memory_mb=group_max_memory_mb,
        ),
    )
    fleet = FleetOptions(
        report_interval_ms=_read("--report-interval", kinds.duration(), report_interval),
        boot_ms=_read("--boot-time", kinds.duration(), boot_time),
        idle_reports=False,
    )
    options = ReplayOptions(_read("--lifecycle", kinds.choice(Lifecycle), lifecycle_), warm_keys, fleet)
    placements = [_read("--group-placement", kinds.choice(GroupPlacement), name) for name in _parts(group_placement)]
    quiet_logs()
    with best_server(redis_addr) as address, progress_bars(len(trace.requests), shown=not as_json) as report:
        setup = Setup(address, settings, options, seed)
        results = asyncio.run(compare_strategies(trace, contenders(strategies, placements), setup, report))
    if plot is not None:
        draw(results, plot)
    title = f"{counted(len(trace.requests), 'request')} on {counted(len(trace.nodes), 'node')}"
    _show(replay_table(results, title), {"strategies": [result.as_dict() for result in results]}, as_json=as_json)


def lifecycle(
    creates: Annotated[int, typer.Option(min=1, help="Sandboxes to create in each run.")] = 10_000,
    ending: Annotated[
        str, typer.Option(metavar="A,B", help="How reservations end: explicit, both, events, counters.")
    ] = "explicit,both,events,counters",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of 64 CPUs and 128 GiB.")] = 32,
    redis_addr: RedisAddress = None,
    report_interval: ReportInterval = "5s",
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Measure what it costs not to tell the ledger how a placement ended.

    One nearly full fleet with failing creates, forks and a restart: how much capacity is held for
    nothing, and how often is a sandbox refused that had room?"""
    from scheduler.lab.compare import compare_endings
    from scheduler.lab.fleet import FleetOptions
    from scheduler.lab.lifecycle import Ending, Workload
    from scheduler.lab.scratch import best_server
    from scheduler.lab.tables import lifecycle_table

    fleet = FleetOptions(report_interval_ms=_read("--report-interval", kinds.duration(), report_interval))
    workload = Workload(creates=creates, node_count=nodes, seed=seed, fleet=fleet)
    endings = [_read("--ending", kinds.choice(Ending), name) for name in _parts(ending)]
    quiet_logs()
    with best_server(redis_addr) as address, progress_bars(creates, shown=not as_json) as report:
        results = asyncio.run(compare_endings(workload, endings, address, report))
    title = f"{counted(creates, 'create')} on {counted(nodes, 'node')}, a report every {report_interval}"
    _show(lifecycle_table(results, title), {"lifecycles": [result.as_dict() for result in results]}, as_json=as_json)


@bench_app.command("schedule")
def bench_schedule_command(
    nodes: Annotated[str, typer.Option(metavar="N,N", help="Sizes of fleet.")] = "1000,10000,100000",
    shapes: Annotated[str, typer.Option(metavar="N,N", help="Request shapes in rotation.")] = "1,16",
    strategy: Annotated[str, typer.Option(help="Which strategy decides.")] = Strategy.LEAST_LOADED.value,
    rounds: Annotated[int, typer.Option(min=1, help="The median of this many is told.")] = 9,
    calls: Annotated[int, typer.Option(min=1, help="Script calls in a round.")] = 1_000,
    redis_addr: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A real server; default: a private one for the run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure placements inside the Redis server, beside a script that does nothing."""
    from scheduler.lab.bench import BenchOptions, bench_schedule
    from scheduler.lab.scratch import real_server
    from scheduler.lab.tables import fleet_cost_table, placement_cost_table

    options = BenchOptions(_read("--strategy", kinds.choice(Strategy), strategy), rounds, calls)
    node_counts, shape_counts = _counts("--nodes", nodes), _counts("--shapes", shapes)
    quiet_logs()
    console = Console(stderr=True)
    with real_server(redis_addr) as address, console.status("starting") as status:
        report = asyncio.run(bench_schedule(address, node_counts, shape_counts, options, status.update))
    _show(placement_cost_table(report.placements), report.as_dict(), as_json=as_json)
    if not as_json:
        _show(fleet_cost_table(report.fleets), None, as_json=False)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the server; 0 takes a free one.")] = 0,
) -> None:
    """Show the main job live, over HTTP, on the embedded ledger; under half a minute."""
    from scheduler.lab.demo import run_demo

    quiet_logs()
    asyncio.run(run_demo(wide_console(), port=port, keep=keep))


def fleet(
    url: Annotated[str, typer.Option(help="Where the scheduler, or its balancer, answers HTTP.")],
    nodes: Annotated[int, typer.Option(min=1, help="Machines of 64 CPUs and 128 GiB.")] = 8,
    creates_per_second: Annotated[float, typer.Option(min=0.001, help="Sandboxes asked for, on average.")] = 2.0,
    sandbox_seconds: Annotated[float, typer.Option(min=0.001, help="How long one lives, on average.")] = 60.0,
    report_interval: ReportInterval = "5s",
    node_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="An API key of role node.")] = None,
    gateway_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="One of role gateway.")] = None,
    seed: Seed = 1,
) -> None:
    """Be a cluster for a running scheduler, until Ctrl-C: nodes that report and a gateway that places.

    The scheduler must run with discovery.mode heartbeat, or list node-0, node-1, …"""
    from scheduler.lab.live_fleet import LiveFleet, LiveFleetOptions

    options = LiveFleetOptions(
        url,
        nodes=nodes,
        creates_per_second=creates_per_second,
        sandbox_seconds=sandbox_seconds,
        report_seconds=_read("--report-interval", kinds.duration(), report_interval) / 1000,
        seed=seed,
        node_key=_key_in(node_key_file),
        gateway_key=_key_in(gateway_key_file),
    )
    configure_logging("info", "auto")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line a request would drown ours
    with suppress(KeyboardInterrupt):
        asyncio.run(LiveFleet(options).run())


def _key_in(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"cannot read the key in {file}: {error.strerror}") from error


def wide_console() -> Console:
    """Into a pipe nothing is folded for a terminal that is not there."""
    return Console(width=None if sys.stdout.isatty() else 160)


def quiet_logs() -> None:
    """A run logs every placement and report; here only what went wrong is worth a line."""
    configure_logging("error", "auto")


@contextmanager
def progress_bars(total: int, *, shown: bool) -> Iterator[Any]:
    """One bar a run, on standard error; the value is told a run's name and how far it is."""
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bars:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield report


def _parts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def _counts(option: str, listed: str) -> list[int]:
    return [_read(option, kinds.integer(1, 10_000_000), part) for part in _parts(listed)]


def _read(option: str, kind: kinds.Kind[kinds.T], text: str) -> kinds.T:
    """An option's value, held to the same rules as a configuration key's."""
    try:
        return kind.read(kind.from_text(text))
    except kinds.Unacceptable as refused:
        raise ConfigurationError(f"{option} must be {refused.allowed}, not {text!r}") from None


def _show(table: RenderableType, plain: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    wide_console().print(table)
