"""`inspect upgrade` as docs/upgrade.md tells an operator to type it, on a real server."""

from __future__ import annotations

import asyncio

import pytest

from scheduler import cli
from scheduler.connection.keys import Keys
from tests.support.backends import Backend
from tests.support.servers import RedisServer
from tests.upgrade.old_ledger import put_old_ledger

DOMAIN = "old"


@pytest.fixture
def old_server(real_server: RedisServer) -> RedisServer:
    async def fill() -> None:
        client = Backend("real", server=real_server).client()
        await put_old_ledger(client, Keys(DOMAIN))
        await client.aclose()

    asyncio.run(fill())
    return real_server


def inspect(server: RedisServer, *arguments: str) -> int:
    try:
        cli.main(["inspect", *arguments, "--redis-addr", server.address, "--domain", DOMAIN])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_the_upgrade_goes_as_documented(old_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(old_server, "nodes") != 0
    assert "version 0.1" in capsys.readouterr().err

    assert inspect(old_server, "upgrade") == 0
    shown = capsys.readouterr().out
    assert "domain old: version 0.1, 3 nodes, 2 open reservations, 4 bindings" in shown
    assert "nothing was written" in shown

    assert inspect(old_server, "upgrade", "--apply") == 0
    assert "converted to format 4" in capsys.readouterr().out

    assert inspect(old_server, "upgrade", "--apply") == 0
    assert "nothing to convert" in capsys.readouterr().out

    assert inspect(old_server, "check") == 0, capsys.readouterr().out
