"""What nodes report: heartbeats and sandbox events."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from scheduler.access.roles import FOR_NODES
from scheduler.api.http.answers import Answer
from scheduler.api.http.fields import (
    Body,
    ByteCount,
    Endpoint,
    Id,
    Labels,
    OptionalId,
    Text,
    Uint32,
    named_by_labels,
    with_figures,
)
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.domain.limits import DISKS_TOLD_MAX, EVENTS_MAX, ROSTER_MAX
from scheduler.domain.node import (
    DiskMetric,
    Heartbeat,
    MachineInfo,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
)
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.service.reports import REPORTED_RESOURCES_MAX

router = noun_router("nodes")


class HeartbeatAnswer(Answer):
    generation: int
    cpu_config_json: str
    stale: bool


class EventsAnswer(Answer):
    counted: int = Field(description="events that were new")


class DiskBody(Body):
    mount_point: str = ""
    device: str = ""
    filesystem_type: str = ""
    used_bytes: ByteCount = 0
    total_bytes: ByteCount = 0


@with_figures
class SnapshotBody(Body):
    """`allocated_*` covers sandboxes that are not paused, `paused_*` only paused ones."""

    status: Literal["ready", "connecting", "unhealthy", "lingering", "unspecified"] = "unspecified"
    disks: list[DiskBody] = Field(default_factory=list, max_length=DISKS_TOLD_MAX)

    def as_snapshot(self) -> NodeSnapshot:
        figures = dict(self.__dict__)
        figures["status"] = NodeStatus.CONNECTING if self.status == "unspecified" else NodeStatus(self.status)
        figures["disks"] = tuple(DiskMetric(**disk.__dict__) for disk in self.disks)
        return NodeSnapshot(**figures)


class MachineInfoBody(Body):
    cpu_family: Text = ""
    cpu_model: Text = ""
    cpu_model_name: Text = ""
    cpu_architecture: Text = ""
    cpu_config_json: str = ""


class P2pEndpointBody(Body):
    """Blank backend or address: the node is not a peer."""

    backend: OptionalId = ""
    address: str = ""


class ResourceBody(Body):
    total: ByteCount
    allocated: ByteCount = 0


class HeartbeatBody(Body):
    """`sandbox_ids` is the complete roster; absent means unknown, an empty list means none.
    `acknowledged_generation`: of the last answer that the node had when it sampled this."""

    service_instance_id: Id
    cluster_id: OptionalId = ""
    version: Text = ""
    commit: Text = ""
    endpoint: Endpoint | None = None
    machine_info: MachineInfoBody | None = None
    sequence: ByteCount | None = None
    acknowledged_generation: ByteCount | None = None
    snapshot: SnapshotBody | None = None
    sandbox_ids: list[str] | None = Field(default=None, max_length=ROSTER_MAX)
    p2p_endpoint: P2pEndpointBody | None = None
    labels: Labels = Field(default_factory=dict)
    resources: Annotated[dict[str, ResourceBody], named_by_labels(REPORTED_RESOURCES_MAX)] = Field(default_factory=dict)

    def as_heartbeat(self, node_id: str) -> Heartbeat:
        return Heartbeat(
            node_id=node_id,
            service_instance_id=self.service_instance_id,
            cluster_id=self.cluster_id,
            version=self.version,
            commit=self.commit,
            endpoint=self.endpoint,
            machine_info=None if self.machine_info is None else MachineInfo(**self.machine_info.__dict__),
            sequence=self.sequence,
            acknowledged_generation=self.acknowledged_generation,
            snapshot=None if self.snapshot is None else self.snapshot.as_snapshot(),
            sandbox_ids=None if self.sandbox_ids is None else tuple(self.sandbox_ids),
            p2p_endpoint=None if self.p2p_endpoint is None else P2pEndpoint(**self.p2p_endpoint.__dict__),
            labels=self.labels,
            resources={name: ResourceLoad(each.total, each.allocated) for name, each in self.resources.items()},
        )


class SandboxEventBody(Body):
    sandbox_id: str
    event_type: Literal["create", "delete", "pause", "resume", "fork"]
    requested_cpu: Uint32 = 0
    requested_memory_bytes: ByteCount = 0


class EventsBody(Body):
    service_instance_id: Id
    events: list[SandboxEventBody] = Field(max_length=EVENTS_MAX)


@router.post("/v1/nodes/{node_id}/heartbeat", response_model=HeartbeatAnswer, summary="A node reports itself")
@reach(FOR_NODES)
async def record_heartbeat(call: Call, node_id: Id, body: HeartbeatBody) -> Any:
    call.act_for(node_id)
    # A node that times out samples again, and the abandoned report may still arrive much later, among others.
    report = replace(body.as_heartbeat(node_id), hung_up=await call.is_disconnected())
    result = await call.services.nodes.heartbeat(report)
    return {"generation": result.generation, "cpu_config_json": result.cpu_config_json, "stale": result.stale}


@router.post("/v1/nodes/{node_id}/events", response_model=EventsAnswer, summary="What happened to sandboxes on a node")
@reach(FOR_NODES)
async def record_events(call: Call, node_id: Id, body: EventsBody) -> Any:
    call.act_for(node_id)
    events = tuple(
        SandboxEvent(
            sandbox_id=event.sandbox_id,
            event_type=SandboxEventType(event.event_type),
            requested_cpu=event.requested_cpu,
            requested_memory_bytes=event.requested_memory_bytes,
        )
        for event in body.events
    )
    return {"counted": await call.services.nodes.record_events(node_id, body.service_instance_id, events)}
