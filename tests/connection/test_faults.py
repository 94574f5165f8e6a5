"""Servers that are not there, not ready, not ours, or not fit; and connections that break."""

import asyncio
import re
from itertools import count
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from scheduler import deadline
from scheduler.connection.budget import ANSWER_MARGIN_MS, Budget
from scheduler.connection.client import StoreClient, StoreOptions
from scheduler.errors import ScriptError, StoreUnavailable, StoreUnusable
from tests.connection.conftest import SETTINGS, Connect
from tests.connection.stub_server import Answer, StubServer, bulk, info
from tests.support.relay import Relay
from tests.support.servers import RedisServer, free_port

OK = b"*1\r\n$2\r\nok\r\n"


def server_info(version: str = "7.0.15", role: str = "master") -> Answer:
    """Answers as a server of that version and role."""

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"INFO":
            return info(redis_version=version) if command[1] == b"server" else info(role=role)
        return b"+PONG\r\n"

    return answer


def failing(reply: bytes | None, times: int) -> Answer:
    """Answers the first `times` commands with `reply`, the others well."""
    calls = count(1)
    return lambda command: reply if next(calls) <= times else OK


async def run(client: StoreClient, name: str = "single", *, retry: bool = True) -> list[Any]:
    return await client.run(name, settings_key=SETTINGS, retry=retry)


# -- not there ------------------------------------------------------------------------------------------------


async def test_an_unreachable_server_is_unavailable_once_time_is_over(connect_to: Connect) -> None:
    client = await connect_to(f"user:hunter2@127.0.0.1:{free_port()}", operation_timeout_ms=100)
    with pytest.raises(StoreUnavailable, match="cannot be reached") as failure:
        await run(client)
    assert type(failure.value) is StoreUnavailable
    assert client.statistics.retries > 1
    assert "hunter2" not in f"{failure.value} {client!r}"


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "localhost:{port}", "unix:///tmp/nobody-listens-{port}.sock"])
async def test_a_lone_server_that_refuses_connections_is_told_long_before_the_operation_timeout(
    connect_to: Connect, address: str
) -> None:
    client = await connect_to(address.format(port=free_port()), operation_timeout_ms=3_600_000, refused_timeout_ms=30)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await run(client)
    assert client.statistics.retries >= 1, "a server that restarts is back soon"
    assert StoreOptions().refused_timeout_ms <= 500


async def test_a_primary_that_refuses_connections_is_waited_for_while_another_may_take_over(
    connect_to: Connect,
) -> None:
    client = await connect_to(
        f"sentinel://127.0.0.1:{free_port()}/aenv", operation_timeout_ms=300, refused_timeout_ms=1
    )
    with pytest.raises(StoreUnavailable):
        await run(client)
    assert client.statistics.retries >= 1


async def test_a_name_that_does_not_resolve_is_unavailable(connect_to: Connect) -> None:
    client = await connect_to("nowhere.invalid:6379", operation_timeout_ms=100)
    with pytest.raises(StoreUnavailable) as failure:
        await run(client)
    assert failure.value.detail == "the ledger cannot be reached"
    assert failure.value.full_detail == "the ledger at redis://nowhere.invalid:6379 cannot be reached"


async def test_an_outage_is_reported_before_the_requests_own_deadline(connect_to: Connect) -> None:
    client = await connect_to(f"127.0.0.1:{free_port()}")
    with deadline.within(0.3), pytest.raises(StoreUnavailable):
        await run(client)
    with deadline.within(60):
        budget = Budget(limit_ms=120_000)
        assert deadline.remaining_ms(default=120_000) - 1000 * budget.left_seconds > ANSWER_MARGIN_MS - 1


async def test_a_ping_does_not_wait_for_the_operation_timeout(connect_to: Connect) -> None:
    client = await connect_to(f"127.0.0.1:{free_port()}", operation_timeout_ms=3_600_000)
    with pytest.raises(StoreUnavailable):
        await client.ping()
    assert client.statistics.attempts == 1


