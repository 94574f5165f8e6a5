"""What may come before a request is known: bounded in bytes, headers, time and connections, with both parsers."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.access.policy import OPEN
from scheduler.api.http import create_app
from scheduler.config import ListenAddress, TlsSettings
from scheduler.replica import http_listener, listeners
from scheduler.replica.connections import ConnectionLimits
from scheduler.replica.heads_h11 import BoundedH11
from scheduler.replica.heads_httptools import BoundedHttpTools
from scheduler.service import build_services
from tests.redis.certificates import make_certificates
from tests.support.embedded import unopened_ledger

HEAD_BYTES_MAX = 8192
PATIENT = ConnectionLimits(connections_max=64, head_bytes_max=HEAD_BYTES_MAX, head_seconds=100.0, idle_seconds=100.0)
HURRIED = replace(PATIENT, head_seconds=0.2)
# For callers that get an answer first: a loaded machine may need a while for it.
UNHURRIED = replace(PATIENT, head_seconds=2.0, idle_seconds=2.0)
# Only ever waited for by a test that fails.
SECONDS = 60.0

App = Callable[..., Awaitable[None]]


@pytest.fixture(params=[BoundedHttpTools, BoundedH11], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    monkeypatch.setattr(http_listener, "bounded_protocol", lambda: request.param)
    chosen: type = request.param
    return chosen


@asynccontextmanager
async def serving(
    limits: ConnectionLimits, app: App | None = None, tls: TlsSettings | None = None
) -> AsyncIterator[http_listener.HttpListener]:
    sock = listeners.bind(ListenAddress("127.0.0.1", 0), "http.port")
    app = app or create_app(build_services(unopened_ledger()))
    listener = http_listener.HttpListener("HTTP", app, (sock, limits), OPEN, tls)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop(grace_seconds=0)


class Caller:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Whether or not the other end still listens."""
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(line.split()[1]), headers, body

    async def problem(self) -> tuple[int, str]:
        """Status and code; it must be a problem, and the last answer of the connection."""
        status, headers, body = await self.answer()
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert await self.rest() == b""
        return status, json.loads(body)["code"]

    async def rest(self) -> bytes:
        """All that comes until the other end closes."""
        async with asyncio.timeout(SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@asynccontextmanager
async def calling(listener: http_listener.HttpListener, **more: Any) -> AsyncIterator[Caller]:
    host, _, port = listener.address.partition("://")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), **more)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def head_of(size: int) -> bytes:
    start, end = b"GET /healthz HTTP/1.1\r\nhost: a\r\nfiller: ", b"\r\n\r\n"
    return start + b"x" * (size - len(start) - len(end)) + end


CHUNKED = b"POST /v1/hints HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
HINT = b'{"method":"GET","path":"/"}'
HINT_CHUNK = b"%x\r\n%b\r\n" % (len(HINT), HINT)


