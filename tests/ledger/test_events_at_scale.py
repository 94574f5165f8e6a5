"""A batch of events costs what its node has open, once, however many events it brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger
from tests.support.backends import Backend, put_settings
from tests.support.servers import RedisServer

OPEN, EVENTS = 200, 100


@pytest.fixture
async def ledger(real_server: RedisServer) -> AsyncIterator[Ledger]:
    """On a real server, which counts the commands inside of scripts."""
    opened = await Backend("real", server=real_server).open()
    yield opened
    await opened.close()


async def test_a_batch_of_creates_reads_each_open_reservation_once_and_names_the_oldest(ledger: Ledger) -> None:
    await put_settings(ledger, LedgerSettings())
    await ledger.nodes.replace([NodeAddress("a", "http://a:8000")], ())
    await ledger.nodes.heartbeat(Heartbeat("a", "instance", snapshot=NodeSnapshot(NodeStatus.READY)))
    request = ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64), lifecycle=Lifecycle.HEARTBEAT)
    await asyncio.gather(*(ledger.placements.schedule(request) for _ in range(OPEN)))
    events = [SandboxEvent(f"sandbox-{n}", SandboxEventType.CREATE, 1, 64 * MIB) for n in range(EVENTS)]
    await ledger.client.command("CONFIG", "RESETSTAT")
    assert await ledger.nodes.record_events("a", "instance", events) == EVENTS
    reads = (await ledger.client.info("commandstats"))["cmdstat_hgetall"]
    calls = int(dict(part.split("=") for part in reads.split(","))["calls"])
    assert calls <= OPEN + EVENTS + 1, "once more for what is left unnamed"
    oldest, _ = await ledger.reservations.list(limit=EVENTS)
    assert [found.sandbox_id for found in oldest] == [event.sandbox_id for event in events]
