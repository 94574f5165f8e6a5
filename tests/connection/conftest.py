"""A small script library of our own, so that these tests say nothing about the product's scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from scheduler.connection.client import StoreClient, StoreOptions, connect
from scheduler.connection.scripts import ScriptLibrary
from tests.support.backends import Backend

SETTINGS = "aenv:{test}:shared_settings"

SCRIPTS = {
    # Answers with what it was given.
    "echo": "return { 'ok', KEYS[1], unpack(ARGV) }",
    # Counts its calls.
    "count": "return { 'ok', redis.call('INCR', KEYS[1]) }",
    # Works off ARGV[1] slices before it answers.
    "slices": "if redis.call('INCR', KEYS[1]) <= tonumber(ARGV[1]) then return { 'again' } end\nreturn { 'done' }",
    "single": "return 'ok'",
    "broken": "-- breaks\n\nlocal one = 1\n-- here:\nreturn { one + nothing_there }",
    "wrong_type": "redis.call('SET', KEYS[1], 'x')\nreturn redis.call('LPUSH', KEYS[1], 'y')",
}

Connect = Callable[..., Awaitable[StoreClient]]


@pytest.fixture
def library(tmp_path: Path) -> ScriptLibrary:
    (tmp_path / "include").mkdir()
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.lua").write_text(text, encoding="utf-8")
    return ScriptLibrary(tmp_path)


@pytest.fixture
async def connect_to(library: ScriptLibrary) -> AsyncIterator[Connect]:
    """`await connect_to(address, **options)`: a client with the library above, closed at the end."""
    clients: list[StoreClient] = []

    async def connect_one(address: str, **options: object) -> StoreClient:
        client = await connect(address, StoreOptions(**options), library=library, home_key=SETTINGS)  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield connect_one
    for client in clients:
        await client.close()


@pytest.fixture
async def client(backend: Backend, connect_to: Connect) -> StoreClient:
    """A client of the embedded ledger, and again of a real server."""
    return await connect_to(backend.redis_addr, fake_server=backend.fake_server)
