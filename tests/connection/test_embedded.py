"""The ledger inside the process: shared as asked, one step at a time, compiled once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.connection import embedded
from scheduler.connection.client import StoreClient, StoreOptions, connect
from scheduler.connection.scripts import ScriptLibrary
from scheduler.errors import ScriptError
from tests.connection.conftest import SETTINGS, Connect

KEY = "aenv:{test}:shared_settings"


@pytest.fixture
async def alone(library: ScriptLibrary) -> AsyncIterator[StoreClient]:
    client = await connect("embedded", StoreOptions(fake_server=embedded.new_server()), library=library)
    yield client
    await client.close()


async def test_clients_of_one_process_share_a_ledger(connect_to: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_shared", [])
    first, second = await connect_to("embedded"), await connect_to("embedded")
    await first.run("count", settings_key=SETTINGS)
    assert await second.run("count", settings_key=SETTINGS) == [b"ok", 2]


async def test_a_server_of_its_own_is_shared_only_with_whom_it_is_handed(connect_to: Connect) -> None:
    server = embedded.new_server()
    first, second = await connect_to("embedded", fake_server=server), await connect_to("embedded", fake_server=server)
    stranger = await connect_to("embedded", fake_server=embedded.new_server())
    await first.run("count", settings_key=SETTINGS)
    assert await second.run("count", settings_key=SETTINGS) == [b"ok", 2]
    assert await stranger.run("count", settings_key=SETTINGS) == [b"ok", 1]


async def test_a_ledger_outlives_its_clients(connect_to: Connect) -> None:
    server = embedded.new_server()
    first = await connect_to("embedded", fake_server=server)
    await first.run("count", settings_key=SETTINGS)
    await first.close()
    second = await connect_to("embedded", fake_server=server)
    assert await second.run("count", settings_key=SETTINGS) == [b"ok", 2]


async def test_a_text_is_compiled_once_and_starts_afresh_each_time(alone: StoreClient) -> None:
    runtime = _runtime_of(alone)
    replies = [await alone.run("count", settings_key=SETTINGS) for _ in range(3)]
    assert replies == [[b"ok", 1], [b"ok", 2], [b"ok", 3]]
    assert list(runtime._compiled).count(alone.scripts.render("count").encode()) == 1


async def test_a_local_of_one_call_is_not_seen_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "stay.lua").write_text(
        "local seen\nlocal before = seen\nseen = ARGV[1]\nreturn { before or 'none', seen }"
    )
    client = await connect("embedded", StoreOptions(fake_server=embedded.new_server()), library=ScriptLibrary(tmp_path))
    assert await client.run("stay", ["a"], settings_key=KEY) == [b"none", b"a"]
    assert await client.run("stay", ["b"], settings_key=KEY) == [b"none", b"b"]
    await client.close()


async def test_a_script_that_fails_leaves_the_interpreter_usable(alone: StoreClient) -> None:
    for _ in range(2):
        with pytest.raises(ScriptError, match=r"lua/broken\.lua:5"):
            await alone.run("broken", settings_key=SETTINGS)
    assert await alone.run("single", settings_key=SETTINGS) == [b"ok"]


async def test_garbage_is_collected_now_and_then(alone: StoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_COLLECT_EVERY", 10)
    runtime = _runtime_of(alone)
    for _ in range(25):
        await alone.run("single", settings_key=SETTINGS)
    assert runtime._since_collection < 10


async def test_other_tasks_run_between_two_scripts(alone: StoreClient) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(50):
        await alone.run("count", settings_key=SETTINGS)
    task.cancel()
    assert turns > 0


def _runtime_of(client: StoreClient) -> embedded._CompilingRuntime:
    server = client.options.fake_server
    assert server is not None
    runtime = server._lua_runtime
    assert isinstance(runtime, embedded._CompilingRuntime)
    return runtime
