"""Nodes: what they report of themselves, and how the ledger shows them. Memory is in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentenv_scheduler_client.reading import ANSWERED, OpenEnum


class NodeStatus(OpenEnum):
    READY = "ready"
    CONNECTING = "connecting"
    UNHEALTHY = "unhealthy"
    LINGERING = "lingering"


class DiscoveryState(OpenEnum):
    """Place on it, or let it drain."""

    ACTIVE = "active"
    LINGERING = "lingering"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """`endpoint` is the URL at which the node creates sandboxes."""

    node_id: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Disk:
    mount_point: str = ""
    device: str = ""
    filesystem_type: str = ""
    used_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One report's figures. `allocated_*` is everything not paused, `paused_*` only the paused."""

    status: NodeStatus = NodeStatus.CONNECTING
    cpu_count: int = 0
    memory_total_bytes: int = 0
    allocated_cpu: int = 0
    allocated_memory_bytes: int = 0
    paused_allocated_cpu: int = 0
    paused_allocated_memory_bytes: int = 0
    cpu_percent: int = 0
    memory_used_bytes: int = 0
    sandbox_count: int = 0
    sandbox_starting_count: int = 0
    paused_sandbox_count: int = 0
    create_successes: int = 0
    create_fails: int = 0
    reported_at_unix_ms: int = 0
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineInfo:
    cpu_family: str = ""
    cpu_model: str = ""
    cpu_model_name: str = ""
    cpu_architecture: str = ""
    cpu_config_json: str = ""


@dataclass(frozen=True, slots=True)
class P2pEndpoint:
    backend: str
    address: str


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """A further resource of a node, such as GPUs. As the ledger tells it, `total` may be -1 (not known), and `pending`
    is what reservations hold, which no report tells."""

    total: int
    allocated: int = 0
    pending: int = field(default=0, metadata=ANSWERED)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One report. `sandbox_ids` None says nothing about the roster, () says that there are none.

    `sequence` rises with every report of one instance. `acknowledged_generation` is that of the last answer the node
    had when it sampled. `labels` and `resources`: a server that does not know them refuses the report."""

    service_instance_id: str
    cluster_id: str = ""
    version: str = ""
    commit: str = ""
    endpoint: str | None = None
    machine_info: MachineInfo | None = None
    sequence: int | None = None
    acknowledged_generation: int | None = None
    snapshot: NodeSnapshot | None = None
    sandbox_ids: tuple[str, ...] | None = None
    p2p_endpoint: P2pEndpoint | None = None
    labels: Mapping[str, str] | None = None
    resources: Mapping[str, ResourceLoad] | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """`stale`: a later report was there before, and this one changed nothing. `cpu_config_json` is what the node should
    use from now on; empty when it need not change."""

    generation: int
    cpu_config_json: str = ""
    stale: bool = False


@dataclass(frozen=True, slots=True)
class PendingTotals:
    """What reservations hold on a node beyond its own report."""

    cpu_count: int = 0
    memory_bytes: int = 0
    sandbox_count: int = 0


@dataclass(frozen=True, slots=True)
class Pressure:
    """Projected load by effective capacity; None where the capacity is not known."""

    cpu: float | None = None
    memory: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A listed node as the ledger knows it. `last_seen_ms` None: it never reported. `ineligible_reason` is one of the
    names in `NoNodes.reasons`. `labels` are those in force, of all sources."""

    node_id: str
    endpoint: str
    status: NodeStatus
    eligible: bool
    ineligible_reason: str | None = None
    cordoned: bool = False
    discovery: DiscoveryState = DiscoveryState.ACTIVE
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
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, ResourceLoad] = field(default_factory=dict)

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(self.node_id, self.endpoint)


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node as discovery lists it."""

    node_id: str
    endpoint: str
    state: DiscoveryState


@dataclass(frozen=True, slots=True)
class ListedCounts:
    active: int
    lingering: int
