"""Nodes: their discovery state, their reports, and their state in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from scheduler.domain.limits import SAFE_INTEGER_MAX, UINT32_MAX
from scheduler.domain.resources import ResourceLoad


class NodeStatus(StrEnum):
    """Derived with the server's clock; `scheduler.v1` has the same four names."""

    READY = "ready"
    CONNECTING = "connecting"
    UNHEALTHY = "unhealthy"
    LINGERING = "lingering"


class DiscoveryState(StrEnum):
    """What discovery says about a node: `active` takes creations, `lingering` drains."""

    ACTIVE = "active"
    LINGERING = "lingering"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """`endpoint` is the URL, with scheme and host, that a gateway proxies to. `labels` None: not stated."""

    node_id: str
    endpoint: str
    labels: Mapping[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class DiskMetric:
    """One file system of a node."""

    mount_point: str = ""
    device: str = ""
    filesystem_type: str = ""
    used_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """What is known of a number that nodes report: the most that it may be, and what the HTTP API says of it."""

    most: int
    meaning: str


def _figure(most: int, meaning: str) -> int:
    return field(default=0, metadata={"figure": Figure(most, meaning)})


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The figures of one report. `allocated_*` covers sandboxes that are not paused, `paused_*` only paused ones."""

    status: NodeStatus = NodeStatus.CONNECTING
    cpu_count: int = _figure(UINT32_MAX, "the CPUs that the node has")
    memory_total_bytes: int = _figure(SAFE_INTEGER_MAX, "the memory that the node has")
    allocated_cpu: int = _figure(UINT32_MAX, "CPUs of all sandboxes that are not paused")
    allocated_memory_bytes: int = _figure(SAFE_INTEGER_MAX, "memory of all sandboxes that are not paused")
    paused_allocated_cpu: int = _figure(UINT32_MAX, "CPUs of paused sandboxes alone")
    paused_allocated_memory_bytes: int = _figure(SAFE_INTEGER_MAX, "memory of paused sandboxes alone")
    cpu_percent: int = _figure(UINT32_MAX, "CPU in use, in percent")
    memory_used_bytes: int = _figure(SAFE_INTEGER_MAX, "memory in use")
    sandbox_count: int = _figure(UINT32_MAX, "sandboxes that are not paused")
    sandbox_starting_count: int = _figure(UINT32_MAX, "of these, those still starting")
    paused_sandbox_count: int = _figure(UINT32_MAX, "paused sandboxes")
    create_successes: int = _figure(SAFE_INTEGER_MAX, "creates that succeeded since the process began")
    create_fails: int = _figure(SAFE_INTEGER_MAX, "creates that failed since the process began")
    reported_at_unix_ms: int = _figure(SAFE_INTEGER_MAX, "when the node sampled these figures, on its clock")
    disks: tuple[DiskMetric, ...] = ()


FIGURES: Mapping[str, Figure] = {
    each.name: each.metadata["figure"] for each in fields(NodeSnapshot) if "figure" in each.metadata
}
"""The numbers of a snapshot by name, in the order that scripts take them (lua/include/figure_names)."""


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """What a node says of its CPU."""

    cpu_family: str = ""
    cpu_model: str = ""
    cpu_model_name: str = ""
    cpu_architecture: str = ""
    cpu_config_json: str = ""


@dataclass(frozen=True, slots=True)
class P2pEndpoint:
    """Where other nodes fetch artifacts from a node."""

    backend: str
    address: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One report. `sandbox_ids` None means an unknown roster; () means no sandboxes. A report without labels has none.

    `acknowledged_generation`: the generation of the last answer that the node had received. `hung_up`: the caller
    has disconnected, so the report may be old and proves no sandbox absent."""

    node_id: str
    service_instance_id: str
    cluster_id: str = ""
    version: str = ""
    commit: str = ""
    endpoint: str | None = None
    machine_info: MachineInfo | None = None
    sequence: int | None = None
    snapshot: NodeSnapshot | None = None
    sandbox_ids: tuple[str, ...] | None = None
    p2p_endpoint: P2pEndpoint | None = None
    acknowledged_generation: int | None = None
    hung_up: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, ResourceLoad] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """`cpu_config_json` is empty when nothing changes for the node. `template_due`: the ledger may have a template
    to send, although the report carried none. `contested`: listed ids that another node keeps. `unlabelled`: the node
    stays without labels, because there are too many label sets."""

    generation: int
    cpu_config_json: str = ""
    stale: bool = False
    template_due: bool = True
    contested: tuple[str, ...] = ()
    unlabelled: bool = False


@dataclass(frozen=True, slots=True)
class PendingTotals:
    """What reservations hold on a node beyond its own report."""

    cpu_count: int = 0
    memory_bytes: int = 0
    sandbox_count: int = 0


@dataclass(frozen=True, slots=True)
class Pressure:
    """Projected load divided by effective capacity; None for a dimension of unknown capacity."""

    cpu: float | None = None
    memory: float | None = None

    @property
    def highest(self) -> float | None:
        known = [value for value in (self.cpu, self.memory) if value is not None]
        return max(known) if known else None


@dataclass(frozen=True, slots=True)
class Node:
    """A discovered node in the ledger. `last_seen_ms` None: it never reported. `cordoned_instance`: the
    process that is cordoned, "" for none.
    `labels` are those in force, `api_labels` those that were told through the API."""

    node_id: str
    endpoint: str
    discovery: DiscoveryState
    status: NodeStatus
    last_seen_ms: int | None = None
    generation: int = 0
    cluster_id: str = ""
    service_instance_id: str = ""
    version: str = ""
    commit: str = ""
    snapshot: NodeSnapshot = field(default_factory=NodeSnapshot)
    machine_info: MachineInfo | None = None
    p2p_endpoint: P2pEndpoint | None = None
    pending: PendingTotals = field(default_factory=PendingTotals)
    pressure: Pressure = field(default_factory=Pressure)
    cordoned_instance: str = ""
    eligible: bool = False
    ineligible_reason: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    api_labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, ResourceLoad] = field(default_factory=dict)

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(self.node_id, self.endpoint)

    @property
    def cordoned(self) -> bool:
        return bool(self.cordoned_instance)


class NodeDetail(StrEnum):
    """How much is read of each node on a page: all, all but what it says of its machine, which is most of what is kept,
    or only how it stands: state, pressure and what is reserved."""

    WHOLE = "whole"
    FIGURES = "figures"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """Which nodes a page shows, and in which order: by id, or by one of `scheduler.ledger.node_pages.SORTS`, reversed
    by `-` before it."""

    cluster_id: str = ""
    status: NodeStatus | None = None
    sort: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    detail: NodeDetail = NodeDetail.WHOLE
