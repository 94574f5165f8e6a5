"""A fleet that reports and is placed on, over gRPC, at a fixed pace; what every call took.

The pace is open: a call that is due is made whether or not earlier ones have been answered, and
its time counts from when it was due, so a server that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from scheduler.api.grpc.generated import scheduler_v1_pb2, scheduler_v1_pb2_grpc

v1: Any = scheduler_v1_pb2

INTERVAL_SECONDS = 5.0
BOOT_SECONDS = 2.0
CHANNELS_PER_REPLICA = 50
GIB = 1024**3


@dataclass
class LoadedNode:
    """Holds `size` sandboxes; for each that comes, the oldest goes."""

    node_id: str
    roster: deque[str]
    create_successes: int = 0

    def request(self) -> Any:
        return v1.HeartbeatRequest(
            node_id=self.node_id,
            cluster_id="load",
            service_instance_id="service-instance-a",
            snapshot=v1.NodeSnapshot(
                status=v1.NODE_STATUS_READY,
                cpu_count=192,
                memory_total_bytes=768 * GIB,
                allocated_cpu=2 * len(self.roster),
                allocated_memory_bytes=2 * GIB * len(self.roster),
                sandbox_count=len(self.roster),
                create_successes=self.create_successes,
            ),
            sandbox_ids=self.roster,
            machine_info=v1.MachineInfo(cpu_family="6", cpu_model="143"),
            p2p_endpoint=v1.P2pEndpoint(backend="iroh", address=self.node_id),
        )

    def took(self, sandbox_id: str) -> None:
        self.roster.append(sandbox_id)
        self.roster.popleft()
        self.create_successes += 1


@dataclass
class Timings:
    """Seconds of every answered call, and every failure, by method; only while `counting`."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    counting: bool = False

    def table(self) -> str:
        lines = [f"{'call':<20}{'count':>8}{'p50 ms':>10}{'p99 ms':>10}{'worst ms':>10}"]
        for method, taken in sorted(self.seconds.items()):
            cuts = statistics.quantiles(taken, n=100)
            figures = [1000 * value for value in (cuts[49], cuts[98], max(taken))]
            lines.append(f"{method:<20}{len(taken):>8}" + "".join(f"{figure:>10.1f}" for figure in figures))
        return "\n".join(lines)


class Load:
    """`addresses`: one per replica; nodes are spread over them, and so are gateway calls."""

    def __init__(self, addresses: Sequence[str], node_count: int, sandboxes_each: int) -> None:
        self.timings = Timings()
        self.nodes = {
            f"node-{number:05d}": LoadedNode(
                f"node-{number:05d}", deque(str(uuid.uuid4()) for _ in range(sandboxes_each))
            )
            for number in range(node_count)
        }
        # Each channel its own connection: nodes do not share one.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [
            grpc.aio.insecure_channel(address, options=options)
            for _ in range(CHANNELS_PER_REPLICA)
            for address in addresses
        ]
        self._stubs = [scheduler_v1_pb2_grpc.SchedulerStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]
        self._tasks: set[asyncio.Task[None]] = set()
        self._chance = random.Random(1)

    async def run(self, warm_up_seconds: float, seconds: float, schedules_per_second: float) -> None:
        """Everything reports once before placing begins; figures are kept after the warm-up."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        paces = [
            self._pace(start, INTERVAL_SECONDS / len(self.nodes), self._reports(), start + warm_up_seconds + seconds)
        ]
        placing = start + INTERVAL_SECONDS
        paces.append(self._pace(placing, 1 / schedules_per_second, self._creates(), start + warm_up_seconds + seconds))
        loop.call_at(start + warm_up_seconds, self._begin_counting)
        await asyncio.gather(*paces)
        self.timings.counting = False
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def _begin_counting(self) -> None:
        self.timings.counting = True

    async def _pace(self, start: float, every: float, works: Callable[[float], Awaitable[None]], ends: float) -> None:
        loop = asyncio.get_running_loop()
        due = start
        while due < ends:
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            self._spawn(works(due))
            due += every

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reports(self) -> Callable[[float], Awaitable[None]]:
        turn = iter(_forever(list(self.nodes.values())))

        async def report(due: float) -> None:
            number, node = next(turn)
            await self._call(self._stubs[number % len(self._stubs)], "Heartbeat", node.request(), 10, due)

        return report

    def _creates(self) -> Callable[[float], Awaitable[None]]:
        async def create(due: float) -> None:
            stub = self._chance.choice(self._stubs)
            hint = v1.ScheduleRequestHint(new_cold_sandbox=v1.NewColdSandboxHint(cpu_count=2, memory_mb=2048))
            placed = await self._call(stub, "Schedule", v1.ScheduleRequest(hint=hint), 30, due)
            if placed is None:
                return
            await asyncio.sleep(BOOT_SECONDS)
            sandbox_id = str(uuid.uuid4())
            self.nodes[placed.node.node_id].took(sandbox_id)
            now = asyncio.get_running_loop().time()
            request = v1.RecordAssignmentRequest(sandbox_id=sandbox_id, node=placed.node)
            await self._call(stub, "RecordAssignment", request, 5, now)
            now = asyncio.get_running_loop().time()
            await self._call(stub, "LookupNode", v1.LookupNodeRequest(sandbox_id=sandbox_id), 30, now)

        return create

    async def _call(self, stub: Any, method: str, request: Any, seconds: float, due: float) -> Any:
        try:
            answer = await getattr(stub, method)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            self.timings.failures[method, f"{error.code().name} {error.details()}"] += 1
            return None
        if self.timings.counting:
            took = asyncio.get_running_loop().time() - due
            self.timings.seconds.setdefault(method, []).append(took)
        return answer


def _forever(nodes: list[LoadedNode]) -> Any:
    while True:
        yield from enumerate(nodes)
