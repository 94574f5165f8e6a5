"""The connection that calls share: whose reply is whose, and what its loss means to those that wait."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import InvalidResponse, ResponseError

from scheduler import deadline
from scheduler.connection.client import StoreClient
from scheduler.connection.server import ServerIdentity
from scheduler.connection.shared import SharedConnection, pack
from scheduler.errors import StoreUnavailable, StoreUnusable
from tests.connection.conftest import SETTINGS, Connect
from tests.connection.stub_server import StubServer, bulk
from tests.redis.certificates import make_certificates
from tests.support.relay import Relay
from tests.support.servers import RedisServer

FAR = 3_600.0


class Wire(asyncio.Transport):
    """Keeps what is written, and loses the connection when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.protocol: SharedConnection | None = None
        self.transport = self  # it is the writer of redis-py's connection too
        self._closing = False
        self.kept_at_most: int | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.kept_at_most = high

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("SharedConnection", protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


class Opened:
    """What is taken over of a connection of redis-py."""

    def __init__(self, wire: Wire) -> None:
        self._writer: Wire | None = wire
        self._reader = None


def shared_over(wire: Wire, patience: float = FAR) -> SharedConnection:
    return SharedConnection(cast("AbstractConnection", Opened(wire)), patience)


def in_seconds(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def asked(shared: SharedConnection, what: str, seconds: float = FAR) -> asyncio.Future[Any]:
    return shared.ask(pack(("ECHO", what)), in_seconds(seconds))


# -- whose reply is whose -----------------------------------------------------------------------------------------


async def test_what_is_asked_in_one_turn_leaves_in_one_write() -> None:
    wire = Wire()
    shared = shared_over(wire)
    first = [asked(shared, str(number)) for number in range(10)]
    await turns()
    asked(shared, "later")
    await turns()
    assert wire.written == [b"".join(pack(("ECHO", str(number))) for number in range(10)), pack(("ECHO", "later"))]
    shared.data_received(b"".join(bulk(str(number)) for number in range(10)))
    assert [reply.result() for reply in first] == [str(number).encode() for number in range(10)]
    shared.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_over_tls_no_call_waits_for_another(tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    made = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server, made.server_key)

    async def answer_in_two_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await reader.read(1_000):
            for part in (b"$1\r\n", b"x\r\n") * command.count(b"ECHO"):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)  # each comes by itself
        writer.close()

    async def ask_in_turn() -> None:
        server = await asyncio.start_server(answer_in_two_parts, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        connection = SSLConnection(
            host="127.0.0.1", port=port, ssl_ca_certs=str(made.authority), protocol=2, driver_info=None
        )
        await connection.connect()
        shared = SharedConnection(connection, FAR)
        try:
            for what in ("first", "second", "third"):
                assert await asked(shared, what, seconds=60.0) == b"x"
        finally:
            shared.close()
            await shared.closed
            server.close()
            await server.wait_closed()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask_in_turn())


async def test_what_is_flushed_leaves_before_the_turn_ends_and_the_rest_with_the_turn() -> None:
    wire = Wire()
    shared = shared_over(wire)
    replies = [asked(shared, "a"), asked(shared, "b")]
    shared.flush()
    # Nor does the transport keep it: uvloop's would, until it has a whole buffer or nothing else to do.
    assert (wire.written, wire.kept_at_most) == ([pack(("ECHO", "a")) + pack(("ECHO", "b"))], 0)
    replies += [asked(shared, "c"), asked(shared, "d")]
    await turns()
    assert wire.written[1:] == [pack(("ECHO", "c")) + pack(("ECHO", "d"))]
    shared.data_received(b"".join(map(bulk, "abcd")))
    assert [reply.result() for reply in replies] == [b"a", b"b", b"c", b"d"]
    shared.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_reply_never_reaches_another_call(seed: int) -> None:
    """A server answers the commands of one connection in their order. So a reply belongs to the call whose command
    was written at its place: it keeps that place when it is cancelled or its time is over, and a call that was
    cancelled before its turn was never written and has none."""
    chance, wire = random.Random(seed), Wire()
    shared = shared_over(wire)
    calls: list[tuple[str, asyncio.Future[Any]]] = []
    cancelled: set[str] = set()
    pending = b""
    answered = 0
    for step in range(300):
        what = f"{seed}-{step}"
        calls.append((what, asked(shared, what, seconds=-1 if chance.random() < 0.1 else FAR)))
        if chance.random() < 0.1:
            shared.flush()
        if chance.random() < 0.4:
            await turns(chance.randint(1, 3))
        if chance.random() < 0.3:
            name, reply = chance.choice(calls)
            if reply.cancel():
                cancelled.add(name)
        # The server reads what was written, and its answers arrive in pieces.
        sent = b"".join(wire.written).split(b"*2\r\n$4\r\nECHO\r\n")[1:]
        pending += b"".join(sent[answered:])
        answered = len(sent)
        size = chance.randint(0, len(pending))
        shared.data_received(pending[:size]) if size else None
        pending = pending[size:]
    await turns()
    sent = b"".join(wire.written).split(b"*2\r\n$4\r\nECHO\r\n")[1:]
    shared.data_received(pending + b"".join(sent[answered:]))
    for name, reply in calls:
        if name in cancelled:
            assert reply.cancelled()
        else:
            assert reply.result() == name.encode() or isinstance(reply.result(), TimeoutError)
    assert sum(reply.done() and not reply.cancelled() for _, reply in calls) > 150
    assert not shared._owed
    shared.close()


async def test_what_is_cancelled_before_its_turn_is_not_sent() -> None:
    wire = Wire()
    shared = shared_over(wire)
    asked(shared, "a").cancel()
    kept = asked(shared, "b")
    await turns()
    shared.data_received(bulk("b"))
    assert (wire.written, kept.result()) == ([pack(("ECHO", "b"))], b"b")
    shared.close()


async def test_an_error_is_the_reply_of_its_call_alone() -> None:
    shared = shared_over(Wire())
    first, second = asked(shared, "a"), asked(shared, "b")
    await turns()
    shared.data_received(b"-WHAT is this\r\n" + bulk("b"))
    assert isinstance(first.result(), ResponseError)
    assert second.result() == b"b"
    shared.close()


async def test_callers_cancelled_by_the_thousand_harm_nobody(private_server: RedisServer, connect_to: Connect) -> None:
    client = await connect_to(private_server.address, operation_timeout_ms=60_000, attempt_timeout_ms=60_000)
    await client.run("count", settings_key=SETTINGS)
    private_server.pause()

    async def echo(what: str) -> list[Any]:
        return await client.run("echo", [what], settings_key=SETTINGS)

    calls = {str(number): asyncio.create_task(echo(str(number))) for number in range(3_000)}
    await turns(2)  # written
    calls |= {f"{number} late": asyncio.create_task(echo(f"{number} late")) for number in range(1_000)}
    await asyncio.sleep(0)  # asked, not written
    for number, call in enumerate(calls.values()):
        if number % 3:
            call.cancel()
    await turns()
    private_server.resume()
    for number, (what, call) in enumerate(calls.items()):
        if number % 3:
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            assert await call == [b"ok", SETTINGS.encode(), what.encode()]
    assert (client.statistics.retries, client.statistics.sharing_connection) == (0, 0)


# -- loss -----------------------------------------------------------------------------------------------------------


async def test_a_reset_in_the_middle_of_a_reply_ends_every_call_that_waits() -> None:
    wire = Wire()
    shared = shared_over(wire)
    answered, torn, waits = (asked(shared, name) for name in "abc")
    await turns()
    unsent = asked(shared, "d")
    shared.data_received(bulk("a") + b"$1\r")
    wire.lose(ConnectionResetError(104, "reset"))
    await turns()
    assert answered.result() == b"a"
    errors = [reply.result() for reply in (torn, waits, unsent)]
    assert {type(error) for error in errors} == {ConnectionResetError}
    assert len(set(map(id, errors))) == 3, "an error that several tasks raise collects the frames of all"
    assert not shared.usable
    assert isinstance(asked(shared, "e").result(), ConnectionResetError)
    assert shared.closed.done()


@pytest.mark.parametrize("fault", [Relay.tear_replies, Relay.drop_replies, Relay.drop_requests])
async def test_every_call_outlives_a_lost_connection(
    real_server: RedisServer, connect_to: Connect, fault: Callable[[Relay, int], None]
) -> None:
    async with Relay(real_server.port) as relay:
        client = await connect_to(relay.address, operation_timeout_ms=30_000)
        for _ in range(3):
            fault(relay, 1)
            names = [str(number) for number in range(50)]
            replies = await asyncio.gather(*(client.run("echo", [name], settings_key=SETTINGS) for name in names))
            assert [reply[2].decode() for reply in replies] == names
            assert relay.faults_left == 0
        assert client.statistics.retries >= 3
        assert client.statistics.failures == 0


async def test_what_is_no_reply_ends_all_and_is_not_repeated(connect_to: Connect) -> None:
    shared = shared_over(Wire())
    first, second = asked(shared, "a"), asked(shared, "b")
    await turns()
    shared.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert isinstance(first.result(), InvalidResponse)
    assert isinstance(second.result(), InvalidResponse)
    async with StubServer(lambda command: b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        client = await connect_to(server.address)
        with pytest.raises(StoreUnusable, match="does not speak Redis"):
            await client.run("single", settings_key=SETTINGS)
        assert client.statistics.attempts == 1


async def test_what_nobody_asked_for_is_nobodys_reply() -> None:
    shared = shared_over(Wire())
    shared.data_received(bulk("unasked"))
    assert not shared.usable
    assert isinstance(asked(shared, "a").result(), Disconnected)


async def test_a_server_that_takes_no_more_clients_is_named(connect_to: Connect) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR max number of clients reached\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        client = await connect_to(f"{host}:{port}", operation_timeout_ms=200)
        with pytest.raises(StoreUnavailable, match="accepts no more clients"):
            await client.run("single", settings_key=SETTINGS)


# -- time -----------------------------------------------------------------------------------------------------------


async def test_a_call_whose_time_is_over_ends_and_its_reply_is_dropped() -> None:
    shared = shared_over(Wire())
    hasty, patient = asked(shared, "a", seconds=0.01), asked(shared, "b")
    assert isinstance(await hasty, TimeoutError)
    assert shared.usable, "the server has still time to answer"
    shared.data_received(bulk("a") + bulk("b"))
    assert patient.result() == b"b"
    shared.close()


async def test_a_server_that_owes_a_reply_too_long_gets_no_more_calls_and_those_that_wait_go_on() -> None:
    wire = Wire()
    shared = shared_over(wire, patience=0.01)
    first, patient, gone = asked(shared, "a", seconds=0.01), asked(shared, "b"), asked(shared, "c")
    gone.cancel()
    assert isinstance(await first, TimeoutError)
    while shared.usable:  # noqa: ASYNC110 - the timer has no event
        await asyncio.sleep(0)
    assert not wire.is_closing()
    shared.data_received(bulk("a") + bulk("b"))
    assert patient.result() == b"b"
    assert wire.is_closing(), "nobody waits any more"


async def test_a_server_that_answers_nobody_is_suspected_also_when_no_caller_is_left() -> None:
    wire = Wire()
    shared = shared_over(wire, patience=0.01)
    call = asked(shared, "a")
    await turns()
    call.cancel()
    asked(shared, "b", seconds=0.001)
    while not wire.is_closing():  # noqa: ASYNC110 - the timer has no event
        await asyncio.sleep(0)
    assert not shared.usable


async def test_a_slow_reader_is_not_written_to_and_what_waits_for_it_ends_in_time() -> None:
    wire = Wire()
    shared = shared_over(wire)
    shared.pause_writing()
    late = asked(shared, "a", seconds=0.01)
    gone = [asked(shared, "b") for _ in range(100)]
    for call in gone:
        call.cancel()
    kept = asked(shared, "c")
    assert isinstance(await late, TimeoutError)
    assert wire.written == []
    assert len(shared._outbox) <= 2, "what has ended is kept no longer"
    shared.resume_writing()
    assert wire.written == [pack(("ECHO", "c"))]
    shared.data_received(bulk("c"))
    assert kept.result() == b"c"
    shared.close()


async def test_a_server_that_does_not_read_holds_up_its_callers_no_longer_than_their_deadlines(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, operation_timeout_ms=30_000, attempt_timeout_ms=30_000)
    await client.run("single", settings_key=SETTINGS)
    connection = await shared_of(client)
    private_server.pause()
    big = "x" * 8_000_000
    first = asyncio.create_task(client.run("echo", [big], settings_key=SETTINGS))
    while not connection._paused:  # noqa: ASYNC110 - a flag has no event
        await asyncio.sleep(0)
    for _ in range(3):
        with deadline.within(0.1), pytest.raises(StoreUnavailable, match="did not answer in time"):
            await client.run("echo", [big], settings_key=SETTINGS)
    assert connection._writer is not None
    assert connection._writer.transport.get_write_buffer_size() < 9_000_000, "only the first was written"
    private_server.resume()
    assert len((await first)[2]) == len(big)
    assert await client.run("single", settings_key=SETTINGS) == [b"ok"]


async def test_a_transport_that_closes_and_cannot_yet_gets_no_more_calls_and_those_that_wait_end_in_time() -> None:
    wire = Wire()
    shared = shared_over(wire)
    late, kept = asked(shared, "a", seconds=0.01), asked(shared, "b")
    await turns()
    wire._closing = True  # it has not sent everything, so `connection_lost` is not called
    assert not shared.usable
    assert isinstance(asked(shared, "c").result(), Disconnected)
    assert isinstance(await late, TimeoutError)
    assert not kept.done()
    shared.connection_lost(None)
    assert isinstance(kept.result(), Disconnected)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_server_that_neither_reads_nor_will_answer_ends_every_call_at_once(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def half_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        cast("asyncio.ReadTransport", writer.transport).pause_reading()
        writer.write_eof()
        await ended.wait()
        writer.transport.abort()

    async def ask() -> None:
        server = await asyncio.start_server(half_close, "127.0.0.1", 0, limit=1_000)
        connection = Connection(port=server.sockets[0].getsockname()[1], protocol=2, driver_info=None)
        await connection.connect()
        shared = SharedConnection(connection, FAR)
        assert isinstance(await asked(shared, "x" * 8_000_000), Disconnected)
        assert not shared.usable
        await shared.closed
        ended.set()
        server.close()
        await server.wait_closed()

    ended = asyncio.Event()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())


# -- opening it -----------------------------------------------------------------------------------------------------


async def shared_of(client: StoreClient) -> SharedConnection:
    shared = (await client._topology.connections_for(SETTINGS)).shared
    assert shared is not None
    return await shared.connected(in_seconds(60))


@asynccontextmanager
async def counting_connections(server: RedisServer) -> AsyncIterator[Callable[[], int]]:
    with server.client() as looker:
        before = looker.info("stats")["total_connections_received"]
        yield lambda: int(looker.info("stats")["total_connections_received"]) - before


async def test_many_first_calls_open_one_connection_and_whoever_is_cancelled_takes_it_from_nobody(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address)
    await client.load_scripts()
    async with counting_connections(private_server) as opened:
        calls = [asyncio.create_task(client.run("count", settings_key=SETTINGS)) for _ in range(100)]
        await turns(2)
        for call in calls[:50]:
            call.cancel()
        assert sorted([(await call)[1] for call in calls[50:]]) == list(range(1, 51))
        assert opened() == 1


async def test_a_connection_that_fails_when_nobody_waits_any_more_is_no_unhandled_error(connect_to: Connect) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with StubServer(lambda _: None) as swallowing:
        client = await connect_to(f"user:secret@{swallowing.address}", attempt_timeout_ms=300)
        with deadline.within(0.05), pytest.raises(StoreUnavailable):
            await client.run("single", settings_key=SETTINGS)
        connections = (await client._topology.connections_for(SETTINGS)).shared
        assert connections is not None
        while connections._connecting is not None:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.01)
        await turns()
        gc.collect()  # only who is collected is told of
    assert told == []


async def test_a_connection_that_was_never_asked_for_its_server_is_replaced_once_one_is_accepted(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address)
    await client.run("count", settings_key=SETTINGS)
    unasked = await shared_of(client)
    identity = await client.server_identity()
    client.guard.accept(identity)
    assert await client.run("count", settings_key=SETTINGS) == [b"ok", 2]
    known = await shared_of(client)
    assert known is not unasked
    assert known.server == identity
    client.guard.accept(ServerIdentity("another", "history"))
    with deadline.within(0.3), pytest.raises(StoreUnavailable, match="another server took over"):
        await client.run("count", settings_key=SETTINGS)
    assert client.guard.check_requested.is_set()
    assert await shared_of(client) is not known, "asked again: a promoted replica keeps its connections"
    client.guard.accept(identity)
    assert await client.run("count", settings_key=SETTINGS) == [b"ok", 3]


async def test_a_connection_of_the_pool_that_was_never_asked_for_its_server_is_asked_once_one_is_accepted(
    private_server: RedisServer, connect_to: Connect
) -> None:
    client = await connect_to(private_server.address, pool_size=1)
    identity = await client.server_identity()
    client.guard.accept(ServerIdentity("another", "history"))
    with deadline.within(0.3), pytest.raises(StoreUnavailable, match="another server took over"):
        await client.command("PING")
    client.guard.accept(identity)
    assert await client.command("PING") == b"PONG"
