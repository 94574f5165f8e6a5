"""The `redis-cli` commands of the documents are run against a ledger in which everything there is
has happened once: no command is unknown, no key has another type than the document thinks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
import redis

from scheduler.connection.keys import Keys
from scheduler.inspection.key_table import explain_key
from scheduler.ledger.format import FORMAT
from tests.docs.commands import Command, commands_in, documents
from tests.inspection.busy import SETTINGS, make_busy
from tests.support.backends import Backend, put_settings
from tests.support.servers import RedisServer

COMMANDS = [command for path in documents() for command in commands_in(path) if command.words[0].endswith("redis-cli")]
OPTIONS_WITH_VALUE = {"-h", "-p", "-u", "-n", "-a", "--user", "--pass", "--pattern", "--count", "-i", "--rdb"}
BLOCKING = {"MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SHUTDOWN", "FLUSHALL", "FLUSHDB"}


def arguments_of(words: Sequence[str]) -> list[str]:
    """The Redis command without redis-cli's own options; `--scan --pattern P` becomes SCAN."""
    rest, command = list(words), list[str]()
    while rest:
        word = rest.pop(0)
        if word == "--pattern":
            command = ["SCAN", "0", "MATCH", rest.pop(0)]
        elif word in OPTIONS_WITH_VALUE:
            rest.pop(0)
        elif command or not word.startswith("-"):
            command.append(word)
    return command


@pytest.fixture
async def busy_server(real_server: RedisServer) -> RedisServer:
    ledger = await Backend("real", server=real_server).open(domain="default")
    try:
        await put_settings(ledger, SETTINGS)
        await make_busy(ledger)
    finally:
        await ledger.close()
    return real_server


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.id)
async def test_a_documented_redis_command_is_understood(command: Command, busy_server: RedisServer) -> None:
    arguments = arguments_of(command.words[1:])
    if not arguments or arguments[0].upper() in BLOCKING or arguments[:2] == ["config", "set"]:
        return  # pages that are run whole: test_pages_run.py
    # Some fields hold MessagePack, which redis-cli shows escaped.
    with busy_server.client(encoding_errors="backslashreplace") as client:
        client.execute_command(*_existing_keys(client, arguments))


def _existing_keys(client: redis.Redis, arguments: Sequence[str]) -> Iterator[str]:
    """The arguments, each key of a node or reservation of the document replaced by one that is there,
    so that a wrong type shows."""
    keys = Keys("default")
    for argument in arguments:
        if not argument.startswith(keys.tag + ":") or "*" in argument:
            yield argument
            continue
        found = explain_key(keys, argument)
        assert found is not None, f"no such kind of key: {argument}"
        same_kind = client.scan_iter(keys.named(found.kind.name.replace("{}", "*")), count=1_000)
        alike = (key for key in same_kind if (other := explain_key(keys, key)) and other.kind == found.kind)
        yield next(alike, argument)


async def test_the_settings_that_are_shown_are_those_of_this_version(busy_server: RedisServer) -> None:
    page = next(path for path in documents() if path.name == "redis-cli.md").read_text(encoding="utf-8")
    shown = dict(
        re.findall(r'^ *\d+# "(\w+)" => "(.*)"$', page.partition(":shared_settings'\n")[2].partition("$ ")[0], re.M)
    )
    assert shown["format"] == str(FORMAT)
    with busy_server.client() as client:
        # What has no bound is left out; the page has a bound, and this ledger has none.
        assert shown.keys() - {"max_cpu_used_percent"} == set(client.hkeys(Keys("default").settings))


async def test_a_key_of_another_type_is_found_out(busy_server: RedisServer) -> None:
    with busy_server.client() as client:
        arguments = list(_existing_keys(client, ["GET", "aenv:{default}:node:node-a"]))
        assert arguments[1] != "aenv:{default}:node:node-a"
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            client.execute_command(*arguments)
