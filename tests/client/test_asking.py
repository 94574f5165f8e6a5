"""One call: how long it is asked, how often, and when."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from agentenv_scheduler_client import (
    AsyncSchedulerClient,
    ColdSandbox,
    Creation,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    StoreUnavailable,
    Unavailable,
)
from tests.client.fake_scheduler import AWAY, BROKEN, GARBLED, LOST, SILENT, UNSENT, FakeScheduler
from tests.support.virtual_time import now, virtually

HINT = ColdSandbox(cpu_count=1)


@pytest.mark.parametrize("fault", [LOST, UNSENT, AWAY, GARBLED, BROKEN, SILENT])
def test_a_schedule_that_is_not_answered_is_asked_again_under_the_same_key(fault: str) -> None:
    scheduler = FakeScheduler(faults={"schedule": [fault, fault]})

    async def story() -> None:
        async with scheduler.client() as client:
            decision = await client.schedule(HINT)
        assert decision.replayed == (fault in {LOST, GARBLED, BROKEN, SILENT})

    virtually(story())
    assert len({one.headers["idempotency-key"] for one in scheduler.asked}) == 1
    assert scheduler.calls() == ["schedule"] * 3
    assert scheduler.states() == ["pending"]


@pytest.mark.parametrize("fault", [LOST, UNSENT, AWAY, GARBLED, BROKEN, SILENT])
@pytest.mark.parametrize("seconds", [0.5, 3.0, 10.0])
def test_one_deadline_holds_attempts_and_pauses_together(fault: str, seconds: float) -> None:
    scheduler = FakeScheduler()
    scheduler.during("schedule", fault, until=1e6)

    async def story() -> float:
        async with scheduler.client(timeout_seconds=seconds, attempts=1000) as client:
            with pytest.raises(Unavailable) as caught:
                await client.schedule(HINT)
            assert caught.value.answered is False
            assert (caught.value.unanswered > 0) == (fault != UNSENT)
            assert caught.value.idempotency_key == scheduler.asked[0].headers["idempotency-key"]
            return now()

    assert virtually(story()) <= seconds + 0.001


def test_a_silent_replica_leaves_time_for_another_one() -> None:
    scheduler = FakeScheduler(faults={"schedule": [SILENT]})

    async def story() -> float:
        async with scheduler.client(timeout_seconds=4.0) as client:
            await client.schedule(HINT)
            return now()

    assert virtually(story()) <= 2.4
    # And the replica is told how long anybody listens.
    assert scheduler.asked[0].headers["x-request-timeout"] == "1800ms"


def test_callers_refused_together_come_back_apart_and_none_too_early() -> None:
    came: list[float] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        came.append(now())
        problem = {"code": "overloaded", "detail": "later", "status": 503}
        return httpx.Response(503, json=problem, headers={"Retry-After": "1"})

    async def ask(client: AsyncSchedulerClient) -> None:
        with pytest.raises(Overloaded):
            await client.schedule(HINT)

    async def story() -> None:
        async with AsyncSchedulerClient("http://s", transport=httpx.MockTransport(refuse), attempts=2) as client:
            await asyncio.gather(*(ask(client) for _ in range(200)))

    virtually(story())
    second = [at for at in came if at > 0]
    assert len(second) == 200
    assert min(second) >= 1
    buckets = [int(at * 10) for at in second]
    assert max(buckets.count(bucket) for bucket in buckets) < 60


@pytest.mark.parametrize("asked", ["0", "soon", "-1", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_an_odd_retry_after_does_not_make_callers_hurry(asked: str) -> None:
    problem = {"code": "store_unavailable", "detail": "gone", "status": 503}
    answer = httpx.Response(503, json=problem, headers={"Retry-After": asked})

    async def story() -> float:
        transport = httpx.MockTransport(lambda request: answer)
        async with AsyncSchedulerClient("http://s", transport=transport, attempts=3) as client:
            with pytest.raises(StoreUnavailable):
                await client.schedule(HINT)
        return now()

    assert 0.6 <= virtually(story()) <= 1.2


def test_a_pause_that_the_time_does_not_allow_is_told_instead_of_shortened() -> None:
    problem = {"code": "store_unavailable", "detail": "read-only", "status": 503}
    answer = httpx.Response(503, json=problem, headers={"Retry-After": "30"})

    async def story() -> float:
        transport = httpx.MockTransport(lambda request: answer)
        async with AsyncSchedulerClient("http://s", transport=transport) as client:
            with pytest.raises(StoreUnavailable) as caught:
                await client.schedule(HINT)
            assert caught.value.retry_after_seconds == 30
            with pytest.raises(StoreUnavailable):
                await client.with_patience(100, attempts=2).schedule(HINT)
        return now()

    assert 30 <= virtually(story()) <= 60


def test_who_has_no_time_asks_nobody() -> None:
    scheduler = FakeScheduler()

    async def story() -> None:
        async with scheduler.client() as client:
            with pytest.raises(DeadlineExceeded):
                await client.with_patience(0).schedule(HINT)

    virtually(story())
    assert scheduler.asked == []


@pytest.mark.parametrize("key", ["", "ключ", "a b", "a\n", "x" * 256])
def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_asked(key: str) -> None:
    scheduler = FakeScheduler()

    async def story() -> None:
        async with scheduler.client() as client:
            for ask in (
                lambda: client.schedule(HINT, idempotency_key=key),
                lambda: client.schedule_batch([Creation(HINT)], idempotency_key=key),
            ):
                with pytest.raises(InvalidRequest) as caught:
                    await ask()
                assert caught.value.errors[0].field == "idempotency_key"
            with pytest.raises(InvalidRequest):
                async with client.place(HINT, idempotency_key=key):
                    pass

    virtually(story())
    assert not scheduler.asked
