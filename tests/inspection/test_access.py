"""What a Redis user must be allowed to check a ledger, beside what a replica needs."""

from __future__ import annotations

import pytest

from scheduler.connection.keys import Keys
from scheduler.errors import StoreUnusable
from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import open_ledger
from tests.inspection.busy import SETTINGS, make_busy
from tests.redis.test_access import MINIMAL_ACL
from tests.support.backends import put_settings
from tests.support.servers import RedisServer

# As docs/operations.md tells.
FOR_A_CHECK = ("+scan", "+zscan", "+type", "+lrange")
DOMAIN = "checked"


async def check_as(server: RedisServer, *rules: str) -> list[str]:
    """A check of a busy ledger by a user with these rules alone."""
    with server.client() as admin:
        admin.execute_command("ACL", "DELUSER", "inspector")
        allowed = ["on", ">hunter2", f"~{Keys(DOMAIN).pattern}", "-@all", *rules]
        admin.execute_command("ACL", "SETUSER", "inspector", *allowed)
    ledger = await open_ledger(f"redis://inspector:hunter2@{server.address}", domain=DOMAIN)
    try:
        return await recount(ledger)
    finally:
        await ledger.close()


async def test_a_check_needs_four_commands_more_and_each_of_them(private_server: RedisServer) -> None:
    ledger = await open_ledger(private_server.address, domain=DOMAIN)
    await put_settings(ledger, SETTINGS)
    await make_busy(ledger)
    # A collection that is being cleared away, whose key is judged by the list of them.
    keys = ledger.keys
    await ledger.client.pipeline(
        [("RPUSH", keys.artifact_leftovers, "artifact|1|x"), ("HSET", keys.artifact_parked("1"), "a", "1")]
    )
    await ledger.close()
    assert await check_as(private_server, *MINIMAL_ACL, *FOR_A_CHECK) == []
    for left_out in FOR_A_CHECK:
        rest = [rule for rule in FOR_A_CHECK if rule != left_out]
        with pytest.raises(StoreUnusable, match="ACL"):
            await check_as(private_server, *MINIMAL_ACL, *rest)
