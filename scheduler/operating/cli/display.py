"""Showing what was found: once or again and again, to people or to programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.operating.words import visible

if TYPE_CHECKING:
    from rich.table import Table

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class View:
    """Shows a result to people or to programs; `note` goes to people's standard error."""

    people: Table | Iterable[str]
    plain: Any
    note: str = ""


@dataclass(frozen=True, slots=True)
class Display:
    """`every_seconds` None: once."""

    as_json: bool = False
    every_seconds: float | None = None
    sort: str | None = None

    async def show(self, look: Callable[[], Awaitable[View]]) -> None:
        """What `look` finds. While it watches, a look that fails is told and followed by the next."""
        while True:
            try:
                view = await look()
            except ConfigurationError:
                raise
            except SchedulerError as error:
                if self.every_seconds is None:
                    raise
                typer.echo(f"agentenv-scheduler: {error.full_detail}", err=True)
            else:
                self._print(view)
            if self.every_seconds is None:
                return
            await asyncio.sleep(self.every_seconds)

    def _print(self, view: View) -> None:
        if self.as_json:
            typer.echo(json.dumps(view.plain, ensure_ascii=False, indent=None if self.every_seconds else 2))
            return
        if self.every_seconds is not None and sys.stdout.isatty():
            typer.echo(_HOME_AND_CLEAR, nl=False)
        print_for_people(view.people)
        if view.note:
            typer.echo(view.note, err=True)


def print_for_people(people: Table | Iterable[str]) -> None:
    if isinstance(people, Iterable):
        for line in people:
            typer.echo(visible(line))
        return
    from rich.console import Console

    # Into a pipe nothing is folded for a terminal that is not there.
    Console(width=None if sys.stdout.isatty() else 250).print(people, markup=False)