@pytest.mark.parametrize(
    ("start", "for_ever", "status", "code"),
    [
        pytest.param(b"GET /", b"x", 414, "uri_too_long", id="request line"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nname", b"x", 431, "head_too_large", id="header name"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nname: ", b"x", 431, "head_too_large", id="header value"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n", b"a: b\r\n", 431, "head_too_large", id="small headers"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n", b"a: %b\r\n" % (b"x" * 1000), 431, "head_too_large", id="headers"),
        pytest.param(CHUNKED + HINT_CHUNK + b"0\r\n", b"a: b\r\n", 431, "head_too_large", id="small trailers"),
        pytest.param(CHUNKED + HINT_CHUNK + b"0\r\nname: ", b"x", 431, "head_too_large", id="trailer value"),
        pytest.param(CHUNKED + b"1;", b"x", 431, "head_too_large", id="chunk extension"),
    ],
)
async def test_what_never_ends_before_a_body_is_refused_and_closed(
    start: bytes, for_ever: bytes, status: int, code: str
) -> None:
    async with serving(PATIENT) as listener:
        for piece_bytes in (300, 100_000):
            async with calling(listener) as caller:
                await caller.send(start)
                piece = for_ever * max(1, piece_bytes // len(for_ever))
                for _ in range(max(1, 2 * HEAD_BYTES_MAX // len(piece))):
                    await caller.send(piece)
                assert await caller.problem() == (status, code)


async def test_a_head_of_the_most_bytes_is_answered_and_one_byte_more_is_not() -> None:
    async with serving(PATIENT) as listener, calling(listener) as caller:
        for _ in range(2):
            await caller.send(head_of(HEAD_BYTES_MAX))
            assert (await caller.answer())[0] == 200
        await caller.send(head_of(HEAD_BYTES_MAX + 1))
        assert await caller.problem() == (431, "head_too_large")


async def test_a_hundred_headers_are_taken_and_one_more_is_not() -> None:
    def head(count: int) -> bytes:
        return b"GET /healthz HTTP/1.1\r\n" + b"host: a\r\n" + b"a: b\r\n" * (count - 1) + b"\r\n"

    async with serving(PATIENT) as listener, calling(listener) as caller:
        await caller.send(head(100))
        assert (await caller.answer())[0] == 200
        await caller.send(head(101))
        assert await caller.problem() == (431, "head_too_large")


async def test_a_request_names_one_host() -> None:
    async with serving(PATIENT) as listener, calling(listener) as caller:
        await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await caller.answer())[0] == 200
        await caller.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\na: b\r\nhOST: a\r\n\r\n")
        assert await caller.problem() == (400, "malformed")


async def test_a_body_is_not_counted_and_its_trailers_are_left_out() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        seen.append((size, [name for name, _ in scope["headers"]]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    chunk = b"%x\r\n%b\r\n" % (3000, b"x" * 3000)
    async with serving(PATIENT, app) as listener, calling(listener) as caller:
        await caller.send(CHUNKED + chunk * 100 + b"0\r\nx-api-key: k\r\n\r\n")
        assert (await caller.answer())[0] == 200
        await caller.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300_000)
        assert (await caller.answer())[0] == 200
    assert seen == [(300_000, [b"host", b"transfer-encoding"]), (300_000, [b"host", b"content-length"])]


async def test_what_is_not_http_is_a_problem_like_any_other() -> None:
    async with serving(PATIENT) as listener, calling(listener) as caller:
        await caller.send(b"\x16\x03\x01\x02\x00\r\n\r\n")
        assert await caller.problem() == (400, "malformed")


async def test_requests_sent_ahead_are_answered_in_order_and_wait_unparsed(parser: type) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        begun.set()
        await receive()
        await go_on.wait()
        body = scope["path"].encode()
        length = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})

    count = 1000
    async with serving(PATIENT, app) as listener, calling(listener) as caller:
        sending = asyncio.create_task(
            caller.send(b"".join(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(count)))
        )
        await begun.wait()
        [connection] = listener._server.server_state.connections
        assert len(getattr(connection, "pipeline", ())) < 200
        go_on.set()
        for number in range(count):
            assert (await caller.answer())[2] == b"/%d" % number
        assert len(getattr(connection, "pipeline", ())) < 200
        await sending


async def test_a_fault_behind_a_request_does_not_take_its_answer_away() -> None:
    async with serving(PATIENT) as listener, calling(listener) as caller:
        await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n" + b"not http at all\r\n\r\n")
        status, _, body = await caller.answer()
        assert (status, json.loads(body)) == (200, {"status": "ok"})


# Time.


async def test_a_silent_connection_is_closed_without_a_word() -> None:
    async with serving(HURRIED) as listener, calling(listener) as caller:
        assert await caller.rest() == b""


@pytest.mark.parametrize("piece", [b"x", b"\r\n", b"a: b\r\n"], ids=["value", "blank lines", "headers"])
async def test_a_head_that_trickles_gains_no_time_by_it(piece: bytes) -> None:
    async with serving(replace(HURRIED, headers_max=10**6)) as listener, calling(listener) as caller:
        if piece == b"x":
            await caller.send(b"GET /healthz HTTP/1.1\r\nname: ")
        elif piece != b"\r\n":
            await caller.send(b"GET /healthz HTTP/1.1\r\n")

        async def trickle() -> None:
            while True:
                await caller.send(piece)
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        try:
            # h11 knows at once that blank lines will be no request.
            assert await caller.problem() in {(408, "head_timeout"), (400, "malformed")}
        finally:
            trickling.cancel()


async def test_the_second_head_of_a_connection_has_the_same_time() -> None:
    async with serving(UNHURRIED) as listener, calling(listener) as caller:
        await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /healthz HTTP/1.1\r\n")
        assert (await caller.answer())[0] == 200
        assert await caller.problem() == (408, "head_timeout")


async def test_a_connection_is_kept_between_requests_and_closed_when_it_stays_idle() -> None:
    async with serving(replace(UNHURRIED, head_seconds=100.0)) as listener, calling(listener) as caller:
        for _ in range(2):
            await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await caller.answer())[0] == 200
        assert await caller.rest() == b""


