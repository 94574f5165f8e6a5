"""Checks that the server's ACL allows every command that scripts need.

A script that is refused a command half-way keeps what it wrote before. So this is checked before the first script,
and again whenever a command was refused: no script starts that is known to fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.connection.keys import Keys
from scheduler.errors import CommandsWithheld

if TYPE_CHECKING:
    from scheduler.connection.client import StoreClient
    from scheduler.connection.exchange import Command

PROOF = "prove_commands"
_SCRATCH_MS = 10_000

# The commands of scripts and plain reads; docs/security.md grants exactly these. Each has arguments for a scratch
# key of its type, for servers whose ACL cannot be queried.
LEDGER_COMMANDS: Final[tuple[tuple[str, str, tuple[str | int, ...]], ...]] = (
    ("SET", "string", ("1",)),
    ("GET", "string", ()),
    ("INCR", "string", ()),
    ("EXISTS", "string", ()),
    ("PERSIST", "string", ()),
    ("HSET", "hash", ("a", "1")),
    ("HGET", "hash", ("a",)),
    ("HMGET", "hash", ("a",)),
    ("HGETALL", "hash", ()),
    ("HKEYS", "hash", ()),
    ("HLEN", "hash", ()),
    ("HEXISTS", "hash", ("a",)),
    ("HINCRBY", "hash", ("a", 1)),
    ("HSCAN", "hash", (0,)),
    ("HDEL", "hash", ("b",)),
    ("RPUSH", "list", ("a", "b", "c")),
    ("LINDEX", "list", (0,)),
    ("LPOP", "list", ()),
    ("SADD", "set", ("a", "b", "c")),
    ("SCARD", "set", ()),
    ("SISMEMBER", "set", ("a",)),
    ("SMISMEMBER", "set", ("a", "b")),
    ("SMEMBERS", "set", ()),
    ("SSCAN", "set", (0,)),
    ("SREM", "set", ("a",)),
    ("SRANDMEMBER", "set", (1,)),
    ("ZADD", "zset", (1, "a", 2, "b")),
    ("ZCARD", "zset", ()),
    ("ZCOUNT", "zset", ("-inf", "+inf")),
    ("ZRANGE", "zset", (0, -1)),
    ("ZRANGEBYLEX", "zset", ("-", "+")),
    ("ZRANGEBYSCORE", "zset", ("-inf", "+inf")),
    ("ZREVRANGEBYSCORE", "zset", ("+inf", "-inf")),
    ("ZLEXCOUNT", "zset", ("-", "+")),
    ("ZMSCORE", "zset", ("a", "b")),
    ("ZRANK", "zset", ("a",)),
    ("ZSCORE", "zset", ("a",)),
    ("ZREM", "zset", ("c",)),
    ("ZREMRANGEBYRANK", "zset", (5, 6)),
    ("ZREMRANGEBYSCORE", "zset", (5, 6)),
    ("ZPOPMIN", "zset", (1,)),
    ("PEXPIRE", "zset", (_SCRATCH_MS,)),
    ("PTTL", "zset", ()),
    ("RENAME", "zset", ("{scratch}:moved",)),
    ("DEL", "moved", ()),
    ("UNLINK", "string", ()),
    ("TIME", "", ()),
)


async def prove_commands(client: StoreClient, keys: Keys) -> None:
    """Raises CommandsWithheld, naming the withheld commands. Leaves nothing behind."""
    names = [name for name, _, _ in LEDGER_COMMANDS]
    if client.options.wait_replicas and not client.embedded:
        names.append("WAIT")
    reply = await client.run(PROOF, ["", *names], settings_key=keys.settings, alone=True)
    if _text(reply[0]) == "unable":
        await try_commands(client, keys)
        return
    withheld = [_text(name).lower() for name in reply[1:]]
    if withheld:
        raise CommandsWithheld(
            f"the ledger: the server's ACL withholds {', '.join(withheld)}; "
            "docs/security.md lists what the scheduler needs"
        ).at(str(client.address))


async def try_commands(client: StoreClient, keys: Keys) -> None:
    """Run each command on a scratch key of the domain; `judge` names the first that is refused."""
    scratch = keys.scratch("")
    commands: list[Command] = [
        ("UNLINK", *(scratch + kind for kind in ("string", "hash", "list", "set", "zset", "moved")))
    ]
    for name, kind, arguments in LEDGER_COMMANDS:
        filled = tuple(scratch + "moved" if argument == "{scratch}:moved" else argument for argument in arguments)
        commands.append((name, scratch + kind, *filled) if kind else (name,))
    commands.append(commands[0])
    await client.pipeline(commands)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
