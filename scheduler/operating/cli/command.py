"""How a command is made of its own parameters, those of what it asks, and those of how it shows the answer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from scheduler.cancellation import run_command
from scheduler.domain.duration import DURATION_FORM, parse_duration_ms
from scheduler.domain.text import ID_FORM, clean_id
from scheduler.errors import ConfigurationError
from scheduler.operating.cli.display import Display
from scheduler.operating.listing import Listing
from scheduler.operating.source import Source

# Its parameters are options of every command that asks what it opens.
Opening = Callable[..., AbstractAsyncContextManager[Source]]
Work = Callable[..., Awaitable[None]]


class ListByDefault(TyperGroup):
    """`nodes` alone is `nodes list`, as `inspect nodes` has always been."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args.insert(0, "list")
        return super().parse_args(ctx, args)


def asking(opening: Opening, *, lists: Listing[Any] | None = None, views: bool = False) -> Callable[[Work], Any]:
    """A command from `async def work(source, …)`, which also gets a `display` when it lists or views something."""
    shown = _display_parameters(lists) if lists is not None or views else {}

    def decorate(work: Work) -> Callable[..., None]:
        connection = _parameters(opening)
        own = _parameters(work)
        own.pop("source")
        own.pop("display", None)

        @functools.wraps(work)
        def command(**given: Any) -> None:
            where = {name: given.pop(name) for name in connection}
            if shown:
                given["display"] = _display(**{name: given.pop(name) for name in shown})

            async def run() -> None:
                async with opening(**where) as source:
                    await work(source, **given)

            run_command(run())

        parameters = own | shown | connection
        command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]  # read by Typer
        command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        return command

    return decorate


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters
    return {name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in found.items()}


def _display_parameters(lists: Listing[Any] | None) -> dict[str, inspect.Parameter]:
    def keyword(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
        annotation = Annotated[kind, option]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    parameters = [
        keyword("as_json", bool, typer.Option("--json", help="For programs; with --watch one line each time."), False),
        keyword("watch", bool, typer.Option("--watch", help="Again and again, until Ctrl-C."), False),
        keyword("interval", str, typer.Option(metavar="DURATION", help="Between two looks of --watch."), "2s"),
    ]
    if lists is not None:
        names = "|".join(lists.names)
        sort = typer.Option("--sort", metavar=names, help="Sort by this column; -COLUMN the other way round.")
        parameters.insert(0, keyword("sort", str | None, sort, None))
    return {parameter.name: parameter for parameter in parameters}


def _display(*, as_json: bool, watch: bool, interval: str, sort: str | None = None) -> Display:
    return Display(as_json, seconds("--interval", interval) if watch else None, sort)


def identifier(text: str) -> str:
    """An id as the API takes it: trimmed. One that is none, as from an empty shell variable, never reaches a source."""
    found = clean_id(text)
    if found is None:
        raise typer.BadParameter(f"an id must be {ID_FORM}, not {text!r}")
    return found


def seconds(option: str, text: str) -> float:
    """A duration above zero. Raises ConfigurationError."""
    try:
        ms = parse_duration_ms(text)
    except ValueError:
        ms = 0
    if ms <= 0:
        raise ConfigurationError(f"{option} must be {DURATION_FORM}, greater than zero, not {text!r}")
    return ms / 1000


def examples(prefix: str, *lines: str) -> str:
    """The end of a command's help. Lines start with the words after the program's name."""
    return "\n".join(["\b", "Examples:", *(f"  agentenv-scheduler {prefix}{line}".rstrip() for line in lines)])
