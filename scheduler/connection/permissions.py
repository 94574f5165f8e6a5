"""Checks that the server's ACL allows every command that scripts need.

A script that is refused a command half-way keeps what it wrote before. So this is checked before the first script,
and again whenever a command was refused: no script starts that is known to fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.connection.exchange import Command
from scheduler.connection.keys import Keys

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


def commands(*, waits: bool) -> list[str]:
    """Their names, with WAIT for a client that waits for replicas."""
    return [name for name, _, _ in LEDGER_COMMANDS] + (["WAIT"] if waits else [])


def withheld_in(reply: Sequence[bytes | str]) -> list[str] | None:
    """What prove_commands.lua told; None: the server cannot be asked, and the trial will show it."""
    status, *withheld = map(_text, reply)
    return None if status == "unable" else [name.lower() for name in withheld]


def trial(keys: Keys) -> list[Command]:
    """Every command on a scratch key of the domain, which is gone afterwards. The first error names one that is
    withheld."""
    scratch = keys.scratch("")
    clear: Command = ("UNLINK", *(scratch + kind for kind in ("string", "hash", "list", "set", "zset", "moved")))
    tried: list[Command] = []
    for name, kind, arguments in LEDGER_COMMANDS:
        filled = tuple(scratch + "moved" if argument == "{scratch}:moved" else argument for argument in arguments)
        tried.append((name, scratch + kind, *filled) if kind else (name,))
    return [clear, *tried, clear]


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
