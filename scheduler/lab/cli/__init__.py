"""The lab's commands: `replay`, `traces`, `lifecycle`, `bench`, `demo`, `fleet`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group

from scheduler.cancellation import run_command
from scheduler.config import kinds
from scheduler.domain.limits import KEYS_PER_NODE_MAX
from scheduler.domain.placement import Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.settings import Admission, AffinitySettings, GroupPlacement, GroupSettings, LedgerSettings
from scheduler.domain.wording import counted
from scheduler.errors import ConfigurationError
from scheduler.lab.cli import bench_commands
from scheduler.lab.cli.lifecycle_command import lifecycle
from scheduler.lab.cli.options import (
    AsJson,
    RedisAddress,
    ReportInterval,
    Seed,
    counts,
    parts,
    progress_bars,
    quiet_logs,
    read_option,
    show,
    wide_console,
)
from scheduler.lab.peers import Peer
from scheduler.lab.trace import BUNDLED_NODES, BUNDLED_REQUESTS, NODE_COLUMNS, REQUEST_COLUMNS
from scheduler.observability.logging import configure_logging

DEFAULT_GROUP_SIZE = 10
NODE_FILE = (
    f"A CSV file, or - for standard input: {', '.join(NODE_COLUMNS)}; "
    "maybe labels (zone=east gpu_model=h100) and resources (gpu=8 disk=4000)."
)
REQUEST_FILE = (
    f"Likewise: {', '.join(REQUEST_COLUMNS)}; "
    "maybe require (zone=east+west), resources (gpu=1) and spread (web zone max=1)."
)

bench_app = typer.Typer(no_args_is_help=True, help="What the scheduler costs the Redis server.")


def register(app: typer.Typer) -> None:
    """Add the lab's commands to the command line."""
    app.command(
        epilog="\b\nExamples:\n"
        "  agentenv-scheduler replay\n"
        "  agentenv-scheduler replay --nodes nodes.csv --requests requests.csv --strategy least_loaded,random --json\n"
        "  agentenv-scheduler replay --time-scale 10 --plot pressure.png"
    )(replay)
    app.command(epilog="\b\nExamples:\n  agentenv-scheduler traces ./clusterdata ./traces")(traces)
    app.command(
        epilog="\b\nExamples:\n"
        "  agentenv-scheduler lifecycle\n"
        "  agentenv-scheduler lifecycle --story burst --ending counters --nodes 20\n"
        "  agentenv-scheduler lifecycle --replicas 3 --time-scale 10"
    )(lifecycle)
    app.command(epilog="\b\nExamples:\n  agentenv-scheduler demo\n  agentenv-scheduler demo --keep --port 8090")(demo)
    app.command(
        epilog="\b\nExamples:\n"
        "  agentenv-scheduler fleet --url http://127.0.0.1:8090\n"
        "  agentenv-scheduler fleet --url http://127.0.0.1:8090 --nodes 50 --creates-per-second 20"
    )(fleet)
    bench_commands.register(bench_app)
    app.add_typer(bench_app, name="bench")


