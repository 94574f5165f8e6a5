"""`inspect repair` and `inspect clock` as an operator types them, against a real server and no replica at all."""

from __future__ import annotations

import asyncio

import pytest

from scheduler import cli
from scheduler.connection.keys import Keys
from tests.inspection.busy import SETTINGS, make_busy
from tests.support.backends import Backend, put_settings
from tests.support.servers import RedisServer

DOMAIN = "odd"
KEYS = Keys(DOMAIN)


@pytest.fixture
def odd_server(real_server: RedisServer) -> RedisServer:
    """A row that counts what nobody reserved."""

    async def fill() -> None:
        ledger = await Backend("real", server=real_server).open(domain=DOMAIN)
        await put_settings(ledger, SETTINGS)
        await make_busy(ledger)
        await ledger.close()

    asyncio.run(fill())
    with real_server.client() as client:
        row = str(client.hget(KEYS.loads, "a")).split(",")
        row[8] = str(int(row[8]) + 3)
        client.hset(KEYS.loads, "a", ",".join(row))
    return real_server


def inspect(server: RedisServer, *arguments: str) -> int:
    try:
        cli.main(["inspect", *arguments, "--redis-addr", server.address, "--domain", DOMAIN])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_what_is_to_end_by_itself_and_does_not_gets_an_end(
    odd_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = KEYS.named("batch:b1")
    with odd_server.client() as client:
        client.hset(batch, "strategy", "least_loaded")
        client.persist(KEYS.lease("discovery"))
        assert inspect(odd_server, "repair", "--apply") == 0
        told = capsys.readouterr().out
        for name in (batch, KEYS.lease("discovery")):
            assert f"repaired: key {name} has no TTL" in told
            assert 0 < client.pttl(name) <= 3_600_000
    assert inspect(odd_server, "check") == 0


def test_a_key_that_nothing_explains_is_left_and_no_repair_is_promised(
    odd_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, left = KEYS.named("leftover"), "keys that nothing explains are never removed"
    with odd_server.client() as client:
        client.set(odd, 1)
        assert inspect(odd_server, "repair") == 1
        assert f"nothing was written; --apply repairs\n{left}" in capsys.readouterr().out
        assert inspect(odd_server, "repair", "--apply") == 1
        assert left in capsys.readouterr().out
        assert inspect(odd_server, "repair") == 1
        assert f"nothing was written\n{left}" in capsys.readouterr().out
        client.unlink(odd)
    assert inspect(odd_server, "check") == 0


def test_repair_tells_first_and_writes_when_asked(odd_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(odd_server, "check") == 1
    capsys.readouterr()
    assert inspect(odd_server, "repair") == 1
    told = capsys.readouterr().out
    assert "left: node a its row counts" in told
    assert "nothing was written; --apply repairs" in told
    assert inspect(odd_server, "check") == 1
    capsys.readouterr()
    assert inspect(odd_server, "repair", "--apply") == 0
    assert "repaired: node a its row counts" in capsys.readouterr().out
    assert inspect(odd_server, "check") == 0
    assert inspect(odd_server, "repair") == 0
    assert "all of it adds up" in capsys.readouterr().out


def test_the_clock_is_told_and_reset(odd_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with odd_server.client() as client:
        client.hset(KEYS.rotations, "offset", 600_000)
        client.hincrby(KEYS.rotations, "now", 600_000)
    assert inspect(odd_server, "clock") == 0
    assert "ledger time is 600.000 s ahead of the server's clock" in capsys.readouterr().out
    assert inspect(odd_server, "clock", "--reset") == 0
    assert "was 600.000 s ahead" in capsys.readouterr().out
    assert inspect(odd_server, "clock") == 0
    assert "ledger time is 0.000 s ahead" in capsys.readouterr().out
