"""Scripts and commands on the embedded ledger and on a real server."""

import asyncio
from typing import Any

import pytest

from scheduler import deadline
from scheduler.connection.client import StoreClient
from scheduler.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    ScriptError,
    StoreUnavailable,
)
from tests.connection.conftest import SETTINGS, Connect
from tests.support.backends import Backend
from tests.support.servers import RedisServer


async def run(client: StoreClient, name: str, *args: Any, **options: Any) -> list[Any]:
    return await client.run(name, args, settings_key=SETTINGS, **options)


async def test_arguments_and_replies_pass_unchanged(client: StoreClient) -> None:
    assert await run(client, "echo", "ü", 2**53 - 1, 0.25, b"\x00\xff", "") == [
        b"ok",
        SETTINGS.encode(),
        "ü".encode(),
        b"9007199254740991",
        b"0.25",
        b"\x00\xff",
        b"",
    ]


async def test_a_single_reply_is_given_as_a_list(client: StoreClient) -> None:
    assert await run(client, "single") == [b"ok"]


async def test_a_script_runs_once_per_call(client: StoreClient) -> None:
    assert [await run(client, "count") for _ in range(3)] == [[b"ok", 1], [b"ok", 2], [b"ok", 3]]


async def test_concurrent_calls_are_each_one_step(client: StoreClient) -> None:
    replies = await asyncio.gather(*(run(client, "count") for _ in range(200)))
    assert sorted(reply[1] for reply in replies) == list(range(1, 201))


async def test_a_server_that_lost_its_scripts_is_sent_them_again(client: StoreClient) -> None:
    await client.load_scripts()
    await run(client, "count")
    await client.command("SCRIPT", "FLUSH")
    assert await run(client, "count") == [b"ok", 2]
    assert await run(client, "count") == [b"ok", 3]
    assert client.statistics.scripts_reloaded == 1


async def test_loading_scripts_beforehand_spares_the_first_call_a_round_trip(client: StoreClient) -> None:
    assert await client.load_scripts() == len(client.scripts.names)
    await run(client, "count")
    assert client.statistics.scripts_reloaded == 0


async def test_a_backlog_is_worked_off_in_as_many_calls_as_it_takes(client: StoreClient) -> None:
    assert await run(client, "slices", 5) == [b"done"]
    assert client.statistics.backlog_slices == 5


async def test_a_backlog_without_end_is_overload(backend: Backend, connect_to: Connect) -> None:
    client = await connect_to(backend.redis_addr, fake_server=backend.fake_server, operation_timeout_ms=500)
    with pytest.raises(Overloaded):
        await run(client, "slices", 10**9)


async def test_others_run_while_a_backlog_is_worked_off(client: StoreClient) -> None:
    backlog = asyncio.create_task(run(client, "slices", 20))
    await client.command("GET", "aenv:{test}:other")
    assert not backlog.done()
    assert await backlog == [b"done"]


async def test_a_broken_script_is_reported_with_its_file_and_line(client: StoreClient) -> None:
    with pytest.raises(ScriptError, match=r"^broken: lua/broken\.lua:5: ") as failure:
        await run(client, "broken")
    assert "user_script" not in failure.value.detail
    assert "\n" not in failure.value.detail


async def test_a_key_of_another_type_is_a_script_error(client: StoreClient) -> None:
    with pytest.raises(ScriptError, match="another type"):
        await run(client, "wrong_type")


async def test_an_argument_that_is_nothing_redis_knows_is_a_defect_of_ours(client: StoreClient) -> None:
    with pytest.raises(ScriptError, match=r"^echo: an argument is neither text, number nor bytes"):
        await run(client, "echo", None)
    assert await run(client, "single") == [b"ok"]


async def test_text_that_is_no_unicode_is_the_callers_mistake(client: StoreClient) -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        await run(client, "echo", "\ud800")
    assert await run(client, "single") == [b"ok"]


async def test_plain_commands_reply_as_the_server_does(client: StoreClient) -> None:
    key = "aenv:{test}:node:a"
    assert await client.command("HSET", key, "field", 7) == 1
    assert await client.command("HGETALL", key) == [b"field", b"7"]
    assert await client.command("GET", "aenv:{test}:missing") is None
    assert await client.pipeline([("HGET", key, "field"), ("EXISTS", key)]) == [b"7", 1]
    assert await client.pipeline([]) == []


async def test_the_first_error_in_a_pipeline_is_raised_and_the_connection_stays_good(client: StoreClient) -> None:
    key = "aenv:{test}:node:a"
    with pytest.raises(ScriptError, match="another type"):
        await client.pipeline([("SET", key, "x"), ("LPUSH", key, "y"), ("SET", key, "z")])
    assert await client.command("GET", key) == b"z"


