"""`agentenv-scheduler keys …`: making API keys."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from scheduler.access.keys import generate_key, hash_key
from scheduler.access.roles import Role

# AgentENV's own rule for its gateway's key, so one key may serve both.
_KEY = re.compile(r"[A-Za-z0-9._~-]{32,256}")


def _role(text: str) -> Role:
    if text not in list(Role):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(Role)}", param_hint="--role")
    return Role(text)


GivenRole = Annotated[Role, typer.Option(parser=_role, metavar="|".join(Role), help="What the key may do.")]

keys_app = typer.Typer(help="API keys: make one, hash one.", no_args_is_help=True)


@keys_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="The caller this key stands for; the same name again to rotate.")],
    role: GivenRole = Role.GATEWAY,
    node_id: Annotated[str | None, typer.Option(help="Binds a node key to this one node.")] = None,
) -> None:
    """Make a key. It is shown once, on standard error; standard output is the entry for the key file."""
    if node_id is not None and role is not Role.NODE:
        raise typer.BadParameter("only a key of role node may be bound to a node", param_hint="--node-id")
    key = generate_key()
    typer.echo(f"key (shown once): {key}", err=True)
    typer.echo(_entry(name, role, key, node_id))


@keys_app.command("hash")
def hash_given(
    name: Annotated[str, typer.Argument(help="The caller this key stands for.")],
    role: GivenRole = Role.GATEWAY,
) -> None:
    """Write the entry for a key that already exists, read from a prompt without echo."""
    key = typer.prompt("key", hide_input=True, err=True)
    if not _KEY.fullmatch(key):
        # What can be guessed would need a slow hash; keys that cannot are long and random.
        raise typer.BadParameter("a key has 32 to 256 characters of A-Z, a-z, 0-9, dot, underscore, tilde and dash")
    typer.echo(_entry(name, role, key, None))


def _entry(name: str, role: Role, key: str, node_id: str | None) -> str:
    entry = {"name": name, "role": role.value, "sha256": hash_key(key)}
    if node_id is not None:
        entry["node_id"] = node_id
    return json.dumps(entry)
