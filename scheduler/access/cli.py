"""`agentenv-scheduler keys …`: makes API keys and their entries."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from scheduler.access.key_file import InvalidEntry, KeyEntry, add_to_file, entry_of, save_key
from scheduler.access.keys import generate_key, hash_key
from scheduler.access.roles import Role

# AgentENV's own rule for its gateway's key, so one key may serve both.
_KEY = re.compile(r"[A-Za-z0-9._~-]{32,256}")


def _role(text: str) -> Role:
    if text not in list(Role):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(Role)}", param_hint="--role")
    return Role(text)


Name = Annotated[
    str,
    typer.Argument(
        help="The caller this key stands for: 1 to 64 of A-Z, a-z, 0-9, dot, underscore and dash. The same name "
        "once more to rotate."
    ),
]
GivenRole = Annotated[
    Role,
    typer.Option(
        parser=_role,
        metavar="|".join(Role),
        show_default=False,
        help="What the key may do: a node reports, a gateway places and reads, an admin may do everything. "
        "[default: gateway]",
    ),
]
NodeId = Annotated[
    str | None, typer.Option(metavar="ID", help="Binds a key of role node to this one node. [default: any node]")
]
KeyFile = Annotated[
    Path,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The file that `http.api_keys` names, JSON or TOML (by its suffix). One that is not there is made, "
        "for its owner alone.",
    ),
]

SavedKey = Annotated[
    Path | None,
    typer.Option(
        "--save-key",
        metavar="FILE",
        help="A new file for the key, which its owner alone can read. [default: standard output]",
    ),
]

keys_app = typer.Typer(help="API keys: make one, hash one, add one to the file of keys.", no_args_is_help=True)


@keys_app.command(
    "add",
    epilog="\b\nExamples:\n"
    "  agentenv-scheduler keys add ops --role admin --file keys.json\n"
    "  agentenv-scheduler keys add node-7 --role node --node-id node-7 --file keys.json --save-key node-7.key",
)
def add(
    name: Name, file: KeyFile, role: GivenRole = Role.GATEWAY, node_id: NodeId = None, saved: SavedKey = None
) -> None:
    """Make a key and add its hash to the file of keys, which running replicas read again within a second.

    The key is shown once, on standard output or in the file of --save-key; the file of keys holds only its hash."""
    key = generate_key()
    entry = _entry(name, role, key, node_id)
    if saved is None:
        add_to_file(file, entry)
        typer.echo(f"{name}, role {role.value}, added to {file}; the key is shown once:", err=True)
        typer.echo(key)
        _warn_when_others_can_read(1)
        return
    save_key(saved, key)
    try:
        add_to_file(file, entry)
    except BaseException:
        saved.unlink()  # a key that opens nothing
        raise
    typer.echo(f"{name}, role {role.value}, added to {file}; the key is in {saved}", err=True)


@keys_app.command("new", epilog="\b\nExamples:\n  agentenv-scheduler keys new edge-gateway --role gateway")
def new(name: Name, role: GivenRole = Role.GATEWAY, node_id: NodeId = None) -> None:
    """Make a key. It is shown once, on standard error; standard output is the entry for the key file."""
    key = generate_key()
    entry = _entry(name, role, key, node_id)
    typer.echo(f"key (shown once): {key}", err=True)
    _warn_when_others_can_read(2)
    typer.echo(json.dumps(entry.as_dict()))


@keys_app.command("hash", epilog="\b\nExamples:\n  agentenv-scheduler keys hash edge-gateway --role gateway")
def hash_given(name: Name, role: GivenRole = Role.GATEWAY, node_id: NodeId = None) -> None:
    """Write the entry for a key that already exists, read from a prompt without echo, or from a pipe."""
    _entry(name, role, "", node_id)
    key = _asked_for() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not _KEY.fullmatch(key):
        # What can be guessed would need a slow hash; keys that cannot are long and random.
        raise typer.BadParameter("a key has 32 to 256 characters of A-Z, a-z, 0-9, dot, underscore, tilde and dash")
    typer.echo(json.dumps(_entry(name, role, key, node_id).as_dict()))


def _asked_for() -> str:
    try:
        return str(typer.prompt("key", hide_input=True, err=True))
    except typer.Abort as aborted:
        if isinstance(aborted.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # ends as every command does
        raise


def _warn_when_others_can_read(descriptor: int) -> None:
    """A shell makes the file behind `>` with its own umask, most often readable by everybody."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        typer.echo("warning: others on this machine can read the file that the key went to: chmod 600 it", err=True)


def _entry(name: str, role: Role, key: str, node_id: str | None) -> KeyEntry:
    """The entry, by the same rules as `serve`."""
    item = {"name": name, "role": role.value, "sha256": hash_key(key)}
    try:
        return entry_of(item if node_id is None else {**item, "node_id": node_id})
    except InvalidEntry as invalid:
        raise typer.BadParameter(str(invalid)) from None