async def test_a_body_that_nobody_reads_has_a_time_too() -> None:
    async with serving(UNHURRIED) as listener, calling(listener) as caller:
        await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n")
        assert (await caller.answer())[0] == 200
        await caller.send(b"x")
        assert await caller.rest() == b""


async def test_a_peer_that_reads_no_answer_is_disconnected() -> None:
    gone = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        gone.set()

    async with serving(HURRIED, app) as listener, calling(listener, limit=1) as caller:
        await caller.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(SECONDS):
            await gone.wait()


async def test_a_tls_handshake_that_never_ends_is_broken_off(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    tls = TlsSettings(certificates.server, certificates.server_key)
    async with serving(HURRIED, tls=tls) as listener:
        async with calling(listener) as caller:
            await caller.send(b"\x16\x03\x01")
            assert await caller.rest() == b""
        trusting = ssl.create_default_context(cafile=str(certificates.authority))
        async with calling(listener, ssl=trusting) as caller:
            await caller.send(b"GET /healthz HTTP/1.1\r\nname: " + b"x" * 2 * HEAD_BYTES_MAX)
            assert (await caller.answer())[0] == 431


# Connections.


async def test_silent_connections_are_closed_for_a_health_check() -> None:
    async with serving(replace(PATIENT, connections_max=32)) as listener:
        host, _, port = listener.address.partition("://")[2].partition(":")
        silent = []
        try:
            for _ in range(100):
                silent.append(socket.create_connection((host, int(port))))
                await asyncio.sleep(0)
            async with calling(listener) as caller:
                await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
                assert (await caller.answer())[0] == 200
            assert len(listener._connections) <= 32
        finally:
            for sock in silent:
                sock.close()


async def test_connections_in_their_handshake_are_closed_too(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    tls = TlsSettings(certificates.server, certificates.server_key)
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    async with (
        serving(replace(PATIENT, connections_max=2), tls=tls) as listener,
        calling(listener) as first,
        calling(listener),
        calling(listener, ssl=trusting) as caller,
    ):
        await caller.send(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await caller.answer())[0] == 200
        assert await first.rest() == b""


async def test_the_one_that_waited_longest_goes_first_and_none_that_works() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        if scope["path"] == "/wait":
            await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    request = b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n"
    async with (
        serving(replace(PATIENT, connections_max=3), app) as listener,
        calling(listener) as works,
        calling(listener) as first,
        calling(listener) as second,
    ):
        await works.send(request % b"/wait")
        for caller in (first, second, first):
            await caller.send(request % b"/")
            assert (await caller.answer())[0] == 200
        async with calling(listener) as newcomer:
            assert await second.rest() == b""
            for caller in (first, newcomer):
                await caller.send(request % b"/")
                assert (await caller.answer())[0] == 200
        go_on.set()
        assert (await works.answer())[0] == 200


async def test_when_every_connection_is_busy_a_new_one_is_refused_with_retry_after() -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        begun.release()
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with (
        serving(replace(PATIENT, connections_max=2), app) as listener,
        calling(listener) as one,
        calling(listener) as other,
    ):
        for caller in (one, other):
            await caller.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await begun.acquire()
        async with calling(listener) as third:
            status, headers, body = await third.answer()
            assert (status, json.loads(body)["code"]) == (503, "overloaded")
            assert int(headers["retry-after"]) >= 1
        go_on.set()
        for caller in (one, other):
            assert (await caller.answer())[0] == 200
