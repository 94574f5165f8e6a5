"""The gateway as AgentENV's Go gateway behaves: which calls for which HTTP request, in which order.

    create  Schedule → node → RecordAssignment        use   LookupNode → node
    fork    LookupNode → node → RecordAssignment × n  list  ListNodes → every node
There is no retry and no second node anywhere; a failed RecordAssignment is only logged.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import grpc

from scheduler.api.grpc.generated import scheduler_v1_pb2
from tests.grpc.life.rust_node import RustNode, Sandbox, State

v1: Any = scheduler_v1_pb2

REQUEST_SECONDS = 30
RECORD_SECONDS = 5


@dataclass
class Gateway:
    """`answers` counts what callers got, by request and status."""

    stub: Any
    nodes: dict[str, RustNode]
    answers: dict[tuple[str, str], int] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)

    async def create(self, cpu_count: int, memory_mb: int, image: str) -> None:
        cold = v1.NewColdSandboxHint(cpu_count=cpu_count, memory_mb=memory_mb, images=[image])
        hint = v1.ScheduleRequestHint(new_cold_sandbox=cold)
        placed = await self._call("Schedule", v1.ScheduleRequest(hint=hint), REQUEST_SECONDS)
        if placed is None or not self.nodes[placed.node.node_id].running:
            return  # 502 upstream unavailable: nothing tells the scheduler
        endpoint = placed.node

        async def answered(sandbox: Sandbox) -> None:
            await self._record(sandbox.sandbox_id, endpoint)

        sandbox = Sandbox(str(uuid.uuid4()), cpu_count, memory_mb)
        self.nodes[endpoint.node_id].create(sandbox, answered)

    async def lookup(self, sandbox_id: str) -> tuple[str, str]:
        """Status name and, when it is OK, the node that was named."""
        try:
            answer = await self.stub.LookupNode(v1.LookupNodeRequest(sandbox_id=sandbox_id), timeout=REQUEST_SECONDS)
        except grpc.aio.AioRpcError as error:
            self._count("LookupNode", error.code().name)
            return error.code().name, ""
        self._count("LookupNode", "OK")
        return "OK", str(answer.node.node_id)

    async def fork(self, parent: Sandbox, count: int) -> None:
        status, node_id = await self.lookup(parent.sandbox_id)
        if status != "OK" or parent.state is not State.RUNNING:
            return
        node = self.nodes[node_id]
        children = await node.fork(parent, [str(uuid.uuid4()) for _ in range(count)])
        for child in children:
            await self._record(child.sandbox_id, v1.Node(node_id=node_id, endpoint=f"http://{node_id}:8000"))

    async def list_sandboxes(self) -> list[str]:
        answer = await self._call("ListNodes", v1.ListNodesRequest(), REQUEST_SECONDS)
        return [node.node_id for node in answer.nodes] if answer else []

    async def list_nodes(self) -> list[str]:
        answer = await self._call("ListObservedNodes", v1.ListObservedNodesRequest(), REQUEST_SECONDS)
        return [node.node_id for node in answer.nodes] if answer else []

    async def other_route(self) -> None:
        """Templates, snapshots, anything unknown: a Schedule without hint."""
        await self._call("Schedule", v1.ScheduleRequest(), REQUEST_SECONDS)

    async def _record(self, sandbox_id: str, node: Any) -> None:
        request = v1.RecordAssignmentRequest(sandbox_id=sandbox_id, node=node)
        if await self._call("RecordAssignment", request, RECORD_SECONDS) is not None:
            self.recorded.add(sandbox_id)

    async def _call(self, method: str, request: Any, seconds: float) -> Any:
        try:
            answer = await getattr(self.stub, method)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            self._count(method, error.code().name)
            return None
        self._count(method, "OK")
        return answer

    def _count(self, method: str, status: str) -> None:
        self.answers[method, status] = self.answers.get((method, status), 0) + 1
