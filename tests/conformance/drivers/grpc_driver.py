"""The scheduler over gRPC: `scheduler.v1` as AgentENV's clients speak it, and our reservations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from scheduler.api.grpc import GrpcOptions, GrpcServer, create_server
from scheduler.api.grpc.generated import (
    reservations_v1alpha_pb2,
    reservations_v1alpha_pb2_grpc,
    scheduler_v1_pb2,
    scheduler_v1_pb2_grpc,
)
from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent
from tests.conformance.driver import Ask, ObservedView, Placed, Refused, Report
from tests.conformance.drivers.services_driver import ServicesDriver, required
from tests.conformance.world import World

v1: Any = scheduler_v1_pb2
v1alpha: Any = reservations_v1alpha_pb2

# What a hint can say over our own service alone.
_ALPHA_MEMBERS = frozenset({"locality", "require", "resources", "spread"})

_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: "invalid_argument",
    grpc.StatusCode.NOT_FOUND: "not_found",
    grpc.StatusCode.FAILED_PRECONDITION: "failed_precondition",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "no_nodes",
}


@contextmanager
def refusals(*, conflicts: bool = False) -> Iterator[None]:
    """Statuses in the cases' words. `conflicts`: this service's failed preconditions are conflicts."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        code = _CODES.get(error.code())
        if code is None:
            raise
        if error.details() == "no nodes available":
            code = "no_nodes"
        if conflicts and code == "failed_precondition":
            code = "conflict"
        raise Refused(code) from error


class GrpcDriver(ServicesDriver):
    """What `scheduler.v1` cannot say (discovery, pending totals, templates) is inherited."""

    name = "grpc"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._server: GrpcServer | None = None
        self._channel: grpc.aio.Channel | None = None

    async def start(self) -> None:
        self._server = create_server(self.services, GrpcOptions(address="127.0.0.1:0"))
        await self._server.start()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._server.port}")
        self.scheduler: Any = scheduler_v1_pb2_grpc.SchedulerStub(self._channel)  # type: ignore[no-untyped-call]
        self.reservations: Any = reservations_v1alpha_pb2_grpc.ReservationsStub(self._channel)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        if self._server is not None:
            await self._server.stop(None)

    async def heartbeat(self, report: Report) -> str:
        if report.sandbox_ids is None or report.labels is not None or report.resources is not None:
            # Over gRPC a roster is always told, labels and resources never are, so such a report comes from elsewhere.
            return await super().heartbeat(report)
        request = v1.HeartbeatRequest(
            node_id=report.node_id,
            cluster_id=report.cluster_id,
            service_instance_id=report.service_instance_id,
            machine_info=None if report.machine_info is None else v1.MachineInfo(cpu_config_json=report.machine_info),
            snapshot=None if report.snapshot is None else _snapshot(dict(report.snapshot)),
            sandbox_ids=report.sandbox_ids,
            p2p_endpoint=None if report.p2p is None else v1.P2pEndpoint(**report.p2p),
        )
        with refusals():
            return str((await self.scheduler.Heartbeat(request)).cpu_config_json)

    async def schedule(self, ask: Ask) -> Placed:
        with refusals():
            if ask.lifecycle == "heartbeat" and not ask.exclude and not _ALPHA_MEMBERS & set(ask.hint or ()):
                answer = await self.scheduler.Schedule(v1.ScheduleRequest(hint=_hint(ask.hint)))
                return Placed(answer.node.node_id, answer.node.endpoint)
            request = v1alpha.ReserveRequest(
                hint=_alpha_hint(ask.hint),
                lifecycle=v1alpha.Lifecycle.Value(f"LIFECYCLE_{ask.lifecycle.upper()}"),
                exclude_nodes=ask.exclude,
            )
            placed = await self.reservations.Reserve(request)
        reservation_id = placed.reservation.reservation_id or None
        return Placed(placed.node.node_id, placed.node.endpoint, reservation_id, placed.degraded)

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        request = v1alpha.ConfirmRequest(reservation_id=reservation_id, sandbox_id=sandbox_id)
        with refusals(conflicts=True):
            await self.reservations.Confirm(request)

    async def cancel(self, reservation_id: str, cause: str = "caller") -> None:
        told = v1alpha.CancelCause.Value(f"CANCEL_CAUSE_{cause.upper()}")
        with refusals(conflicts=True):
            await self.reservations.Cancel(v1alpha.CancelRequest(reservation_id=reservation_id, cause=told))

    async def events(self, node_id: str, instance: str, events: Sequence[SandboxEvent]) -> None:
        told = [
            v1.SandboxEvent(
                sandbox_id=event.sandbox_id,
                event_type=v1.SandboxEventType.Value(f"SANDBOX_EVENT_TYPE_{event.event_type.value.upper()}"),
                requested_cpu=event.requested_cpu,
                requested_memory_bytes=event.requested_memory_bytes,
            )
            for event in events
        ]
        request = v1.ReportSandboxEventRequest(node_id=node_id, service_instance_id=instance, events=told)
        with refusals():
            await self.scheduler.ReportSandboxEvent(request)

    async def record_assignment(self, sandbox_id: str, node: NodeAddress) -> None:
        told = v1.Node(node_id=node.node_id, endpoint=node.endpoint)
        with refusals():
            await self.scheduler.RecordAssignment(v1.RecordAssignmentRequest(sandbox_id=sandbox_id, node=told))

    async def lookup(self, sandbox_id: str) -> str:
        with refusals():
            return str((await self.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id=sandbox_id))).node.node_id)

    async def unregister(self, node_id: str, instance: str) -> None:
        request = v1.UnregisterNodeRequest(node_id=node_id, service_instance_id=instance)
        with refusals():
            await self.scheduler.UnregisterNode(request)

    async def get_node(self, node_id: str, cluster_id: str) -> ObservedView:
        with refusals():
            node = (await self.scheduler.GetNode(v1.GetNodeRequest(node_id=node_id, cluster_id=cluster_id))).node
        status = v1.NodeStatus.Name(node.snapshot.status).removeprefix("NODE_STATUS_").lower()
        return ObservedView(node.node_id, status, node.endpoint, node.snapshot.sandbox_count)

    async def list_nodes(self) -> list[str]:
        with refusals():
            return [node.node_id for node in (await self.scheduler.ListNodes(v1.ListNodesRequest())).nodes]

    async def list_observed(self, cluster_id: str) -> list[str]:
        with refusals():
            answer = await self.scheduler.ListObservedNodes(v1.ListObservedNodesRequest(cluster_id=cluster_id))
        return [node.node_id for node in answer.nodes]

    async def list_peers(self, cluster_id: str, backend: str, exclude: str) -> list[str]:
        request = v1.ListP2pPeersRequest(cluster_id=cluster_id, backend=backend, exclude_node_id=exclude)
        with refusals():
            return [peer.node_id for peer in (await self.scheduler.ListP2pPeers(request)).peers]

    async def record_artifact(self, key: ArtifactKey, node_id: str) -> None:
        with refusals():
            await self.scheduler.RecordP2pArtifact(v1.RecordP2pArtifactRequest(node_id=node_id, **_fields(key)))

    async def forget_artifact(self, key: ArtifactKey, node_id: str) -> None:
        with refusals():
            await self.scheduler.ForgetP2pArtifact(v1.ForgetP2pArtifactRequest(node_id=node_id, **_fields(key)))

    async def lookup_artifact(self, key: ArtifactKey, exclude: str) -> list[str]:
        request = v1.LookupP2pArtifactRequest(exclude_node_id=exclude, **_fields(key))
        with refusals():
            return [peer.node_id for peer in (await self.scheduler.LookupP2pArtifact(request)).peers]


