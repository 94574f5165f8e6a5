"""Which server holds the ledger: asked of seeds and sentinels of which some are silent, mistaken or refuse to say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from scheduler import deadline
from scheduler.connection.address import Scheme
from scheduler.errors import StoreUnavailable
from tests.connection.conftest import SETTINGS, Connect
from tests.connection.stub_server import Answer, StubServer, bulk
from tests.support.servers import free_port

OK = b"*1\r\n$2\r\nok\r\n"
HURRIED = {"connect_timeout_ms": 100, "attempt_timeout_ms": 150, "operation_timeout_ms": 60_000}


def silent(command: list[bytes]) -> bytes | None:
    return None


def naming(port: Callable[[], int]) -> Answer:
    """A cluster's member, or a sentinel, that says which port the ledger's primary has; and a primary too."""

    def answer(command: list[bytes]) -> bytes:
        if command[:2] == [b"CLUSTER", b"SLOTS"]:
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk("127.0.0.1") + b":%d\r\n" % port()
        if command[:2] == [b"SENTINEL", b"MASTERS"]:
            state = {"name": "aenv", "ip": "127.0.0.1", "port": str(port()), "flags": "master"}
            state |= {"num-other-sentinels": "1", "num-slaves": "0"}
            fields = [bulk(text) for pair in state.items() for text in pair]
            return b"*1\r\n*%d\r\n" % len(fields) + b"".join(fields)
        return OK

    return answer


def port_of(server: StubServer) -> int:
    return int(server.address.rpartition(":")[2])


def url(scheme: Scheme, *servers: StubServer) -> str:
    return f"{scheme}://" + ",".join(each.address for each in servers) + ("/aenv" if scheme is Scheme.SENTINEL else "")


@pytest.mark.parametrize("scheme", [Scheme.CLUSTER, Scheme.SENTINEL])
async def test_however_many_are_silent_the_one_that_answers_is_asked(scheme: Scheme, connect_to: Connect) -> None:
    async with AsyncExitStack() as stack:
        quiet = [await stack.enter_async_context(StubServer(silent)) for _ in range(3)]
        good = await stack.enter_async_context(StubServer(naming(lambda: port_of(good))))
        client = await connect_to(url(scheme, *quiet, good), **HURRIED)
        assert await client.run("single", settings_key=SETTINGS) == [b"ok"]


async def test_a_caller_whose_time_ends_at_a_silent_one_leaves_the_next_another(connect_to: Connect) -> None:
    async with StubServer(silent) as quiet, StubServer(naming(lambda: port_of(good))) as good:
        client = await connect_to(url(Scheme.CLUSTER, quiet, good), connect_timeout_ms=60_000)
        with deadline.within(0.1), pytest.raises(StoreUnavailable):
            await client.run("single", settings_key=SETTINGS)
        assert await client.run("single", settings_key=SETTINGS) == [b"ok"]


async def test_who_names_a_primary_that_is_gone_is_asked_after_the_others(connect_to: Connect) -> None:
    gone = free_port()
    async with StubServer(naming(lambda: gone)) as mistaken, StubServer(naming(lambda: port_of(good))) as good:
        client = await connect_to(url(Scheme.CLUSTER, mistaken, good))
        assert await client.run("single", settings_key=SETTINGS) == [b"ok"]
        assert sum(command[0] == b"CLUSTER" for command in mistaken.commands) == 1


@pytest.mark.parametrize("error", [b"-DENIED Redis is running in protected mode\r\n", b"-NOPERM no permissions\r\n"])
async def test_a_sentinel_that_may_not_say_is_passed_over(error: bytes, connect_to: Connect) -> None:
    async with StubServer(lambda _: error) as mute, StubServer(naming(lambda: port_of(good))) as good:
        client = await connect_to(url(Scheme.SENTINEL, mute, good))
        assert await client.run("single", settings_key=SETTINGS) == [b"ok"]
        assert client.refusals.withheld is None


async def test_a_caller_in_a_hurry_makes_nobody_forget_where_the_ledger_is(connect_to: Connect) -> None:
    answers = [OK, None]  # what scripts are answered
    named = naming(lambda: port_of(good))

    def answer(command: list[bytes]) -> bytes | None:
        return named(command) if command[0] == b"CLUSTER" else answers.pop(0) if answers else OK

    async with StubServer(answer) as good:
        client = await connect_to(url(Scheme.CLUSTER, good))
        await client.run("single", settings_key=SETTINGS)
        with deadline.within(0.1), pytest.raises(StoreUnavailable, match="did not answer in time"):
            await client.run("single", settings_key=SETTINGS)
        known = client._topology.known(SETTINGS)
        assert known is not None
