"""Servers in every form an address can name, and a small script library to run on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from scheduler.connection.client import StoreClient, StoreOptions, connect
from scheduler.connection.keys import Keys
from scheduler.connection.scripts import ScriptLibrary
from tests.redis.certificates import Certificates, make_certificates
from tests.support.topologies import ClusterTopology, SentinelTopology

SETTINGS = Keys("test").settings

SCRIPTS = {
    # Answers with what is in the ledger after one more.
    "count": "return { 'ok', redis.call('INCR', KEYS[1]) }",
    # Once per id, as every script of the product is.
    "count_once": "redis.call('SADD', KEYS[1] .. ':seen', ARGV[1])\nreturn { redis.call('SCARD', KEYS[1] .. ':seen') }",
    # Reads and writes nothing.
    "look": "return { redis.call('GET', KEYS[1]) or 'nothing' }",
    # Writes into a slot it did not declare.
    "stray": "redis.call('SET', 'aenv:{elsewhere}:shared_settings', 1)\nreturn { 'ok' }",
}

Connect = Callable[..., Awaitable[StoreClient]]


@pytest.fixture
def scripts_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "lua"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / f"{name}.lua").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
async def connect_to(scripts_folder: Path) -> AsyncIterator[Connect]:
    """`await connect_to(address, **options)`: a client with the library above, closed at the end."""
    clients: list[StoreClient] = []

    async def connect_one(address: str, **options: object) -> StoreClient:
        chosen = StoreOptions(**options)  # type: ignore[arg-type]
        library = ScriptLibrary(scripts_folder, shebang=chosen.shebang)
        client = await connect(address, chosen, library=library, home_key=SETTINGS)
        clients.append(client)
        return client

    yield connect_one
    for client in clients:
        await client.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def sentinel() -> Iterator[SentinelTopology]:
    """A primary, a replica and three sentinels, to be broken."""
    with SentinelTopology() as topology:
        yield topology


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterTopology]:
    """Three primaries, shared by the tests of one file."""
    with ClusterTopology() as topology:
        yield topology
