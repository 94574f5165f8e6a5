"""`serve`, and `config`, which shows what `serve` would run with."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.config.key import Key
from scheduler.config.keys import KEYS, SECTIONS

_SERVE_EXAMPLES = """\b
Examples:
  agentenv-scheduler serve
  agentenv-scheduler serve --redis-addr redis://127.0.0.1:6379 --strategy least_loaded
  agentenv-scheduler serve --config scheduler.toml --set overcommit.cpu=1.5
  SCHEDULER_REDIS_ADDR=redis:6379 agentenv-scheduler serve --host 0.0.0.0 --insecure"""
_CONFIG_EXAMPLES = """\b
Examples:
  agentenv-scheduler config
  agentenv-scheduler config --config scheduler.toml --changed
  agentenv-scheduler config --json --set report_ttl=1m"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_SERVE_EXAMPLES)(serve)
    app.command(epilog=_CONFIG_EXAMPLES)(config)


def _of(path: str, *names: str, metavar: str | None = None) -> Any:
    """The option that sets this key: its help says what is allowed, the default and the variable."""
    key = KEYS[path]
    return typer.Option(*names, metavar=metavar or _metavar(key), help=_help(key), show_default=False)


def _metavar(key: Key) -> str | None:
    allowed = key.kind.allowed
    return "|".join(allowed.removeprefix("one of ").split(", ")) if allowed.startswith("one of ") else None


def _help(key: Key) -> str:
    default = _shown(key.shown(key.default))
    parts = [f"default: {default}"] if default else []
    parts.append(f"env: {', '.join(key.environment)}")
    return f"{key.summary} [{'; '.join(parts)}]"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="JSON or TOML; AgentENV's own file works as it is. [env: SCHEDULER_CONFIG]"
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any configuration key, as `config` lists them. May be repeated; of one key the last counts, also before "
        "the key's own option.",
    ),
]
Host = Annotated[str | None, _of("http.host", metavar="ADDRESS")]
Port = Annotated[int | None, _of("http.port", metavar="PORT")]
GrpcPort = Annotated[int | None, _of("grpc.port", metavar="PORT")]
GrpcListenAddress = Annotated[str | None, _of("grpc_listen_addr", metavar="HOST:PORT")]
Grpc = Annotated[bool | None, _of("grpc.enabled", "--grpc/--no-grpc")]
MetricsPort = Annotated[int | None, _of("metrics.port", metavar="PORT")]
MetricsListener = Annotated[bool | None, _of("metrics.enabled", "--metrics-listener/--no-metrics-listener")]
RedisAddress = Annotated[str | None, _of("redis_addr", metavar="ADDRESS")]
Domain = Annotated[str | None, _of("domain", metavar="NAME")]
StrategyName = Annotated[str | None, _of("strategy")]
QueryOnly = Annotated[bool | None, _of("query_only", "--query-only/--no-query-only")]
Insecure = Annotated[bool | None, _of("http.insecure", "--insecure")]
Level = Annotated[str | None, _of("log_level")]
Form = Annotated[str | None, _of("log_format")]


def serve(
    config_file: ConfigFile = None,
    host: Host = None,
    port: Port = None,
    grpc_port: GrpcPort = None,
    grpc_listen_addr: GrpcListenAddress = None,
    grpc: Grpc = None,
    metrics_port: MetricsPort = None,
    metrics_listener: MetricsListener = None,
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    strategy: StrategyName = None,
    query_only: QueryOnly = None,
    insecure: Insecure = None,
    log_level: Level = None,
    log_format: Form = None,
    assignments: Assignments = None,
) -> None:
    """Run one replica until it is told to stop.

    Every option is a configuration key as well; an option goes before the environment, that before the file. SIGTERM or
    Ctrl-C stop it in order, SIGHUP has it read its files again."""
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


def config(
    config_file: ConfigFile = None,
    assignments: Assignments = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show the configuration in force: every key, its value, and where that came from. Secrets are hidden."""
    from scheduler.config import load_configuration

    configuration = load_configuration(config_file=config_file, options=_assigned(assignments))
    for warning in configuration.warnings:
        typer.echo(f"warning: {warning}", err=True)
    described = {
        entry.key.path: {"value": entry.value, "source": entry.source}
        for entry in configuration.describe()
        if not changed or entry.source != "default"
    }
    if as_json:
        typer.echo(json.dumps(described, ensure_ascii=False, indent=2))
        return
    for line in _page(described, _width()):
        typer.echo(line)


def _width() -> int | None:
    """The width of the terminal; into a pipe nothing is folded."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return max(get_terminal_size().columns, 40)


def _page(described: Mapping[str, Mapping[str, Any]], width: int | None) -> Iterator[str]:
    """`key = value`, section by section; where a value came from stands below it, unless it is the default."""
    parted = ""
    for title, keys in SECTIONS.items():
        shown = [key.path for key in keys if key.path in described]
        if not shown:
            continue
        yield f"{parted}{title}"
        parted = "\n"
        for path in shown:
            entry = described[path]
            line = f"  {path} = {_shown(entry['value'])}".rstrip()
            yield from textwrap.wrap(line, width, subsequent_indent="      ") if width else [line]
            if entry["source"] != "default":
                yield f"      from {entry['source']}"


def _assigned(assignments: Sequence[str] | None) -> dict[str, object]:
    """`--set KEY=VALUE`; the last of one key wins."""
    assigned: dict[str, object] = {}
    for assignment in assignments or ():
        path, equals, value = assignment.partition("=")
        if not equals or not path.strip():
            raise typer.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint="--set")
        assigned[path.strip().lower()] = value
    return assigned
