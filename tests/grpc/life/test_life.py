"""A cluster's life, lived on a virtual clock: no sandbox that runs is ever unknown once it was reported.

Three nodes and a gateway as AgentENV has them, one replica in front of one ledger. Sandboxes are
created, used, forked, paused, deleted; a node restarts in order, another one crashes, the scheduler
is replaced, and the ledger is away for half a minute.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from scheduler.api.grpc import GrpcOptions, GrpcServer, create_server
from scheduler.api.grpc.generated import scheduler_v1_pb2_grpc
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.conformance.world import StoreSwitch
from tests.grpc.life.gateway import Gateway
from tests.grpc.life.rust_node import RustNode, Sandbox, State
from tests.grpc.life.timeline import Timeline
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NODES = ("a", "b", "c")
IMAGES = tuple(f"registry/app:{number}" for number in range(6))


@dataclass
class Life:
    """The cluster, and the replica in front of it."""

    backend: Backend
    clock: VirtualClock
    switch: StoreSwitch
    redis_addr: str | None
    timeline: Timeline
    chance: random.Random
    nodes: dict[str, RustNode] = field(default_factory=dict)
    gateway: Gateway = field(default_factory=lambda: Gateway(None, {}))
    ledger: Ledger | None = None
    server: GrpcServer | None = None
    channel: grpc.aio.Channel | None = None
    lookups: Counter[str] = field(default_factory=Counter)
    outage: bool = False

    async def start_scheduler(self) -> None:
        self.ledger = await self.backend.open(clock=self.clock, redis_addr=self.redis_addr)
        await put_settings(self.ledger, LedgerSettings(strategy=Strategy.LEAST_LOADED))
        self.server = create_server(build_services(self.ledger), GrpcOptions(address="127.0.0.1:0"))
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}")
        stub: Any = scheduler_v1_pb2_grpc.SchedulerStub(self.channel)  # type: ignore[no-untyped-call]
        self.gateway.stub = stub
        for node in self.nodes.values():
            node.stub = stub

    async def stop_scheduler(self) -> None:
        assert self.server is not None
        assert self.channel is not None
        assert self.ledger is not None
        await self.server.stop(None)
        await self.channel.close()
        await self.ledger.close()
        # Callers find nobody there until another replica is up.
        dead = grpc.aio.insecure_channel("127.0.0.1:1")
        self.gateway.stub = scheduler_v1_pb2_grpc.SchedulerStub(dead)  # type: ignore[no-untyped-call]
        for node in self.nodes.values():
            node.stub = self.gateway.stub

    async def begin(self) -> None:
        for node_id in NODES:
            self.nodes[node_id] = RustNode(node_id, self.timeline, None, random.Random(node_id))
        self.gateway.nodes = self.nodes
        await self.start_scheduler()
        assert self.ledger is not None
        await self.ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in NODES], [])
        for node in self.nodes.values():
            node.start()
        self.timeline.every(13_000, self.create)
        self.timeline.every(7_000, self.use)
        self.timeline.every(17_000, self.change)
        self.timeline.every(61_000, self.look_around)

    # What people do

    async def create(self) -> None:
        cpu_count = self.chance.choice([1, 2, 4])
        await self.gateway.create(cpu_count, 1024 * cpu_count, self.chance.choice(IMAGES))

    async def use(self) -> None:
        for _ in range(3):
            found = self.any_sandbox()
            if found:
                await self.check(*found)

    async def change(self) -> None:
        found = self.any_sandbox()
        if not found:
            return
        node, sandbox = found
        what = self.chance.choice(["fork", "pause", "delete", "delete"])
        if sandbox.state is State.PAUSED:
            await node.resume(sandbox)
        elif sandbox.state is State.RUNNING and what == "fork" and len(node.sandboxes) < 12:
            await self.gateway.fork(sandbox, self.chance.randrange(1, 4))
        elif sandbox.state is State.RUNNING and what == "pause":
            await node.pause(sandbox)
        elif sandbox.state is State.RUNNING and len(node.sandboxes) > 3:
            await node.delete(sandbox)

    async def look_around(self) -> None:
        """Everything that runs is asked for, and the views are read as the gateway reads them."""
        for node in self.nodes.values():
            for sandbox in list(node.sandboxes.values()):
                await self.check(node, sandbox)
        if not self.outage:
            assert set(await self.gateway.list_sandboxes()) == set(NODES)
            assert set(await self.gateway.list_nodes()) <= set(NODES)
            await self.gateway.other_route()
            node = self.nodes[self.chance.choice(NODES)]
            if node.running:
                await node.publish(f"image/{self.chance.choice(IMAGES)}")

    def any_sandbox(self) -> tuple[RustNode, Sandbox] | None:
        found = [(node, sandbox) for node in self.nodes.values() for sandbox in node.sandboxes.values()]
        return self.chance.choice(found) if found else None

    async def check(self, node: RustNode, sandbox: Sandbox) -> None:
        known = sandbox.reported or sandbox.sandbox_id in self.gateway.recorded
        status, node_id = await self.gateway.lookup(sandbox.sandbox_id)
        if known:
            self.lookups[status] += 1
            expected = {"OK", "UNAVAILABLE"} if self.outage else {"OK"}
            at = self.timeline.now_ms - 1_700_000_000_000
            assert status in expected, f"{sandbox} on {node.node_id} answered {status} at {at} ms"
        if status == "OK":
            assert node_id == node.node_id

    # What happens to them

    async def restart_node(self, node_id: str) -> None:
        await self.nodes[node_id].shut_down()
        await self.timeline.run_for(8_000)
        self.nodes[node_id].start()

    async def crash_node(self, node_id: str) -> None:
        self.nodes[node_id].crash()
        await self.timeline.run_for(45_000)
        self.nodes[node_id].start()

    async def replace_scheduler(self, away_ms: int) -> None:
        self.outage = True
        await self.stop_scheduler()
        await self.timeline.run_for(away_ms)
        await self.start_scheduler()
        self.outage = False

    async def lose_ledger(self, away_ms: int) -> None:
        assert self.ledger is not None
        patient = self.ledger.client.options
        # Half a minute of outage is many calls that fail: each must fail soon.
        self.ledger.client.options = replace(patient, operation_timeout_ms=50)
        self.outage = True
        self.switch.down()
        await self.timeline.run_for(away_ms)
        self.switch.up()
        self.outage = False
        self.ledger.client.options = patient


@pytest.fixture
async def life(backend: Backend, clock: VirtualClock) -> AsyncIterator[Life]:
    switch = StoreSwitch(backend)
    redis_addr = await switch.start()
    lived = Life(backend, clock, switch, redis_addr, Timeline(clock), random.Random("life"))
    await lived.begin()
    try:
        yield lived
    finally:
        switch.up()
        await lived.stop_scheduler()
        await switch.stop()


async def live(life: Life, hours: int) -> None:
    """The troubles of every hour, with quiet in between."""
    for hour in range(hours):
        await life.timeline.run_for(10 * MINUTE_MS)
        await life.restart_node(NODES[hour % 3])
        await life.timeline.run_for(10 * MINUTE_MS)
        await life.replace_scheduler(away_ms=20_000 + 1_000 * hour)
        await life.timeline.run_for(10 * MINUTE_MS)
        await life.lose_ledger(away_ms=30_000)
        await life.timeline.run_for(10 * MINUTE_MS)
        await life.crash_node(NODES[(hour + 1) % 3])
        await life.timeline.run_for(15 * MINUTE_MS)


def judge(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    asked, answers = sum(life.lookups.values()), life.gateway.answers
    with capsys.disabled():
        print(f"\n{asked} lookups of known sandboxes: {dict(life.lookups)}; calls: {answers}")
    assert set(life.lookups) <= {"OK", "UNAVAILABLE"}
    assert life.lookups["UNAVAILABLE"] > 0, "the outages were felt"
    assert life.lookups["OK"] > 20 * life.lookups["UNAVAILABLE"]
    assert answers["Schedule", "OK"] > 100
    assert answers["RecordAssignment", "OK"] > 100
    # One that is neither reported nor recorded yet may be unknown; nothing else is refused but for the outages.
    assert {code for method, code in answers if method != "LookupNode"} <= {"OK", "UNAVAILABLE"}
    for node in life.nodes.values():
        # Every process asked for a template and has the one all three can run.
        assert "0b00000000000000000000000001111111" in node.templates_received[-1]
        assert set(node.peers) == set(NODES) - {node.node_id}
        assert {code for _, code in node.refused} <= {"UNAVAILABLE"}


# The story is the gateway's and the nodes'; what the embedded ledger answers is told elsewhere, and by the day below.
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["real"], indirect=True)
async def test_an_hour_with_all_its_troubles(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    await live(life, hours=1)
    judge(life, capsys)
    assert life.ledger is not None
    await life.timeline.run_for(30_000)
    listed = {sandbox_id for node in life.nodes.values() for sandbox_id in node.sandboxes}
    assert listed, "something runs"
    for node in await life.ledger.nodes.list():
        # Counters and identities settled whatever came to be; nothing is held for what is not coming.
        assert node.pending.sandbox_count <= 3


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_whole_day(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    await live(life, hours=24)
    judge(life, capsys)
