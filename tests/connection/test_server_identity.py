"""Which server may lack something that another one acknowledged, and what in its configuration may cost keys."""

from __future__ import annotations

import pytest

from scheduler.connection.client import connect
from scheduler.connection.server import ServerIdentity, hazards
from tests.connection.stub_server import StubServer

NO_HISTORY = "0" * 40
FIRST = ServerIdentity("run-1", "history-1")


def test_a_server_that_got_its_first_replica_lacks_nothing_though_its_history_has_a_new_name() -> None:
    now = ServerIdentity.of({"run_id": "run-1", "master_replid": "history-2", "master_replid2": NO_HISTORY})
    assert not now.is_same(FIRST)
    assert not now.may_lack_writes_of(FIRST)


def test_a_server_that_was_a_replica_in_between_may_lack_something() -> None:
    now = ServerIdentity.of({"run_id": "run-1", "master_replid": "history-3", "master_replid2": "history-2"})
    assert now.may_lack_writes_of(FIRST)


def test_another_process_may_lack_something() -> None:
    assert ServerIdentity("run-2", "history-1").may_lack_writes_of(FIRST)


def test_the_embedded_ledger_is_always_the_same() -> None:
    assert ServerIdentity.of({}).is_same(ServerIdentity())
    assert not ServerIdentity.of({}).may_lack_writes_of(ServerIdentity())


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({"maxmemory": "104857600", "maxmemory_policy": "allkeys-lru"}, ["any key, open reservations too"]),
        ({"maxmemory": "104857600", "maxmemory_policy": "volatile-ttl"}, ["reservations that are over"]),
        ({"maxmemory": "104857600", "maxmemory_policy": "noeviction"}, []),
        ({"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, []),  # never reached
        ({"maxmemory_policy": "allkeys-lru"}, []),
        ({"aof_enabled": "0"}, ["appendonly is no"]),
        ({"aof_enabled": "1"}, []),
        ({}, []),
    ],
)
def test_what_may_cost_the_ledger_keys_is_told(info: dict[str, str], told: list[str]) -> None:
    found = hazards(info, info)
    assert len(found) == len(told)
    assert all(part in hazard for part, hazard in zip(told, found, strict=True))


async def test_a_server_that_does_not_say_how_it_is_configured_has_no_hazards() -> None:
    async with StubServer(lambda _: b"-NOPERM this user has no permissions to run the 'info' command\r\n") as stub:
        client = await connect(stub.address)
        assert await client.hazards() == ()
        await client.close()
