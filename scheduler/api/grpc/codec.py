"""Converts between `scheduler.v1` messages and the domain.

A node's report is never refused for an odd figure: figures are clamped, because refusing the report would lose the
node's sandboxes. Everything else is validated by the services, as for HTTP. A gateway's request is passed on as it
is.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.domain.limits import SAFE_INTEGER_MAX
from scheduler.domain.node import (
    FIGURES,
    DiskMetric,
    Heartbeat,
    MachineInfo,
    Node,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
)
from scheduler.domain.placement import Hint, HintKind
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.service.reports import held_to_bounds

# AgentENV's message may lack a figure that HTTP has.
_FIGURES = tuple(name for name in FIGURES if name in v1.NodeSnapshot.DESCRIPTOR.fields_by_name)

STATUS_OF = {
    v1.NODE_STATUS_READY: NodeStatus.READY,
    v1.NODE_STATUS_CONNECTING: NodeStatus.CONNECTING,
    v1.NODE_STATUS_UNHEALTHY: NodeStatus.UNHEALTHY,
    v1.NODE_STATUS_LINGERING: NodeStatus.LINGERING,
}
WIRE_STATUS_OF = {status: number for number, status in STATUS_OF.items()}

EVENT_TYPE_OF = {
    v1.SANDBOX_EVENT_TYPE_CREATE: SandboxEventType.CREATE,
    v1.SANDBOX_EVENT_TYPE_DELETE: SandboxEventType.DELETE,
    v1.SANDBOX_EVENT_TYPE_PAUSE: SandboxEventType.PAUSE,
    v1.SANDBOX_EVENT_TYPE_RESUME: SandboxEventType.RESUME,
    v1.SANDBOX_EVENT_TYPE_FORK: SandboxEventType.FORK,
}


# ── from the wire ────────────────────────────────────────────────────────────


def hint_from(request: v1.ScheduleRequest) -> Hint | None:
    """None when no hint kind is set: ordinary routing. An empty kind still is a creation."""
    kind = request.hint.WhichOneof("kind")
    if kind == "new_cold_sandbox":
        cold = request.hint.new_cold_sandbox
        return Hint(
            HintKind.COLD_SANDBOX,
            cpu_count=cold.cpu_count,
            memory_mb=cold.memory_mb,
            images=tuple(cold.images),
            metadata=dict(cold.metadata),
        )
    if kind == "new_sandbox":
        sandbox = request.hint.new_sandbox
        return Hint(HintKind.SANDBOX, template_id=sandbox.template_id, metadata=dict(sandbox.metadata))
    return None


def heartbeat_from(request: v1.HeartbeatRequest) -> Heartbeat:
    """Over gRPC a roster is always known: no ids means no sandboxes. The service cleans all of it."""
    return Heartbeat(
        node_id=request.node_id,
        service_instance_id=request.service_instance_id,
        cluster_id=request.cluster_id,
        version=request.version,
        commit=request.commit,
        machine_info=_machine_info_from(request.machine_info) if request.HasField("machine_info") else None,
        snapshot=_snapshot_from(request.snapshot) if request.HasField("snapshot") else None,
        sandbox_ids=tuple(request.sandbox_ids),
        p2p_endpoint=P2pEndpoint(request.p2p_endpoint.backend, request.p2p_endpoint.address),
    )


def events_from(events: Iterable[v1.SandboxEvent]) -> list[SandboxEvent]:
    """Events of an unknown type are dropped."""
    return [
        SandboxEvent(
            sandbox_id=event.sandbox_id,
            event_type=EVENT_TYPE_OF[event.event_type],
            requested_cpu=event.requested_cpu,
            requested_memory_bytes=min(event.requested_memory_bytes, SAFE_INTEGER_MAX),
        )
        for event in events
        if event.event_type in EVENT_TYPE_OF
    ]


def _machine_info_from(info: v1.MachineInfo) -> MachineInfo:
    return MachineInfo(
        cpu_family=info.cpu_family,
        cpu_model=info.cpu_model,
        cpu_model_name=info.cpu_model_name,
        cpu_architecture=info.cpu_architecture,
        cpu_config_json=info.cpu_config_json,
    )


def _snapshot_from(snapshot: v1.NodeSnapshot) -> NodeSnapshot:
    figures = {name: getattr(snapshot, name) for name in _FIGURES}
    return held_to_bounds(
        NodeSnapshot(
            status=STATUS_OF.get(snapshot.status, NodeStatus.CONNECTING),
            disks=tuple(_disk_from(disk) for disk in snapshot.disks),
            **figures,
        )
    )


def _disk_from(disk: v1.DiskMetric) -> DiskMetric:
    return DiskMetric(disk.mount_point, disk.device, disk.filesystem_type, disk.used_bytes, disk.total_bytes)


# ── to the wire ──────────────────────────────────────────────────────────────


def node_to(address: NodeAddress) -> v1.Node:
    return v1.Node(node_id=address.node_id, endpoint=address.endpoint)


def peers_to(peers: Iterable[tuple[str, P2pEndpoint]]) -> list[v1.P2pPeer]:
    return [
        v1.P2pPeer(node_id=node_id, endpoint=v1.P2pEndpoint(backend=endpoint.backend, address=endpoint.address))
        for node_id, endpoint in peers
    ]


def observed_node_to(node: Node) -> v1.ObservedNode:
    """The node with its derived status instead of the reported one."""
    return v1.ObservedNode(
        node_id=node.node_id,
        endpoint=node.endpoint,
        cluster_id=node.cluster_id,
        service_instance_id=node.service_instance_id,
        version=node.version,
        commit=node.commit,
        machine_info=None if node.machine_info is None else _machine_info_to(node.machine_info),
        snapshot=_snapshot_to(node.snapshot, node.status),
        last_seen_unix_ms=node.last_seen_ms or 0,
    )


def _machine_info_to(info: MachineInfo) -> v1.MachineInfo:
    return v1.MachineInfo(
        cpu_family=info.cpu_family,
        cpu_model=info.cpu_model,
        cpu_model_name=info.cpu_model_name,
        cpu_architecture=info.cpu_architecture,
        cpu_config_json=info.cpu_config_json,
    )


def _snapshot_to(snapshot: NodeSnapshot, status: NodeStatus) -> v1.NodeSnapshot:
    # Held to its bounds, so that one odd row cannot fail a whole list.
    figures = {name: min(max(getattr(snapshot, name), 0), FIGURES[name].most) for name in _FIGURES}
    return v1.NodeSnapshot(
        status=WIRE_STATUS_OF[status],
        disks=[
            v1.DiskMetric(
                mount_point=disk.mount_point,
                device=disk.device,
                filesystem_type=disk.filesystem_type,
                used_bytes=disk.used_bytes,
                total_bytes=disk.total_bytes,
            )
            for disk in snapshot.disks
        ],
        **figures,
    )
