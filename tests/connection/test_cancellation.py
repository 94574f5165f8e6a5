"""A task that is cancelled during a call to the ledger ends, wherever the cancellation meets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from scheduler.cancellation import end_tasks, heed_cancellation
from scheduler.connection.client import StoreClient, StoreOptions, connect
from scheduler.connection.scripts import ScriptLibrary
from scheduler.connection.servers import ServerConnections
from scheduler.connection.topology import FixedTopology
from tests.connection.conftest import SETTINGS
from tests.support.backends import Backend
from tests.support.interruptions import Instant, Interruption

Work = Callable[[StoreClient], Coroutine[Any, Any, Any]]
MOST_SUSPENSIONS = 200

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def connections_of(client: StoreClient) -> ServerConnections:
    topology = client._topology
    assert isinstance(topology, FixedTopology)
    return topology._now


def open_connections(client: StoreClient) -> list[Any]:
    """Those of the pool and the shared ones."""
    at = connections_of(client)
    pooled = [connection for connection in at.pool._available_connections if connection.is_connected]
    return pooled + [each for each in (at.shared._all if at.shared else ()) if not each._transport.is_closing()]


async def count(client: StoreClient) -> list[Any]:
    return await client.run("count", settings_key=SETTINGS)


async def count_alone(client: StoreClient) -> list[Any]:
    return await client.run("count", settings_key=SETTINGS, alone=True)


async def backlog(client: StoreClient) -> list[Any]:
    return await client.run("slices", [3], settings_key=SETTINGS)


async def pipeline(client: StoreClient) -> list[Any]:
    return await client.pipeline([("GET", SETTINGS), ("ECHO", "one"), ("ECHO", "two")])


async def refusal(client: StoreClient) -> list[Any]:
    return await client.run("broken", settings_key=SETTINGS)


async def forgotten(client: StoreClient) -> list[Any]:
    await client.command("SCRIPT", "FLUSH")
    return await count(client)


WORK: dict[str, Work] = {
    "a script": count,
    "a script on a connection of its own": count_alone,
    "a backlog": backlog,
    "a pipeline": pipeline,
    "a refusal": refusal,
    "a script the server has forgotten": forgotten,
}


@asynccontextmanager
async def opened(backend: Backend, library: ScriptLibrary, *, warm: bool) -> AsyncIterator[StoreClient]:
    """One connection beside the shared one, so that whoever comes next gets the one of the cancelled call."""
    client = await connect(
        backend.redis_addr,
        StoreOptions(fake_server=backend.fake_server, pool_size=1),
        library=library,
        home_key=SETTINGS,
    )
    try:
        if warm:
            await client.load_scripts()
        yield client
    finally:
        await client.close()
        assert not open_connections(client)


async def interrupted(interruption: Interruption, work: Coroutine[Any, Any, Any], what: str) -> bool:
    """Whether the work was still going on when it was to be cancelled; it must have ended cancelled then."""
    task = asyncio.create_task(interruption.around(work))
    # Not forever: a task that lost its cancellation may go on waiting.
    done, _ = await asyncio.wait([task], timeout=30)
    assert done, f"{what}: goes on, although cancelled"
    if not interruption.happened:
        if not task.cancelled():
            task.exception()
        return interruption.suspensions >= interruption.number
    assert task.cancelled(), f"{what}: ended with {task.exception() or task.result()!r}"
    return True


async def sweep(backend: Backend, library: ScriptLibrary, work: Work, *, warm: bool) -> int:
    """Cancels the work at each of its suspensions, at each instant of them; how many times it was cancelled."""
    happened = 0
    for instant in Instant:
        for number in range(1, MOST_SUSPENSIONS):
            what = f"suspension {number}, {instant}"
            async with opened(backend, library, warm=warm) as client:
                interruption = Interruption(number, instant)
                if not await interrupted(interruption, work(client), what):
                    break
                happened += interruption.happened
                await assert_unharmed(client, what)
        else:
            pytest.fail(f"more than {MOST_SUSPENSIONS} suspensions")
    return happened


async def assert_unharmed(client: StoreClient, what: str) -> None:
    statistics = client.statistics
    assert (statistics.connections_in_use, statistics.waiting_for_connection) == (0, 0), what
    assert statistics.sharing_connection == 0, what
    assert not connections_of(client).pool._in_use_connections, what
    # An answer that was still under way to the cancelled call would be taken for this one's.
    assert await client.command("ECHO", what) == what.encode(), what
    assert await client.run("echo", [what], settings_key=SETTINGS) == [b"ok", SETTINGS.encode(), what.encode()], what


def run_on(loop: str, main: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("warm", [True, False], ids=["connected", "not yet connected"])
@pytest.mark.parametrize("work", WORK)
def test_a_call_that_is_cancelled_anywhere_ends_and_harms_no_other(
    backend: Backend, library: ScriptLibrary, work: str, warm: bool, loop: str
) -> None:
    assert run_on(loop, sweep(backend, library, WORK[work], warm=warm)) > 0


@pytest.mark.parametrize("loop", LOOPS)
def test_waiting_for_a_connection_can_be_cancelled_anywhere(
    backend: Backend, library: ScriptLibrary, loop: str
) -> None:
    async def behind_another(client: StoreClient) -> None:
        slots = client._attempts._slots
        await slots.acquire()
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, loop.call_soon, slots.release)
        await count_alone(client)

    assert run_on(loop, sweep(backend, library, behind_another, warm=True)) > 0


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_that_is_cancelled_ends_and_leaves_no_connection_open(
    backend: Backend, library: ScriptLibrary, loop: str
) -> None:
    async def main() -> int:
        happened = 0
        for instant in Instant:
            for number in range(1, MOST_SUSPENSIONS):
                async with opened(backend, library, warm=True) as client:
                    await count(client)
                    assert len(open_connections(client)) == 1 + (not client.embedded)
                    interruption = Interruption(number, instant)
                    if not await interrupted(interruption, client.close(), f"suspension {number}, {instant}"):
                        break
                    happened += interruption.happened
                    assert not open_connections(client)
        return happened

    assert run_on(loop, main()) > 0


@pytest.mark.parametrize("turns", range(12))
async def test_a_loop_of_calls_ends_when_cancelled_in_any_turn(client: StoreClient, turns: int) -> None:
    async def for_ever() -> None:
        while True:
            await count(client)

    for warm_up in range(20):
        task = asyncio.create_task(for_ever())
        for _ in range(turns + warm_up):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=30)
        assert done
        assert task.cancelled()


async def test_a_task_that_is_cancelled_may_still_call_while_it_cleans_up(client: StoreClient) -> None:
    replies: list[Any] = []

    async def holder() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            replies.append(await count(client))

    task = asyncio.create_task(holder())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert replies == [[b"ok", 1]]


async def test_a_time_limit_around_a_call_stays_a_time_limit(client: StoreClient) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await count(client)
    assert await client.run("single", settings_key=SETTINGS) == [b"ok"]


def losing(work: Awaitable[None]) -> Coroutine[Any, Any, str]:
    """What a library does that answers instead of being cancelled."""

    async def lose() -> str:
        try:
            await work
        except asyncio.CancelledError:
            return "as if nothing had happened"
        return "not cancelled"

    return lose()


async def test_a_cancellation_that_a_block_loses_is_raised_at_its_end() -> None:
    async def work() -> None:
        with heed_cancellation():
            await losing(asyncio.sleep(60))

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_error_instead_of_a_cancellation_is_its_cause() -> None:
    async def work() -> None:
        with heed_cancellation():
            await losing(asyncio.sleep(60))
            raise ConnectionError("closed")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert isinstance(cancelled.value.__cause__, ConnectionError)


async def test_a_time_limit_inside_a_block_is_no_cancellation_of_it() -> None:
    with heed_cancellation(), pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(60)


async def test_ending_tasks_cancels_again_what_lost_its_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    async def deaf_once() -> None:
        await losing(asyncio.sleep(60))
        await asyncio.sleep(60)

    async def fails() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ConnectionError("while it was ended")

    tasks = [asyncio.create_task(deaf_once(), name="deaf"), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    await end_tasks(tasks, patience_seconds=0.01)
    assert [task.cancelled() for task in tasks] == [True, False]
    assert [record.task for record in caplog.records] == ["deaf"]  # type: ignore[attr-defined]
