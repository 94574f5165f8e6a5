"""Sandboxes in the ledger: bindings, events, templates, groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.domain.node import NodeAddress


class SandboxEventType(StrEnum):
    CREATE = "create"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class SandboxEvent:
    """One event reported by a node. A fork event exists for each child, with the child's id and size."""

    sandbox_id: str
    event_type: SandboxEventType
    requested_cpu: int = 0
    requested_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """The node on which a sandbox runs; `recorded_at_ms` is on the server's clock."""

    sandbox_id: str
    node: NodeAddress
    recorded_at_ms: int


@dataclass(frozen=True, slots=True)
class Template:
    """The size of a sandbox created from the template. `source`: declared (API, configuration) or learned."""

    template_id: str
    cpu_count: int
    memory_mb: int
    source: str = "declared"


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """An open group: requests with this key go to `node_id` until a budget is used up.

    `sandbox_count`, `cpu_count` and `memory_mb` are what is placed in it; a budget of 0 means "not limited"."""

    key: str
    node_id: str
    sandbox_count: int
    cpu_count: int
    memory_mb: int
    max_sandbox_count: int
    max_cpu_count: int
    max_memory_mb: int
    opened_at_ms: int
    sequence: int


@dataclass(frozen=True, slots=True)
class WarmKey:
    """An image or template that a node was given, the last time as number `sequence` of the ledger's order."""

    key: str
    sequence: int


@dataclass(frozen=True, slots=True)
class WarmNode:
    """What a node was given last, the latest first."""

    node_id: str
    keys: tuple[WarmKey, ...]


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """What names an artifact: its cluster, how it is distributed, and its name there."""

    cluster_id: str
    backend: str
    key: str