async def test_a_server_that_never_answers_is_unavailable(connect_to: Connect) -> None:
    async with StubServer(lambda command: None) as server:
        client = await connect_to(server.address, operation_timeout_ms=1_500, attempt_timeout_ms=50)
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await run(client)
        assert client.statistics.attempts > 1


async def test_a_server_that_answers_the_second_attempt_is_used(connect_to: Connect) -> None:
    async with StubServer(failing(None, times=1)) as server:
        client = await connect_to(server.address, attempt_timeout_ms=500)
        assert await run(client) == [b"ok"]
        assert client.statistics.retries >= 1


async def test_what_must_not_be_repeated_is_tried_once(connect_to: Connect) -> None:
    async with StubServer(failing(b"-LOADING Redis is loading the dataset in memory\r\n", times=1)) as server:
        client = await connect_to(server.address)
        with pytest.raises(StoreUnavailable, match="loading"):
            await run(client, retry=False)
        assert client.statistics.attempts == 1


# -- not ready ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-MASTERDOWN Link with MASTER is down\r\n",
        b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        b"-CLUSTERDOWN Hash slot not served\r\n",
        b"-NOREPLICAS Not enough good replicas to write.\r\n",
        b"-ASK 3999 127.0.0.1:6381\r\n",
    ],
)
async def test_what_passes_by_itself_is_waited_for(connect_to: Connect, reply: bytes) -> None:
    async with StubServer(failing(reply, times=3)) as server:
        client = await connect_to(server.address)
        assert await run(client) == [b"ok"]
        assert client.statistics.retries == 3
        assert client.statistics.failures == 0


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", "maxmemory"),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", "snapshot"),
    ],
)
async def test_what_an_operator_must_solve_is_reported_at_once(connect_to: Connect, reply: bytes, message: str) -> None:
    async with StubServer(failing(reply, times=1)) as server:
        client = await connect_to(server.address)
        with pytest.raises(StoreUnavailable, match=message):
            await run(client)
        assert client.statistics.attempts == 1


async def test_a_demoted_server_is_left_for_the_one_behind_the_same_address(connect_to: Connect) -> None:
    async with StubServer(failing(b"-READONLY You can't write against a read only replica.\r\n", times=1)) as server:
        client = await connect_to(server.address)
        before = await client._topology.connections_for(SETTINGS)
        await run(client)
        assert await client._topology.connections_for(SETTINGS) is not before
        assert client.statistics.relocations == 1


# -- not fit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["6.0.16", "5.0.7", "2.8.24", "nonsense", ""])
async def test_a_server_that_is_too_old_is_refused(connect_to: Connect, version: str) -> None:
    async with StubServer(server_info(version)) as server:
        client = await connect_to(server.address)
        with pytest.raises(StoreUnusable, match=r"6\.2 or later is needed"):
            await client.check_server()


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "7.2.4", "8.2.1", "10.0"])
async def test_a_server_that_is_new_enough_passes(connect_to: Connect, version: str) -> None:
    async with StubServer(server_info(version)) as server:
        await (await connect_to(server.address)).check_server()


async def test_a_replica_is_refused(real_server: RedisServer, connect_to: Connect) -> None:
    with RedisServer(["--replicaof", "127.0.0.1", str(real_server.port)]) as replica:
        client = await connect_to(replica.address, operation_timeout_ms=200)
        with pytest.raises(StoreUnusable, match="read-only replica"):
            await client.check_server()
        with pytest.raises(StoreUnavailable, match="replica"):
            await client.run("count", settings_key=SETTINGS)


