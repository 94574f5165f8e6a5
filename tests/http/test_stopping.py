"""An HTTP port that stops under load: a request that was sent is answered, and nobody is cut off."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from scheduler.access.policy import OPEN
from scheduler.api.http import create_app
from scheduler.config import ListenAddress, TlsSettings
from scheduler.replica import http_listener
from scheduler.replica.connections import ConnectionLimits
from scheduler.replica.http_listener import HttpListener
from scheduler.replica.listeners import bind
from scheduler.service import build_services
from tests.redis.certificates import make_certificates
from tests.support.embedded import unopened_ledger

CALLERS = 40
ANSWERED_FIRST = 400
PATIENT = ConnectionLimits(head_seconds=100.0, idle_seconds=100.0)


def listener(tls: TlsSettings | None = None) -> HttpListener:
    app = create_app(build_services(unopened_ledger()))
    return HttpListener("HTTP", app, (bind(ListenAddress("127.0.0.1", 0), "http.port"), PATIENT), OPEN, tls)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_a_stop_under_load_cuts_nobody(secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a machine with other work a caller may be slow to say its next word; here it is waited for.
    monkeypatch.setattr(http_listener, "_SECONDS_FOR_LAST_REQUESTS", 100.0)
    made = make_certificates(tmp_path)
    stopping = listener(TlsSettings(made.server, made.server_key) if secured else None)
    await stopping.start()
    answered: Counter[int] = Counter()
    told_to_go: set[int] = set()
    enough = asyncio.Event()

    async def call_until_told_to_go(caller: int, client: httpx.AsyncClient) -> None:
        answer = await client.get(f"{stopping.address}/healthz")
        while "connection" not in answer.headers:
            answered[caller] += 1
            if len(answered) == CALLERS and answered.total() >= ANSWERED_FIRST:
                enough.set()
            answer = await client.get(f"{stopping.address}/healthz")
        told_to_go.add(caller)

    trusting = ssl.create_default_context(cafile=str(made.authority))
    async with AsyncExitStack() as clients:
        callers = []
        for number in range(CALLERS):
            # Each has a connection of its own: clients that share them may need one more at any moment.
            client = await clients.enter_async_context(httpx.AsyncClient(timeout=100, verify=trusting))
            callers.append(asyncio.create_task(call_until_told_to_go(number, client)))
        await enough.wait()
        await stopping.stop(100)
        await asyncio.gather(*callers)
    assert told_to_go == set(range(CALLERS))


async def test_once_it_leaves_each_answer_ends_its_connection() -> None:
    leaving = listener()
    await leaving.start()
    async with httpx.AsyncClient() as client:
        kept = await client.get(f"{leaving.address}/healthz")
        assert "connection" not in kept.headers
        await leaving.drain()
        last = await client.get(f"{leaving.address}/healthz")
        assert (last.status_code, last.headers["connection"]) == (200, "close")
    await leaving.stop(1)
