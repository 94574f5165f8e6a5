"""The command line. Each command's body lives with its owner and is imported when it runs.

A mistake of the caller's ends with exit status 2 and one clear message, a failure with 1.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from scheduler import __version__
from scheduler.errors import ConfigurationError, SchedulerError

app = typer.Typer(
    name="agentenv-scheduler",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
lua_app = typer.Typer(no_args_is_help=True, help="The scripts that decide, as Redis gets them.")
app.add_typer(lua_app, name="lua")


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agentenv-scheduler {__version__}")
        raise typer.Exit


@app.callback()
def agentenv_scheduler(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """A Redis-backed distributed scheduler for AgentENV clusters."""


ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="JSON or TOML; AgentENV's own file works as it is.")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any configuration key; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command()
def serve(
    config_file: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="The address HTTP listens on.")] = None,
    port: Annotated[int | None, typer.Option(help="Its port; 0 takes a free one.")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="The port of gRPC; 0 takes a free one.")] = None,
    grpc_listen_addr: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where gRPC listens.")] = None,
    grpc: Annotated[bool | None, typer.Option("--grpc/--no-grpc", help="Serve AgentENV's gRPC interface.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="The port of the metrics listener.")] = None,
    metrics_listener: Annotated[
        bool | None,
        typer.Option("--metrics-listener/--no-metrics-listener", help="Metrics on a port of their own."),
    ] = None,
    redis_addr: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="embedded, host:port, or redis[s]://, unix://, sentinel://, cluster://"),
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Which ledger of that server.")] = None,
    strategy: Annotated[str | None, typer.Option(help="How a node is chosen.")] = None,
    query_only: Annotated[
        bool | None, typer.Option("--query-only/--no-query-only", help="Only LookupNode and health, over gRPC.")
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Be open beyond loopback without API keys.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, json or console")] = None,
    assignments: Assignments = None,
) -> None:
    """Run one replica until it is told to stop."""
    from scheduler.config import load_configuration
    from scheduler.replica import run

    options: dict[str, object] = {
        "http.host": host,
        "http.port": port,
        "grpc.port": grpc_port,
        "grpc_listen_addr": grpc_listen_addr,
        "grpc.enabled": grpc,
        "metrics.port": metrics_port,
        "metrics.enabled": metrics_listener,
        "redis_addr": redis_addr,
        "domain": domain,
        "strategy": strategy,
        "query_only": query_only,
        "http.insecure": insecure,
        "log_level": log_level,
        "log_format": log_format,
    }
    run(load_configuration(config_file=config_file, options=options | _assigned(assignments)))


@app.command()
def config(config_file: ConfigFile = None, assignments: Assignments = None, as_json: AsJson = False) -> None:
    """Show the configuration in force: every key, its value, and where that came from. Secrets are hidden."""
    from rich.console import Console
    from rich.table import Table

    from scheduler.config import load_configuration

    configuration = load_configuration(config_file=config_file, options=_assigned(assignments))
    for warning in configuration.warnings:
        typer.echo(f"warning: {warning}", err=True)
    described = list(configuration.describe())
    if as_json:
        keys = {entry.key.path: {"value": entry.value, "source": entry.source} for entry in described}
        typer.echo(json.dumps(keys, ensure_ascii=False, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for entry in described:
        value = "" if entry.value is None else entry.value
        value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        table.add_row(entry.key.path, value, entry.source, style="dim" if entry.source == "default" else None)
    # Into a pipe nothing is folded for a terminal that is not there.
    Console(width=None if sys.stdout.isatty() else 250).print(table, markup=False)


@app.command()
def version() -> None:
    """Say which version this is."""
    _say_version(True)


@lua_app.command("list")
def list_scripts() -> None:
    """Name every script, and what it does."""
    from scheduler.store.scripts import ScriptLibrary

    library = ScriptLibrary.load()
    width = max((len(name) for name in library.names), default=0)
    for script in library:
        typer.echo(f"{script.name:<{width}}  {script.contract.summary}")


@lua_app.command("render")
def render_script(name: Annotated[str, typer.Argument(help="As `lua list` names it.")]) -> None:
    """Print a script with its includes put in, as it is sent to Redis."""
    from scheduler.store.scripts import ScriptLibrary

    library = ScriptLibrary.load()
    if name.removesuffix(".lua") not in library:
        known = ", ".join(library.names)
        raise typer.BadParameter(f"there is no script named {name}; there are {known}", param_hint="NAME")
    typer.echo(library.render(name.removesuffix(".lua")))


def _assigned(assignments: Sequence[str] | None) -> dict[str, object]:
    """`--set KEY=VALUE`; the last of one key wins."""
    assigned: dict[str, object] = {}
    for assignment in assignments or ():
        path, equals, value = assignment.partition("=")
        if not equals or not path.strip():
            raise typer.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint="--set")
        assigned[path.strip().lower()] = value
    return assigned


@app.command(
    "grpc-health-probe",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def probe_grpc(context: typer.Context) -> None:
    """Ask a gRPC server whether it is serving; takes the options of the well-known probe of that name."""
    from scheduler.health_probe import main as probe

    raise typer.Exit(probe(context.args))


_OWN_COMMANDS = frozenset({"serve", "config", "version", "lua", "grpc-health-probe"})


@functools.cache
def complete_app() -> typer.Typer:
    """With the commands of the lab, of inspection and of access. `serve` runs without ever importing them."""
    from scheduler.access.cli import keys_app
    from scheduler.inspection.cli import inspect_app
    from scheduler.lab.cli import register

    app.add_typer(inspect_app, name="inspect")
    app.add_typer(keys_app, name="keys")
    register(app)
    return app


def understand_agentenv(arguments: Sequence[str]) -> list[str]:
    """AgentENV's spellings: Go's single dash, `-query-only=false`, and no command before them."""
    understood: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in {"-config", "--config"}:
            understood.append(f"--config{equals}{value}")
        elif name in {"-query-only", "--query-only"}:
            is_off = equals and value.lower() in {"0", "f", "false"}
            understood.append("--no-query-only" if is_off else "--query-only")
        else:
            understood.append(argument)
    if understood and understood[0].startswith(("--config", "--query-only", "--no-query-only")):
        understood.insert(0, "serve")
    return understood


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    understood = understand_agentenv(sys.argv[1:] if arguments is None else arguments)
    if not understood or understood[0] not in _OWN_COMMANDS:
        complete_app()
    try:
        app(understood, prog_name="agentenv-scheduler")
    except ConfigurationError as error:
        _fail(error.full_detail, 2)
    except SchedulerError as error:
        _fail(error.full_detail, 1)
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(message: str, status: int) -> None:
    typer.echo(f"agentenv-scheduler: {message}", err=True)
    sys.exit(status)
