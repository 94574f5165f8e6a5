"""The command line. Each command's body lives with its owner and is imported when it runs.

__init__.py   which command is meant, and how it ends
serve.py      `serve` and `config`
lua.py        `lua list` and `lua render`

A mistake of the caller's ends with exit status 2 and one clear message, a failure with 1, Ctrl-C with 130.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Annotated

import typer

from scheduler import __version__
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.ledger.format import FORMAT

app = typer.Typer(
    name="agentenv-scheduler",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agentenv-scheduler {__version__}")
        typer.echo(f"ledger format {FORMAT}")
        raise typer.Exit


@app.callback()
def agentenv_scheduler(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_say_version,
            is_eager=True,
            help="Say which version this is, and of which ledger format.",
        ),
    ] = False,
) -> None:
    """A Redis-backed distributed scheduler for AgentENV clusters.

    `agentenv-scheduler COMMAND --help` shows what a command takes, with examples."""


@app.command(epilog="\b\nExamples:\n  agentenv-scheduler version")
def version() -> None:
    """Say which version this is, and which format of the ledger it knows."""
    _say_version(True)


def _probe(arguments: Sequence[str]) -> int:
    from scheduler.health_probe import main as probe

    return probe(arguments)


@app.command(
    "grpc-health-probe",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="\b\nExamples:\n  agentenv-scheduler grpc-health-probe -addr 127.0.0.1:9090 -service readiness",
)
def probe_grpc(context: typer.Context) -> None:
    """Ask a gRPC server whether it is serving; takes the options of the well-known probe of that name."""
    raise typer.Exit(_probe(context.args))


def _add_serve() -> None:
    from scheduler.cli.serve import register

    register(app)


def _add_lua() -> None:
    from scheduler.cli.lua import lua_app

    app.add_typer(lua_app, name="lua")


def _add_inspect() -> None:
    from scheduler.inspection.cli import inspect_app

    app.add_typer(inspect_app, name="inspect")


def _add_keys() -> None:
    from scheduler.access.cli import keys_app

    app.add_typer(keys_app, name="keys")


def _add_operating() -> None:
    from scheduler.operating.cli.over_http import register

    register(app)


def _add_lab() -> None:
    from scheduler.lab.cli import register

    register(app)


# Whoever asks for one command pays for the imports of no other.
_COMMANDS: Mapping[Callable[[], None], Sequence[str]] = {
    _add_serve: ("serve", "config"),
    _add_operating: (
        "nodes",
        "reservations",
        "sandbox",
        "replicas",
        "settings",
        "summary",
        "decisions",
        "audit",
        "warm-keys",
    ),
    _add_inspect: ("inspect",),
    _add_keys: ("keys",),
    _add_lab: ("replay", "traces", "lifecycle", "bench", "demo", "fleet"),
    _add_lua: ("lua",),
}
_ADDED_BY = {name: add for add, names in _COMMANDS.items() for name in names}
_HERE = frozenset({"version", "--version", "grpc-health-probe"})
_add_once = functools.cache(lambda add: add())


def complete_app() -> typer.Typer:
    """The command line with every command there is."""
    for add in _COMMANDS:
        _add_once(add)
    return app


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line with the command that is asked for, or with all when it knows none of that name."""
    named = arguments[0] if arguments else ""
    if named in _ADDED_BY:
        _add_once(_ADDED_BY[named])
        return _narrowed(app, arguments)
    return app if named in _HERE else complete_app()


def _narrowed(whole: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The group with nothing but the command that the words name, as far as they name one: building the options of all
    others takes longer than most commands."""
    named = words[0] if words else ""
    commands = [each for each in whole.registered_commands if each.name == named]
    groups = [copy(each) for each in whole.registered_groups if each.name == named]
    if not (commands or groups):
        return whole
    for group in groups:
        group.typer_instance = group.typer_instance and _narrowed(group.typer_instance, words[1:])
    narrowed = copy(whole)
    narrowed.registered_commands, narrowed.registered_groups = commands, groups
    return narrowed


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
    try:
        app_for_command = _app_for(understood)
        if not gc.isenabled():
            gc.freeze()  # what was imported stays, and is not looked through again, at the exit neither
            gc.enable()
        app_for_command(understood, prog_name="agentenv-scheduler")
    except KeyboardInterrupt:
        sys.exit(130)
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