async def test_a_fit_server_passes_the_check(client: StoreClient) -> None:
    await client.check_server()
    await client.ping()


async def test_a_server_has_an_identity_and_the_embedded_ledger_has_none(client: StoreClient, backend: Backend) -> None:
    assert (((await client.server_identity()).replication_id) is None) is (backend.name == "embedded")
    assert (await client.server_identity()).replication_id == (await client.server_identity()).replication_id


async def test_a_call_after_the_deadline_is_not_made(client: StoreClient) -> None:
    with deadline.within(0), pytest.raises(DeadlineExceeded):
        await run(client, "count")
    assert client.statistics.attempts == 0


async def test_a_replica_may_serve_plain_reads(real_server: RedisServer, connect_to: Connect) -> None:
    client = await connect_to("127.0.0.1:1", read_addr=real_server.address)
    assert await client.reader.command("GET", "aenv:{test}:missing") is None
    assert (await connect_to(real_server.address)).reader.address.text.endswith(real_server.address)


async def test_waiting_for_a_connection_ends_with_the_deadline(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, pool_size=2)
    private_server.pause()
    holders = [asyncio.create_task(run(client, "count", alone=True)) for _ in range(2)]
    await asyncio.sleep(0)
    with deadline.within(0.1), pytest.raises(StoreUnavailable, match="all 2 connections"):
        await run(client, "count", alone=True)
    private_server.resume()
    assert sorted([reply[1] for reply in await asyncio.gather(*holders)]) == [1, 2]
    assert (client.statistics.connections_in_use, client.statistics.waiting_for_connection) == (0, 0)


async def test_no_more_connections_are_opened_than_the_pool_holds(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, pool_size=3)
    await asyncio.gather(*(run(client, "count", alone=True) for _ in range(100)))
    with private_server.client() as looker:
        assert looker.info("stats")["total_connections_received"] <= 3 + 3  # the fixture's and the looker's own
    assert await run(client, "count") == [b"ok", 101]


async def test_as_many_connections_are_in_use_as_the_pool_may_hold(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, pool_size=150)
    private_server.pause()
    calls = [asyncio.create_task(client.command("GET", "aenv:{test}:x", retry=False)) for _ in range(150)]
    while client.statistics.connections_in_use < 150:  # noqa: ASYNC110 - a counter has no event
        await asyncio.sleep(0)
    private_server.resume()
    assert await asyncio.gather(*calls) == [None] * 150


@pytest.mark.parametrize("alone", [False, True])
async def test_a_cancelled_call_leaves_no_reply_behind_for_the_next(
    private_server: RedisServer, connect_to: Connect, alone: bool
) -> None:
    client = await connect_to(private_server.address, pool_size=1)
    await run(client, "count", alone=alone)
    private_server.pause()
    call = asyncio.create_task(run(client, "count", alone=alone))
    while client.statistics.attempts != 3:  # noqa: ASYNC110 - a counter has no event
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    private_server.resume()
    assert await run(client, "single", alone=alone) == [b"ok"]


@pytest.mark.parametrize("warm", [True, False])
async def test_calls_that_wait_when_their_client_is_closed_end_at_once_and_open_nothing(
    private_server: RedisServer, connect_to: Connect, warm: bool
) -> None:
    client = await connect_to(private_server.address, pool_size=2)
    if warm:
        await asyncio.gather(run(client, "count"), run(client, "count", alone=True))
    private_server.pause()
    # Those alone wait for their replies, for a connection, or for one of the two places.
    calls = [asyncio.create_task(run(client, "count", alone=number % 2 == 0)) for number in range(10)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(2):
        await client.close()
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in ended} == {StoreUnavailable}
    for alone in (True, False):
        with pytest.raises(StoreUnavailable, match="closed"):
            await run(client, "count", alone=alone)
    private_server.resume()
    with private_server.client() as looker:
        async with asyncio.timeout(10):
            while len(looker.client_list()) > 1:  # noqa: ASYNC110 - what the server had not accepted yet
                await asyncio.sleep(0.01)


async def test_closing_leaves_no_connection_open(private_server: RedisServer, connect_to: Connect) -> None:
    client = await connect_to(private_server.address)
    await asyncio.gather(*(run(client, "count", alone=number > 2) for number in range(5)))
    await client.close()
    with private_server.client() as looker:
        assert [entry["name"] for entry in looker.client_list()] == [""]
