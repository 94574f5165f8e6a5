"""An HTTP port that stops under load: a request that was sent is answered, and nobody is cut off."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from scheduler.access.doors import OPEN
from scheduler.api.http import create_app
from scheduler.config import ListenAddress, TlsSettings
from scheduler.replica.connections import ConnectionLimits
from scheduler.replica.http_listener import HttpListener
from scheduler.replica.listeners import bind
from scheduler.service import build_services
from tests.redis.certificates import make_certificates
from tests.support.fake_ledger import FakeLedger

CALLERS = 40
ANSWERED_FIRST = 400
PATIENT = ConnectionLimits(head_seconds=100.0, idle_seconds=100.0)


def listener(tls: TlsSettings | None = None) -> HttpListener:
    app = create_app(build_services(FakeLedger().as_ledger()))
    return HttpListener("HTTP", app, (bind(ListenAddress("127.0.0.1", 0), "http.port"), PATIENT), OPEN, tls)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_a_stop_under_load_cuts_nobody(secured: bool, tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    stopping = listener(TlsSettings(made.server, made.server_key) if secured else None)
    await stopping.start()
    told: Counter[str] = Counter()
    enough = asyncio.Event()

    async def call_until_told_to_go(client: httpx.AsyncClient) -> None:
        answer = await client.get(f"{stopping.address}/healthz")
        while "connection" not in answer.headers:
            told[str(answer.status_code)] += 1
            if told["200"] >= ANSWERED_FIRST:
                enough.set()
            answer = await client.get(f"{stopping.address}/healthz")
        told["the last"] += 1

    async with AsyncExitStack() as open_clients:
        clients = [
            await open_clients.enter_async_context(httpx.AsyncClient(timeout=60, verify=False)) for _ in range(4)
        ]
        callers = [asyncio.create_task(call_until_told_to_go(clients[number % 4])) for number in range(CALLERS)]
        await enough.wait()
        await stopping.stop(10)
        await asyncio.gather(*callers)
    assert told["the last"] == CALLERS, told


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
