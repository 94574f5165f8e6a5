"""Which Redis replicas count, and how long a placement waits for them."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.connection.budget import Budget
from scheduler.connection.replicas import RedisReplicas
from scheduler.connection.server import replicas_online
from scheduler.errors import StoreUnavailable
from tests.support.virtual_time import virtually

ONLINE = "ip=10.0.0.1,port=6379,state=online,offset=1,lag=0"


@pytest.mark.parametrize(
    ("replication", "online"),
    [
        ({"connected_slaves": "0"}, 0),
        ({"connected_slaves": "2", "slave0": ONLINE, "slave1": ONLINE}, 2),
        ({"connected_slaves": "2", "slave0": ONLINE, "slave1": ONLINE.replace("online", "wait_bgsave")}, 1),
        # Frozen or cut off: it is online until repl-timeout.
        ({"connected_slaves": "2", "slave0": ONLINE.replace("lag=0", "lag=11"), "slave1": ONLINE}, 1),
        ({"connected_slaves": "1", "slave0": f"{ONLINE},type=replica"}, 1),
        ({"connected_slaves": "1", "slave_expires_tracked_keys": "0"}, 1),
        ({}, None),
    ],
)
def test_what_is_online_and_was_heard_of_lately_counts(replication: dict[str, str], online: int | None) -> None:
    assert replicas_online(replication) == online


def test_nothing_is_waited_for_while_enough_are_online_or_nobody_knows() -> None:
    async def story() -> None:
        for wanted, told in ((0, 0), (0, None), (2, None), (2, 2), (2, 3)):
            replicas = RedisReplicas(wanted, 5_000)
            await replicas.wait_until_enough(Budget(0))
            replicas.note(told)
            await replicas.wait_until_enough(Budget(0))
        assert asyncio.get_running_loop().time() == 0

    virtually(story())


def test_one_that_comes_back_soon_is_waited_for() -> None:
    async def story() -> None:
        replicas, clock = RedisReplicas(1, 5_000), asyncio.get_running_loop().time
        replicas.note(0)
        waiting = asyncio.create_task(replicas.wait_until_enough(Budget(5_000)))
        await asyncio.sleep(2)
        replicas.note(1)
        await waiting
        assert clock() == 2

    virtually(story())


def test_with_too_few_for_long_the_refusal_comes_at_once() -> None:
    async def story() -> None:
        replicas, clock = RedisReplicas(2, 5_000), asyncio.get_running_loop().time
        replicas.note(1)
        for budget_ms, refused_at in ((1_000, 1), (10_000, 5), (10_000, 5)):
            replicas.note(1)  # asked again: it has not begun anew
            with pytest.raises(StoreUnavailable, match="not written, since fewer than 2 replicas are online"):
                await replicas.wait_until_enough(Budget(budget_ms))
            assert clock() == refused_at

    virtually(story())