async def test_a_server_that_needs_a_password_is_refused_without_one(connect_to: Connect) -> None:
    with RedisServer(password="hunter2") as server:
        client = await connect_to(server.address)
        with pytest.raises(StoreUnusable, match="needs a password"):
            await client.check_server()
        assert client.statistics.attempts == 1
        for arguments in ((), ["many"] * 20, ["long" * 10_000]):
            with pytest.raises(StoreUnusable, match="needs a password"):
                await client.run("count", arguments, settings_key=SETTINGS)
        for wrong in (f":hunter3@{server.address}", f"redis://nobody:hunter3@{server.address}"):
            with pytest.raises(StoreUnusable, match="refuses this user name or password") as refusal:
                await (await connect_to(wrong)).check_server()
            assert "hunter" not in str(refusal.value)
        await (await connect_to(server.url)).check_server()


async def test_a_password_for_a_server_that_has_none_is_reported(real_server: RedisServer, connect_to: Connect) -> None:
    client = await connect_to(f"redis://:hunter2@{real_server.address}")
    with pytest.raises(StoreUnusable, match="the server has none"):
        await client.check_server()


async def test_what_does_not_speak_redis_is_refused(connect_to: Connect) -> None:
    async with StubServer(lambda command: b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        with pytest.raises(StoreUnusable, match="does not speak Redis"):
            await (await connect_to(server.address)).ping()


async def test_an_unexpected_reply_is_no_crash(connect_to: Connect) -> None:
    async with StubServer(lambda command: bulk("ok")) as server:
        assert await run(await connect_to(server.address)) == [b"ok"]
    async with StubServer(lambda command: b"-WHAT is this\r\n") as server:
        with pytest.raises(ScriptError, match="WHAT is this"):
            await run(await connect_to(server.address))


# -- breaking -------------------------------------------------------------------------------------------------


async def test_a_dropped_connection_is_made_anew(real_server: RedisServer, connect_to: Connect) -> None:
    async with Relay(real_server.port) as relay:
        client = await connect_to(relay.address)
        assert await run(client, "count") == [b"ok", 1]
        relay.cut()
        assert await run(client, "count") == [b"ok", 2]


async def test_a_lost_reply_is_asked_for_again(real_server: RedisServer, connect_to: Connect) -> None:
    async with Relay(real_server.port) as relay:
        client = await connect_to(relay.address)
        assert await run(client, "count") == [b"ok", 1]
        relay.drop_replies(1)
        # The second call took effect although its reply was lost; a script of the product would find that out.
        assert await run(client, "count") == [b"ok", 3]


async def test_an_outage_shorter_than_the_deadline_goes_unnoticed(
    real_server: RedisServer, connect_to: Connect
) -> None:
    async with Relay(real_server.port) as relay:
        client = await connect_to(relay.address)
        relay.down()
        call = asyncio.create_task(run(client, "count"))
        while client.statistics.retries < 3:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0)
        relay.up()
        assert await call == [b"ok", 1]


async def test_a_restarted_server_is_used_again_and_is_another_one(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address)
    await run(client, "count")
    before = (await client.server_identity()).replication_id
    private_server.kill()
    with pytest.raises(StoreUnavailable):
        await client.ping()
    private_server.restart()
    assert await run(client, "count") == [b"ok", 1]
    assert re.fullmatch("[0-9a-f]{40}", (await client.server_identity()).replication_id or "")
    assert (await client.server_identity()).replication_id != before


# -- a server that changes its role, or forgets ---------------------------------------------------------------


async def test_sixty_callers_meet_a_server_that_became_a_replica(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, operation_timeout_ms=30_000, pool_size=60)
    outcomes: list[str] = []

    async def call_on(seconds: float, times: int = 8) -> None:
        for _ in range(times):
            try:
                with deadline.within(seconds):
                    await run(client, "count")
            except StoreUnavailable as error:
                outcomes.append(error.code)
            else:
                outcomes.append("ok")

    await asyncio.gather(*(call_on(30.0) for _ in range(60)))
    assert set(outcomes) == {"ok"}
    with private_server.client() as admin:
        admin.replicaof("127.0.0.1", str(free_port()))
    # Long enough that a busy machine lets each of them make its first attempt.
    await asyncio.gather(*(call_on(1.5, times=2) for _ in range(60)))
    assert set(outcomes) == {"ok", "store_unavailable"}
    assert 0 < client.statistics.relocations < client.statistics.retries / 4
    with private_server.client() as admin:
        admin.replicaof("NO", "ONE")
    outcomes.clear()
    await asyncio.gather(*(call_on(30.0) for _ in range(60)))
    assert set(outcomes) == {"ok"}


