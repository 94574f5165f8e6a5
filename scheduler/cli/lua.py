"""`agentenv-scheduler lua …`: the scripts, as Redis gets them."""

from __future__ import annotations

from typing import Annotated

import typer

lua_app = typer.Typer(no_args_is_help=True, help="The scripts that decide, as Redis gets them.")


@lua_app.command("list", epilog="\b\nExamples:\n  agentenv-scheduler lua list")
def list_scripts() -> None:
    """Name every script, and what it does."""
    from scheduler.connection.scripts import ScriptLibrary

    library = ScriptLibrary.load()
    width = max((len(name) for name in library.names), default=0)
    for script in library:
        typer.echo(f"{script.name:<{width}}  {script.contract.summary}")


@lua_app.command("render", epilog="\b\nExamples:\n  agentenv-scheduler lua render schedule_sandbox")
def render_script(name: Annotated[str, typer.Argument(help="As `lua list` names it.")]) -> None:
    """Print a script with its includes put in, as it is sent to Redis.

    A comment tells where each stretch of a file begins. A fragment that reads or sets other names than its head says is
    an error."""
    from scheduler.connection.fragments import check_script
    from scheduler.connection.scripts import ScriptLibrary

    library = ScriptLibrary.load()
    if name.removesuffix(".lua") not in library:
        known = ", ".join(library.names)
        raise typer.BadParameter(f"there is no script named {name}; there are {known}", param_hint="NAME")
    script = library.get(name.removesuffix(".lua"))
    check_script(script)
    typer.echo(script.text)
