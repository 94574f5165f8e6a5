"""One gateway and one node's process, spoken for over HTTP or over gRPC: the same story through either wire."""

from __future__ import annotations

from typing import Any, Protocol

import grpc
import httpx

from scheduler.api.grpc.generated import reservations_v1alpha_pb2, scheduler_v1_pb2
from tests.grpc.support import Port

v1: Any = scheduler_v1_pb2
v1alpha: Any = reservations_v1alpha_pb2
GIB = 2**30
CPUS, MEMORY_MB = 16, 2048


class Wire(Protocol):
    """`schedule` is a cold one with 2 GiB: the reservation's id, None when it fits on no node. `sequenced`: reports
    carry a sequence, which scheduler.v1 does not know."""

    sequenced: bool

    async def schedule(self, cpu_count: int) -> str | None: ...

    async def heartbeat_schedule(self, cpu_count: int) -> None:
        """By a caller that never confirms."""

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None: ...

    async def report(
        self,
        roster: list[str],
        cpu: int = 0,
        *,
        instance: str = "i-1",
        node: str = "n1",
        sequence: int = 0,
        **more: int,
    ) -> None: ...

    async def event(self, kind: str, sandbox_id: str, cpu_count: int = 0, *, instance: str = "i-1") -> None: ...

    async def unregister(self, instance: str) -> bool:
        """False: refused, it is not the present process."""

    async def node_of(self, sandbox_id: str) -> str | None: ...


def figures(cpu: int, roster: list[str], more: dict[str, int]) -> dict[str, int]:
    return {
        "cpu_count": CPUS,
        "memory_total_bytes": 64 * GIB,
        "allocated_cpu": cpu,
        "allocated_memory_bytes": len(roster) * MEMORY_MB * 2**20,
        "sandbox_count": len(roster),
    } | more


class HttpWire:
    sequenced = True

    def __init__(self, api: httpx.AsyncClient) -> None:
        self.api = api

    async def schedule(self, cpu_count: int, **more: Any) -> str | None:
        hint = {"kind": "cold_sandbox", "cpu_count": cpu_count, "memory_mb": MEMORY_MB}
        answer = await self.api.post("/v1/schedule", json={"hint": hint} | more)
        if answer.status_code == 503:
            assert answer.json()["code"] == "no_nodes"
            return None
        assert answer.status_code == 200
        found: str = answer.json()["reservation"]["reservation_id"]
        return found

    async def heartbeat_schedule(self, cpu_count: int) -> None:
        assert await self.schedule(cpu_count, lifecycle="heartbeat")

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        path = f"/v1/reservations/{reservation_id}/confirm"
        assert (await self.api.post(path, json={"sandbox_id": sandbox_id})).status_code == 200

    async def report(
        self,
        roster: list[str],
        cpu: int = 0,
        *,
        instance: str = "i-1",
        node: str = "n1",
        sequence: int = 0,
        **more: int,
    ) -> None:
        snapshot = {"status": "ready", **figures(cpu, roster, more)}
        body: dict[str, Any] = {"service_instance_id": instance, "sandbox_ids": roster, "snapshot": snapshot}
        if sequence:
            body["sequence"] = sequence
        assert (await self.api.post(f"/v1/nodes/{node}/heartbeat", json=body)).status_code == 200

    async def event(self, kind: str, sandbox_id: str, cpu_count: int = 0, *, instance: str = "i-1") -> None:
        told = {
            "sandbox_id": sandbox_id,
            "event_type": kind,
            "requested_cpu": cpu_count,
            "requested_memory_bytes": MEMORY_MB * 2**20,
        }
        body = {"service_instance_id": instance, "events": [told]}
        assert (await self.api.post("/v1/nodes/n1/events", json=body)).status_code == 200

    async def unregister(self, instance: str) -> bool:
        answer = await self.api.delete(f"/v1/nodes/n1?service_instance_id={instance}")
        assert answer.status_code in (200, 409)
        return answer.status_code == 200

    async def node_of(self, sandbox_id: str) -> str | None:
        answer = await self.api.get(f"/v1/bindings/{sandbox_id}")
        return answer.json()["node"]["node_id"] if answer.status_code == 200 else None


class GrpcWire:
    sequenced = False

    def __init__(self, port: Port) -> None:
        self.port = port

    async def schedule(self, cpu_count: int) -> str | None:
        hint = v1alpha.Hint(kind=v1alpha.Hint.KIND_COLD_SANDBOX, cpu_count=cpu_count, memory_mb=MEMORY_MB)
        try:
            answer = await self.port.reservations.Reserve(v1alpha.ReserveRequest(hint=hint))
        except grpc.aio.AioRpcError as refused:
            if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            return None
        found: str = answer.reservation.reservation_id
        return found

    async def heartbeat_schedule(self, cpu_count: int) -> None:
        cold = v1.NewColdSandboxHint(cpu_count=cpu_count, memory_mb=MEMORY_MB)
        await self.port.scheduler.Schedule(v1.ScheduleRequest(hint=v1.ScheduleRequestHint(new_cold_sandbox=cold)))

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        await self.port.reservations.Confirm(
            v1alpha.ConfirmRequest(reservation_id=reservation_id, sandbox_id=sandbox_id)
        )

    async def report(
        self,
        roster: list[str],
        cpu: int = 0,
        *,
        instance: str = "i-1",
        node: str = "n1",
        sequence: int = 0,
        **more: int,
    ) -> None:
        snapshot = v1.NodeSnapshot(status=v1.NODE_STATUS_READY, **figures(cpu, roster, more))
        await self.port.scheduler.Heartbeat(
            v1.HeartbeatRequest(node_id=node, service_instance_id=instance, sandbox_ids=roster, snapshot=snapshot)
        )

    async def event(self, kind: str, sandbox_id: str, cpu_count: int = 0, *, instance: str = "i-1") -> None:
        told = v1.SandboxEvent(
            sandbox_id=sandbox_id,
            event_type=v1.SandboxEventType.Value(f"SANDBOX_EVENT_TYPE_{kind.upper()}"),
            requested_cpu=cpu_count,
            requested_memory_bytes=MEMORY_MB * 2**20,
        )
        await self.port.scheduler.ReportSandboxEvent(
            v1.ReportSandboxEventRequest(node_id="n1", service_instance_id=instance, events=[told])
        )

    async def unregister(self, instance: str) -> bool:
        try:
            await self.port.scheduler.UnregisterNode(
                v1.UnregisterNodeRequest(node_id="n1", service_instance_id=instance)
            )
        except grpc.aio.AioRpcError as refused:
            if refused.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            return False
        return True

    async def node_of(self, sandbox_id: str) -> str | None:
        try:
            answer = await self.port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id=sandbox_id))
        except grpc.aio.AioRpcError as unknown:
            if unknown.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return None
        found: str = answer.node.node_id
        return found