def replay(
    nodes: Annotated[Path, typer.Option(metavar="FILE", help=NODE_FILE)] = BUNDLED_NODES,
    requests: Annotated[Path, typer.Option(metavar="FILE", help=REQUEST_FILE)] = BUNDLED_REQUESTS,
    strategy: Annotated[str, typer.Option(metavar="A,B", help="Which to compare; default: all.")] = ",".join(Strategy),
    time_scale: Annotated[float, typer.Option(help="Requests arrive this many times as fast; none lives shorter.")] = 1,
    redis_addr: RedisAddress = None,
    report_interval: ReportInterval = "5s",
    boot_time: Annotated[str, typer.Option(metavar="DURATION", help="From the VM's start until it runs.")] = "2s",
    overcommit_cpu: Annotated[str, typer.Option(metavar="FACTOR", help="A number, or unlimited.")] = "1",
    overcommit_memory: Annotated[str, typer.Option(metavar="FACTOR", help="A number, or unlimited.")] = "1",
    admission: Annotated[str, typer.Option(help="strategy or always")] = "strategy",
    fill_to: Annotated[
        str, typer.Option(metavar="SHARE", help="Under least_loaded: fill nodes to it one after the other.")
    ] = "0",
    affinity_slack: Annotated[
        str, typer.Option(metavar="SHARE", help="How much fuller a node may be that holds the key; off: no affinity.")
    ] = "off",
    affinity_keys: Annotated[
        int, typer.Option(min=1, max=KEYS_PER_NODE_MAX, help="How many keys affinity takes a node to hold.")
    ] = AffinitySettings().keys_per_node,
    scarce: Annotated[
        str, typer.Option(metavar="A,B", help="Labels and resources that nodes with them are spared for.")
    ] = "",
    group_max_sandboxes: Annotated[int, typer.Option(min=1, help="Budget of a group.")] = DEFAULT_GROUP_SIZE,
    group_max_cpus: Annotated[int, typer.Option(min=0, help="Budget of a group; 0: none.")] = 0,
    group_max_memory_mb: Annotated[int, typer.Option(min=0, help="Budget of a group; 0: none.")] = 0,
    group_placement: Annotated[
        str, typer.Option(metavar="A,B", help="Where a group opens: round_robin, least_loaded, or both to compare.")
    ] = "round_robin",
    lifecycle_: Annotated[str, typer.Option("--lifecycle", help="explicit or heartbeat")] = "explicit",
    warm_keys: Annotated[int, typer.Option(min=1, help="How many keys a node keeps warm.")] = 8,
    peers: Annotated[
        str, typer.Option(metavar="A,B", help="Models of other schedulers to compare with: all, or " + ", ".join(Peer))
    ] = "",
    seed: Seed = 1,
    as_json: AsJson = False,
    bounds: Annotated[
        bool | None,
        typer.Option(help="What no placement could have bettered, too; by default where scipy is installed."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: .png or .svg")] = None,
) -> None:
    """Run a trace against one or more strategies and compare what became of it.

    Without files the bundled trace is used. Time is simulated: months replay in minutes."""
    from scheduler.lab.bounds import bounds_available
    from scheduler.lab.clock import always
    from scheduler.lab.compare import Setup, compare_strategies, contenders
    from scheduler.lab.demand import peak_demand
    from scheduler.lab.fleet import FleetOptions
    from scheduler.lab.plot import check_plot_file, draw
    from scheduler.lab.replay import ReplayOptions
    from scheduler.lab.scratch import best_server
    from scheduler.lab.tables import replay_table
    from scheduler.lab.trace import read_trace

    if plot is not None:
        check_plot_file(plot)
    if bounds and not bounds_available():
        raise ConfigurationError("--bounds needs scipy: pip install 'agentenv-scheduler[bounds]'")
    trace = read_trace(nodes, requests).compressed(time_scale)
    for columns in trace.unread:
        typer.echo(f"columns that are not read, of {columns}", err=True)
    strategies = [read_option("--strategy", kinds.choice(Strategy), name) for name in parts(strategy)]
    settings = LedgerSettings(
        admission=read_option("--admission", kinds.choice(Admission), admission),
        overcommit_cpu=read_option("--overcommit-cpu", kinds.overcommit(), overcommit_cpu),
        overcommit_memory=read_option("--overcommit-memory", kinds.overcommit(), overcommit_memory),
        fill_to=read_option("--fill-to", kinds.share(), fill_to),
        affinity=AffinitySettings(read_option("--affinity-slack", kinds.share_or_off(), affinity_slack), affinity_keys),
        resources=trace.resource_names,
        scarce=read_option("--scarce", kinds.label_names(), scarce),
        groups=GroupSettings(
            max_sandbox_count=group_max_sandboxes,
            max_cpu_count=group_max_cpus,
            max_memory_mb=group_max_memory_mb,
        ),
    )
    nowhere = set(settings.scarce) - {name for node in trace.nodes for name in (*node.labels, *node.resources)}
    if nowhere:
        typer.echo(f"--scarce: no node has {', '.join(sorted(nowhere))}", err=True)
    fleet = FleetOptions(
        report_interval=always(read_option("--report-interval", kinds.duration(), report_interval)),
        boot=always(read_option("--boot-time", kinds.duration(), boot_time)),
        idle_reports=False,
    )
    options = ReplayOptions(
        read_option("--lifecycle", kinds.choice(Lifecycle), lifecycle_),
        warm_keys,
        fleet,
        bounds=bounds_available() if bounds is None else bounds,
    )
    models = [read_option("--peers", kinds.choice(Peer), name) for name in (Peer if peers == "all" else parts(peers))]
    placements = [
        read_option("--group-placement", kinds.choice(GroupPlacement), name) for name in parts(group_placement)
    ]
    quiet_logs()
    with best_server(redis_addr) as address, progress_bars(len(trace.requests), shown=not as_json) as report:
        setup = Setup(address, settings, options, seed)
        results = run_command(compare_strategies(trace, contenders(strategies, placements, models), setup, report))
    if plot is not None:
        draw(results, plot)
    title = f"{counted(len(trace.requests), 'request')} on {counted(len(trace.nodes), 'node')}"
    demand = peak_demand(trace)
    plain = {"demand": demand.as_dict(), "strategies": [result.as_dict() for result in results]}
    show(Group(replay_table(results, title), demand.sentences()), plain, as_json=as_json)


def traces(
    clusterdata: Annotated[Path, typer.Argument(help="A checkout of https://github.com/alibaba/clusterdata.")],
    folder: Annotated[Path, typer.Argument(help="Where the files are made; it is created.")],
) -> None:
    """Make the traces of docs/strategies.md from the published files, for `replay`."""
    from scheduler.lab.published import normalise

    for file, rows in normalise(clusterdata, folder):
        typer.echo(f"{file}: {counted(rows, 'row')}")


@bench_app.command(
    "schedule",
    epilog="\b\nExamples:\n"
    "  agentenv-scheduler bench schedule --nodes 1000,10000\n"
    "  agentenv-scheduler bench schedule --strategy round_robin --redis-addr 127.0.0.1:6379 --json",
)
def bench_schedule_command(
    nodes: Annotated[str, typer.Option(metavar="N,N", help="Sizes of fleet.")] = "1000,10000,100000",
    shapes: Annotated[str, typer.Option(metavar="N,N", help="Request shapes in rotation.")] = "1,16",
    strategy: Annotated[str, typer.Option(help="Which strategy decides.")] = Strategy.LEAST_LOADED.value,
    fill_to: Annotated[
        str, typer.Option(metavar="SHARE", help="Under least_loaded: fill nodes to it one after the other.")
    ] = "0",
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
    from scheduler.lab.tables import batch_cost_table, fleet_cost_table, placement_cost_table

    options = BenchOptions(
        read_option("--strategy", kinds.choice(Strategy), strategy),
        rounds,
        calls,
        fill_to=read_option("--fill-to", kinds.share(), fill_to),
    )
    node_counts, shape_counts = counts("--nodes", nodes), counts("--shapes", shapes)
    quiet_logs()
    console = Console(stderr=True)
    with real_server(redis_addr) as address, console.status("starting") as status:
        report = run_command(bench_schedule(address, node_counts, shape_counts, options, status.update))
    show(placement_cost_table(report.placements), report.as_dict(), as_json=as_json)
    if not as_json:
        show(fleet_cost_table(report.fleets), None, as_json=False)
        show(batch_cost_table(report.fleets), None, as_json=False)


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Go on until Ctrl-C, with a fleet that moves: look at its console.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the server; 0 takes a free one.")] = 0,
) -> None:
    """Show the main job live, over HTTP, on the embedded ledger; under half a minute."""
    from scheduler.lab.demo import run_demo

    quiet_logs()
    run_command(run_demo(wide_console(), port=port, keep=keep))


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
        report_seconds=read_option("--report-interval", kinds.duration(), report_interval) / 1000,
        seed=seed,
        node_key=_key_in(node_key_file),
        gateway_key=_key_in(gateway_key_file),
    )
    configure_logging("info", "auto")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line a request would drown ours
    run_command(LiveFleet(options).run())


def _key_in(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"cannot read the key in {file}: {error.strerror}") from error
