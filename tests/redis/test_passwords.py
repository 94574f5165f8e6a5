"""A password from a file: what log-ins use, and what a new one or a file that is gone does to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.connection.address import parse_address
from scheduler.connection.client import StoreClient
from scheduler.connection.guard import ServerGuard
from scheduler.connection.options import StoreOptions
from scheduler.connection.servers import Servers
from scheduler.errors import StoreUnusable
from tests.redis.conftest import SETTINGS, Connect
from tests.support.servers import RedisServer


async def count(client: StoreClient) -> object:
    return (await client.run("count", settings_key=SETTINGS))[1]


async def test_a_new_password_is_used_by_the_next_connection(connect_to: Connect, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    with RedisServer(password="first") as server:
        client = await connect_to(server.address, password_file=str(file))
        assert await count(client) == 1
        with server.client() as admin:
            admin.config_set("requirepass", "p@ss: /word")
            assert await count(client) == 2  # a connection stays logged in
            file.write_text("p@ss: /word")
            admin.client_kill_filter(_type="normal", skipme=True)
            assert await count(client) == 3
            file.write_text("another")
            admin.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(StoreUnusable, match="refuses this user name or password"):
            await count(client)
        file.unlink()
        with pytest.raises(StoreUnusable, match=r"store\.password_file\) cannot be read"):
            await count(client)


async def test_the_user_stands_in_the_address(connect_to: Connect, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2")
    with RedisServer() as server:
        with server.client() as admin:
            admin.execute_command("ACL", "SETUSER", "scheduler", "on", ">hunter2", "~*", "+@all")
        client = await connect_to(f"redis://scheduler@{server.address}", password_file=str(file))
        assert await count(client) == 1
        assert await client.command("ACL", "WHOAMI") == b"scheduler"


def test_sentinels_have_a_password_of_their_own(tmp_path: Path) -> None:
    for name in ("server", "sentinel"):
        (tmp_path / name).write_text(name)
    options = StoreOptions(password_file=str(tmp_path / "server"), sentinel_password_file=str(tmp_path / "sentinel"))
    address = parse_address("sentinel://me@127.0.0.1:1/main?sentinel_username=other")
    servers = Servers(address, options, ServerGuard())
    asked = servers.to_sentinel(("127.0.0.1", 2)).connection_kwargs["credential_provider"]
    assert asked.get_credentials() == ("other", "sentinel")
    asked = servers.new(("127.0.0.1", 1)).pool.connection_kwargs["credential_provider"]
    assert asked.get_credentials() == ("me", "server")