def _fields(key: ArtifactKey) -> dict[str, str]:
    return {"cluster_id": key.cluster_id, "backend": key.backend, "key": key.key}


def _snapshot(values: dict[str, Any]) -> Any:
    status = v1.NodeStatus.Value(f"NODE_STATUS_{values.pop('status', 'ready').upper()}")
    return v1.NodeSnapshot(status=status, **values)


def _hint(hint: Any) -> Any:
    if hint is None:
        return None
    if hint["kind"] == "cold":
        cold = v1.NewColdSandboxHint(
            cpu_count=hint.get("cpu", 0),
            memory_mb=hint.get("memory_mb", 0),
            images=hint.get("images", ()),
            metadata=hint.get("metadata", {}),
        )
        return v1.ScheduleRequestHint(new_cold_sandbox=cold)
    sandbox = v1.NewSandboxHint(template_id=hint.get("template_id", ""), metadata=hint.get("metadata", {}))
    return v1.ScheduleRequestHint(new_sandbox=sandbox)


def _alpha_hint(hint: Any) -> Any:
    if hint is None:
        return None
    return v1alpha.Hint(
        kind=v1alpha.Hint.KIND_COLD_SANDBOX if hint["kind"] == "cold" else v1alpha.Hint.KIND_SANDBOX,
        cpu_count=hint.get("cpu", 0),
        memory_mb=hint.get("memory_mb", 0),
        images=hint.get("images", ()),
        template_id=hint.get("template_id", ""),
        metadata=hint.get("metadata", {}),
        locality=hint.get("locality", ()),
        require={label: v1alpha.LabelValues(values=values) for label, values in required(hint).items()},
        resources=hint.get("resources", {}),
        spread=v1alpha.Spread(**hint["spread"]) if "spread" in hint else None,
    )
