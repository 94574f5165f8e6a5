"""What the lab's commands share: their common options, how an option is read, and how results are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from scheduler.config import kinds
from scheduler.errors import ConfigurationError
from scheduler.lab.clock import Spread
from scheduler.observability.logging import configure_logging

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


def parts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def counts(option: str, listed: str) -> list[int]:
    return [read_option(option, kinds.integer(1, 10_000_000), part) for part in parts(listed)]


def read_option(option: str, kind: kinds.Kind[kinds.T], text: str) -> kinds.T:
    """An option's value, held to the same rules as a configuration key's."""
    try:
        return kind.read(kind.from_text(text))
    except kinds.Unacceptable as refused:
        raise ConfigurationError(f"{option} must be {refused.allowed}, not {text!r}") from None


def show(table: RenderableType, plain: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    wide_console().print(table)


def read_spread(option: str, text: str) -> Spread:
    """`5s`, or `2s-20s` for anything between the two."""
    least_text, dash, most_text = text.partition("-")
    least_ms = read_option(option, kinds.duration(), least_text)
    most_ms = read_option(option, kinds.duration(), most_text) if dash else least_ms
    if most_ms < least_ms:
        raise ConfigurationError(f"{option} must be a duration, or two with the shorter one first, not {text!r}")
    return Spread(least_ms, most_ms)
