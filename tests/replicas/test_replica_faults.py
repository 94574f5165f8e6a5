"""Replicas die, freeze, leave and fall out of step; the ledger keeps every promise all the same."""

from __future__ import annotations

import asyncio

import pytest

from tests.replicas.conftest import StartServer
from tests.replicas.harness.callers import Workload
from tests.replicas.harness.scene import Setting, now, scene

pytestmark = [pytest.mark.faults, pytest.mark.brief]


async def test_replicas_that_are_killed_take_no_promise_with_them(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(replicas=3)) as at:
        recoveries = []
        for victim in (0, 1, 2):
            await at.more_answers(60)
            await at.rig.kill(victim)
            recoveries.append(await at.recovery_seconds(now()))
            await at.rig.replace(victim)
        verdict = await at.verdict("kill -9 of a replica", recovery_s=max(recoveries), kills=3)
        assert verdict.lost == []


async def test_a_frozen_replica_that_wakes_after_ten_seconds_promises_nothing_twice(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(settings=("report_ttl=5s",), workload=Workload(clients=6))) as at:
        await at.more_answers(60)
        at.rig.freeze(0)
        frozen_at = now()
        await asyncio.sleep(10)  # real time: the freeze outlasts reports, signs of life and callers' patience
        recovery = await at.recovery_seconds(frozen_at)
        at.rig.wake(0)
        await at.more_answers(60)
        await at.rig.ready()
        await at.verdict("SIGSTOP of a replica, woken after 10 s", recovery_s=recovery)


async def test_a_terminated_replica_finishes_what_it_has_and_nothing_is_lost(start_server: StartServer) -> None:
    async with scene(start_server(), Setting(replicas=2)) as at:
        for victim in (0, 1):
            await at.more_answers(60)
            assert await at.rig.terminate(victim) == 0
            await at.rig.replace(victim)
        await at.more_answers(30)
        cut = [answer for answer in at.history.answers if answer.fault in ("ReadError", "RemoteProtocolError")]
        await at.verdict("SIGTERM of a replica under load", cut_mid_request=len(cut))
