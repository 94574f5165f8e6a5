"""What a call may cost before, and while, its message arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.api.grpc.intake import SMALL_BYTES_MAX, Intake
from scheduler.domain.node import HeartbeatResult
from scheduler.errors import DeadlineExceeded, Malformed, Overloaded
from tests.grpc.support import refusal, scripted_services, serving

HEARTBEAT = "/scheduler.v1.Scheduler/Heartbeat"
MIB = 1024 * 1024


class Arriving:
    """A call whose message arrives when the test says so."""

    def __init__(self, *, frame: Any = b"") -> None:
        self.asked = asyncio.Event()
        self.arrives = asyncio.Event()
        self.frame = frame

    async def read(self) -> Any:
        self.asked.set()
        await self.arrives.wait()
        return self.frame

    async def received_by(self, intake: Intake, over: asyncio.Event | None = None) -> bytes:
        async with intake.message(self) as frame:  # type: ignore[arg-type]  # all of a context that it looks at
            if over is not None:
                await over.wait()
            return frame


@pytest.fixture
async def tasks() -> AsyncIterator[SimpleNamespace]:
    running: list[asyncio.Task[bytes]] = []

    def start(call: Arriving, intake: Intake, over: asyncio.Event | None = None) -> asyncio.Task[bytes]:
        running.append(asyncio.create_task(call.received_by(intake, over)))
        return running[-1]

    yield SimpleNamespace(start=start)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_message_that_trickles_makes_way_for_those_that_wait(tasks: SimpleNamespace) -> None:
    intake = Intake(messages_max=1, patience_seconds=60, hurried_seconds=0)
    slow, next_one = Arriving(), Arriving(frame=b"here")
    next_one.arrives.set()
    trickling = tasks.start(slow, intake)
    await slow.asked.wait()
    assert await tasks.start(next_one, intake) == b"here"
    with pytest.raises(Overloaded):
        await trickling


async def test_alone_it_has_all_its_time_and_no_more(tasks: SimpleNamespace) -> None:
    slow = Arriving()
    with pytest.raises(DeadlineExceeded):
        await tasks.start(slow, Intake(messages_max=1, patience_seconds=0.01, hurried_seconds=0))


async def test_a_large_message_keeps_its_place_until_its_call_is_over(tasks: SimpleNamespace) -> None:
    intake, over = Intake(messages_max=1), asyncio.Event()
    large, small = Arriving(frame=b"x" * (SMALL_BYTES_MAX + 1)), Arriving(frame=b"x")
    large.arrives.set()
    small.arrives.set()
    working = tasks.start(large, intake, over)
    await large.asked.wait()
    waiting = tasks.start(small, intake)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not small.asked.is_set()
    over.set()
    await asyncio.gather(working, waiting)


async def test_a_small_one_does_not(tasks: SimpleNamespace) -> None:
    intake, over = Intake(messages_max=1), asyncio.Event()
    first, second = Arriving(frame=b"x" * SMALL_BYTES_MAX), Arriving(frame=b"y")
    first.arrives.set()
    second.arrives.set()
    tasks.start(first, intake, over)
    assert await tasks.start(second, intake) == b"y"


async def test_a_call_without_a_message_is_malformed(tasks: SimpleNamespace) -> None:
    empty = Arriving(frame=grpc.aio.EOF)
    empty.arrives.set()
    intake = Intake(messages_max=1)
    with pytest.raises(Malformed):
        await tasks.start(empty, intake)
    with pytest.raises(Malformed):
        await tasks.start(empty, intake), "its place is free again"


async def test_over_the_wire_a_call_without_a_message_is_an_invalid_argument() -> None:
    async with serving(scripted_services()) as port:

        async def nothing() -> AsyncIterator[bytes]:
            return
            yield b""

        call: Any = port.channel.stream_unary(HEARTBEAT)
        assert await refusal(call(nothing())) == ("INVALID_ARGUMENT", "the call carries no message")


async def test_a_message_beyond_four_mebibytes_is_refused_and_nobody_else_notices() -> None:
    services = scripted_services()
    services.nodes.answers("heartbeat", HeartbeatResult(1))
    async with serving(services) as port:
        too_large = port.raw(HEARTBEAT)(b"\x0a" + b"\x00" * (4 * MIB))
        assert (await refusal(too_large))[0] == "RESOURCE_EXHAUSTED"
        largest = v1.HeartbeatRequest(node_id="a", service_instance_id="i", version="v" * (4 * MIB - 20))
        assert 4 * MIB - 20 < largest.ByteSize() <= 4 * MIB
        await port.scheduler.Heartbeat(largest)
