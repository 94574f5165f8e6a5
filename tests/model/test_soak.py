"""The model's examples with seeds nobody has tried yet, for minutes on end."""

from __future__ import annotations

import time

import pytest

from tests.model.machine import SideBySide, judge_seed
from tests.model.test_lifecycle_model import LifecycleMachine
from tests.model.test_placement_model import PlacementMachine
from tests.support.backends import Backend
from tests.support.servers import RedisServer

MINUTES_EACH = 5


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("machine", [PlacementMachine, LifecycleMachine])
async def test_unseen_examples_come_out_as_the_model_says(machine: type[SideBySide], real_server: RedisServer) -> None:
    seed, ends_at = time.time_ns() // 1_000_000, time.monotonic() + 60 * MINUTES_EACH
    examples = 0
    while time.monotonic() < ends_at:
        await judge_seed(machine, Backend("real", server=real_server), seed + examples, steps=80)
        examples += 1
        if examples % 100 == 0:
            real_server.flush()
    print(f"{machine.__name__}: {examples} examples from seed {seed} on")
