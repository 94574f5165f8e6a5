"""The node list: how discovery writes it and how people read it."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from scheduler.access.roles import FOR_ADMINS, FOR_GATEWAYS, FOR_NODES, Role
from scheduler.api.http.answers import Answer, P2pEndpointAnswer, PendingAnswer, PressureAnswer, Status
from scheduler.api.http.fields import (
    PAGE_MAX,
    Age,
    Body,
    Endpoint,
    Id,
    Labels,
    OptionalId,
    PageLimit,
    PlaceCursor,
    duration_ms,
    some_of,
    with_figures,
)
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import STATE_MEMBERS, node_view
from scheduler.domain.labels import LABEL_PATTERN
from scheduler.domain.node import DiscoveryState, NodeAddress, NodeDetail, NodeQuery, NodeStatus
from scheduler.errors import Forbidden, InvalidRequest

router = noun_router("nodes")


class DiskAnswer(Answer):
    mount_point: str
    device: str
    filesystem_type: str
    used_bytes: int
    total_bytes: int


@with_figures
class SnapshotAnswer(Answer):
    status: Status
    disks: list[DiskAnswer]


class MachineInfoAnswer(Answer):
    cpu_family: str
    cpu_model: str
    cpu_model_name: str
    cpu_architecture: str
    cpu_config_json: str


class ResourceAnswer(Answer):
    total: int = Field(description="what the node has; -1: not known")
    allocated: int = Field(description="what sandboxes use of it, as the node reports")
    pending: int = Field(description="what reservations hold")


class NodeAnswer(Answer):
    node_id: str
    endpoint: str
    cluster_id: str
    service_instance_id: str
    version: str
    commit: str
    labels: dict[str, str] = Field(description="those in force, of all sources")
    resources: dict[str, ResourceAnswer] = Field(
        description="disk and those that the settings list, as far as they are known"
    )
    discovery: Literal["active", "lingering"]
    status: Status
    last_seen_ms: int | None = Field(description="null: it never reported")
    generation: int
    snapshot: SnapshotAnswer
    machine_info: MachineInfoAnswer | None
    p2p_endpoint: P2pEndpointAnswer | None
    pending: PendingAnswer
    pressure: PressureAnswer
    cordoned: bool = Field(description="its present process is cordoned: it drains until it is uncordoned or replaced")
    eligible: bool
    ineligible_reason: str | None


class NodesAnswer(Answer):
    nodes: list[NodeAnswer | dict[str, Any]] = Field(
        description="whole ones, or `node_id` and the members that `fields` names"
    )
    cursor: str | None


class ListedNodeAnswer(Answer):
    node_id: str
    endpoint: str
    state: Literal["active", "lingering"]


class ListedNodesAnswer(Answer):
    active: int
    lingering: int


class CordonAnswer(Answer):
    node_id: str
    service_instance_id: str
    cordoned: bool = Field(description="whether nothing new is placed on it")


class NodeGoneAnswer(Answer):
    node_id: str
    removed: bool = Field(description="true: no longer listed; false: only its report and bindings are forgotten")


NodeSort = Literal[
    "", "node_id", "pressure", "pending", "sandbox_count", "cpu_count", "memory_bytes", "last_seen_ms",
    "-node_id", "-pressure", "-pending", "-sandbox_count", "-cpu_count", "-memory_bytes", "-last_seen_ms",
]  # fmt: skip
_LABELS = re.compile(rf"{LABEL_PATTERN}={LABEL_PATTERN}(,{LABEL_PATTERN}={LABEL_PATTERN}){{0,15}}")


def _labels(value: str) -> str:
    names = [pair.partition("=")[0] for pair in value.split(",")]
    if value and (not _LABELS.fullmatch(value) or len(set(names)) < len(names)):
        raise ValueError("name=value, several of them separated by commas, each name once")
    return value


NodeLabels = Annotated[str, AfterValidator(_labels), Field(json_schema_extra={"pattern": f"^({_LABELS.pattern})?$"})]
_NAMES = some_of(tuple(NodeAnswer.model_fields))
NodeFields = Annotated[str, _NAMES[0], _NAMES[1]]


class ListedNodeBody(Body):
    endpoint: Endpoint
    state: Literal["active", "lingering"] = "active"
    labels: Annotated[Labels | None, Field(description="absent: those told before stay")] = None


class InstanceBody(Body):
    service_instance_id: Id


class AddressBody(Body):
    id: Id
    endpoint: Endpoint
    labels: Annotated[Labels | None, Field(description="absent: those told before stay")] = None


class NodeListBody(Body):
    """The complete list; an id in both parts drains."""

    active: list[AddressBody] = Field(default_factory=list)
    lingering: list[AddressBody] = Field(default_factory=list)


@router.get("/v1/nodes", response_model=NodesAnswer, summary="A page of discovered nodes, in id order")
@reach(FOR_GATEWAYS)
async def list_nodes(
    call: Call,
    cluster_id: OptionalId = "",
    status: Status | None = None,
    label: NodeLabels = "",
    sort: NodeSort = "",
    fields: NodeFields | None = None,
    limit: PageLimit = PAGE_MAX,
    cursor: PlaceCursor = "",
    max_age: Age | None = None,
) -> Any:
    wanted_status = None if status is None else NodeStatus(status)
    members = frozenset(NodeAnswer.model_fields) if fields is None else {"node_id", *fields.split(",")}
    labels = dict(part.split("=") for part in label.split(",")) if label else {}
    query = NodeQuery(cluster_id, wanted_status, sort, labels, _detail(members, filtered=bool(cluster_id or labels)))

    async def read() -> dict[str, Any]:
        nodes, next_cursor = await call.services.nodes.page(query, limit, cursor)
        return {"nodes": [node_view(node, members) for node in nodes], "cursor": next_cursor}

    if max_age is None:
        return await read()
    asked = (cluster_id, wanted_status, label, sort, fields, limit, cursor)
    return await call.recent.answer(asked, duration_ms(max_age), read)


def _detail(members: Set[str], *, filtered: bool) -> NodeDetail:
    """The least to read for these members; a filter needs what it looks at as well."""
    if members <= STATE_MEMBERS and not filtered:
        return NodeDetail.STATE
    return NodeDetail.WHOLE if "machine_info" in members else NodeDetail.FIGURES


@router.put("/v1/nodes", response_model=ListedNodesAnswer, summary="Replace the whole discovered list in one step")
@reach(FOR_ADMINS)
async def set_nodes(call: Call, body: NodeListBody) -> Any:
    active = [NodeAddress(node.id, node.endpoint, node.labels) for node in body.active]
    lingering = [NodeAddress(node.id, node.endpoint, node.labels) for node in body.lingering]
    listed, draining = await call.services.nodes.replace(active, lingering)
    await call.services.audit.note(call.principal.name, "nodes.replace", "", active=listed, lingering=draining)
    return {"active": listed, "lingering": draining}


@router.get("/v1/nodes/{node_id}", response_model=NodeAnswer, summary="One node")
@reach(FOR_GATEWAYS)
async def read_node(call: Call, node_id: Id) -> Any:
    return node_view(await call.services.nodes.get(node_id))


@router.put("/v1/nodes/{node_id}", response_model=ListedNodeAnswer, summary="Add, move, label or drain a node")
@reach(FOR_ADMINS)
async def set_node(call: Call, node_id: Id, body: ListedNodeBody) -> Any:
    listed = await call.services.nodes.set(node_id, body.endpoint, DiscoveryState(body.state), body.labels)
    details = {"endpoint": listed.endpoint, "state": body.state}
    await call.services.audit.note(call.principal.name, "node.put", listed.node_id, **details)
    return {"node_id": listed.node_id, "endpoint": listed.endpoint, "state": body.state}


@router.delete("/v1/nodes/{node_id}", response_model=NodeGoneAnswer, summary="Unregister a node, or remove it")
@reach(FOR_NODES)
async def unregister_node(
    call: Call,
    node_id: Id,
    service_instance_id: Id | None = None,
    remove: Annotated[bool, Field(description="take it off the list instead of forgetting its report")] = False,
) -> Any:
    call.act_for(node_id)
    if remove:
        if call.principal.role is not Role.ADMIN:
            raise Forbidden("only a key of role admin removes a node from the list", role=call.principal.role)
        if service_instance_id is not None:
            raise InvalidRequest.field("service_instance_id", service_instance_id, "absent when remove is true")
        await call.services.nodes.remove(node_id)
        await call.services.audit.note(call.principal.name, "node.remove", node_id)
    elif service_instance_id is None:
        raise InvalidRequest.field(
            "service_instance_id", None, "present as a query parameter, unless remove=true is one"
        )
    else:
        await call.services.nodes.unregister(node_id, service_instance_id)
    return {"node_id": node_id, "removed": remove}


@router.post("/v1/nodes/{node_id}/cordon", response_model=CordonAnswer, summary="Place nothing new on this process")
@reach(FOR_ADMINS)
async def cordon_node(call: Call, node_id: Id, body: InstanceBody) -> Any:
    return await _cordon(call, node_id, body, cordoned=True)


@router.post("/v1/nodes/{node_id}/uncordon", response_model=CordonAnswer, summary="Place on this process again")
@reach(FOR_ADMINS)
async def uncordon_node(call: Call, node_id: Id, body: InstanceBody) -> Any:
    return await _cordon(call, node_id, body, cordoned=False)


async def _cordon(call: Call, node_id: str, body: InstanceBody, *, cordoned: bool) -> dict[str, Any]:
    instance = body.service_instance_id
    if await call.services.nodes.cordon(node_id, instance, cordoned=cordoned):
        act = "node.cordon" if cordoned else "node.uncordon"
        await call.services.audit.note(call.principal.name, act, node_id, service_instance_id=instance)
    return {"node_id": node_id, "service_instance_id": instance, "cordoned": cordoned}