async def test_one_of_many_that_meet_the_same_relocates(private_server: RedisServer, connect_to: Connect) -> None:
    client = await connect_to(private_server.address)
    topology = client._topology
    met = await topology.connections_for(SETTINGS)
    refused = ReadOnlyError("You can't write against a read only replica.")
    assert await topology.relocate(SETTINGS, refused, met)
    assert await topology.connections_for(SETTINGS) is not met
    assert not await topology.relocate(SETTINGS, refused, met)
    assert not await topology.relocate(SETTINGS, refused, await topology.connections_for(SETTINGS)), "too soon"


async def test_an_error_of_closing_a_connection_does_not_escape(
    private_server: RedisServer, connect_to: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect_to(private_server.address)
    pool = (await client._topology.connections_for(SETTINGS)).pool
    release = pool.release

    async def fail(connection: Any) -> None:
        await release(connection)
        raise RedisTimeoutError("Timed out closing connection after 1")

    monkeypatch.setattr(pool, "release", fail)
    assert await client.run("single", settings_key=SETTINGS, alone=True) == [b"ok"]


async def test_a_script_that_is_forgotten_again_is_loaded_again(connect_to: Connect) -> None:
    calls = 0

    def answer(command: list[bytes]) -> bytes:
        nonlocal calls
        calls += command[0] == b"EVALSHA"
        return b"-NOSCRIPT No matching script.\r\n" if command[0] == b"EVALSHA" and calls <= 3 else OK

    async with StubServer(answer) as stub:
        client = await connect_to(stub.address)
        assert await run(client) == [b"ok"]
        assert client.statistics.scripts_reloaded == 3


async def test_of_a_thousand_calls_one_loads_the_script_that_a_server_has_forgotten(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, operation_timeout_ms=60_000, attempt_timeout_ms=60_000)
    await client.run("count", settings_key=SETTINGS)
    with private_server.client() as other:
        other.script_flush()
    await asyncio.gather(*(client.run("count", settings_key=SETTINGS) for _ in range(1_000)))
    assert (client.statistics.scripts_reloaded, client.statistics.retries) == (2, 0), "at first, and after the flush"


async def test_a_script_that_is_forgotten_for_ever_is_unavailable_once_time_is_over(connect_to: Connect) -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"-NOSCRIPT No matching script.\r\n" if command[0] == b"EVALSHA" else OK

    async with StubServer(answer) as stub:
        client = await connect_to(stub.address, operation_timeout_ms=1_000)
        with pytest.raises(StoreUnavailable, match="keeps forgetting scripts"):
            await run(client)


# -- durable writes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [None, b"-MASTERDOWN Link with MASTER is down\r\n"])
@pytest.mark.parametrize("retry", [False, True])
async def test_a_write_whose_replicas_are_not_known_is_told_as_written(
    connect_to: Connect, reply: bytes | None, retry: bool
) -> None:
    """The script was answered; only what was asked of the replicas after it was not."""

    def answer(command: list[bytes]) -> bytes | None:
        return OK if command[0] != b"WAIT" else reply

    async with StubServer(answer) as server:
        client = await connect_to(server.address, wait_replicas=2, operation_timeout_ms=1_500, attempt_timeout_ms=500)
        with pytest.raises(StoreUnavailable, match="written, but it is not known whether 2 replicas have it"):
            await client.run("single", settings_key=SETTINGS, durable=True, retry=retry)
