"""What the runner asks of whatever speaks for the scheduler: one async method per step.

A driver translates a step into its own wire and the wire's answer back into these values. A
refusal is raised as `Refused` with one of the codes of `cases/README.md`; anything else that a
driver raises fails the case.

Not every wire has every step (gRPC has no discovery and shows no pending totals). Such steps
come from `ServicesDriver`, which other drivers inherit: they override what their wire can say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scheduler.domain.node import NodeAddress, PendingTotals
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent

REFUSAL_CODES = frozenset(
    {"no_nodes", "unavailable", "invalid_argument", "not_found", "failed_precondition", "conflict"}
)


class Refused(Exception):
    """The scheduler said no; `code` is the cases' word for it."""

    def __init__(self, code: str) -> None:
        assert code in REFUSAL_CODES, code
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Report:
    """A heartbeat step. `snapshot` None: the field is absent. `machine_info` None: absent too;
    else its `cpu_config_json`. `sandbox_ids` None: the report says nothing about the roster."""

    node_id: str
    service_instance_id: str
    cluster_id: str
    snapshot: Mapping[str, Any] | None
    sandbox_ids: Sequence[str] | None
    p2p: Mapping[str, str] | None
    machine_info: str | None
    labels: Mapping[str, str] | None = None
    resources: Mapping[str, Mapping[str, int]] | None = None


@dataclass(frozen=True)
class Ask:
    """A schedule step. `hint` is the cases' object: kind `cold` or `template`, or None."""

    hint: Mapping[str, Any] | None
    lifecycle: str = "heartbeat"
    exclude: Sequence[str] = ()


@dataclass(frozen=True)
class Placed:
    """`reservation_id` is None for ordinary routing, and on a wire that does not show it."""

    node_id: str
    endpoint: str
    reservation_id: str | None = None
    degraded: bool | None = None


@dataclass(frozen=True)
class ObservedView:
    node_id: str
    status: str
    endpoint: str
    sandbox_count: int


class Driver(Protocol):
    """One scheduler, spoken to in one way. `name` is the id of the test parameter."""

    name: str

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def set_nodes(self, active: Sequence[NodeAddress], lingering: Sequence[NodeAddress]) -> None: ...
    async def heartbeat(self, report: Report) -> str:
        """The answer's `cpu_config_json`."""

    async def schedule(self, ask: Ask) -> Placed: ...
    async def pending(self, node_id: str) -> PendingTotals: ...
    async def open_groups(self) -> int: ...
    async def confirm(self, reservation_id: str, sandbox_id: str) -> None: ...
    async def cancel(self, reservation_id: str, cause: str = "caller") -> None: ...
    async def put_template(self, template_id: str, cpu_count: int, memory_mb: int) -> None: ...
    async def events(self, node_id: str, instance: str, events: Sequence[SandboxEvent]) -> None: ...

    async def record_assignment(self, sandbox_id: str, node: NodeAddress) -> None: ...
    async def lookup(self, sandbox_id: str) -> str:
        """The node id."""

    async def unregister(self, node_id: str, instance: str) -> None: ...
    async def cordon(self, node_id: str, instance: str, cordoned: bool) -> None: ...
    async def get_node(self, node_id: str, cluster_id: str) -> ObservedView:
        """Refused(not_found) for a node that never reported, or in another cluster."""

    async def list_nodes(self) -> list[str]:
        """Every discovered node, in the wire's order."""

    async def list_observed(self, cluster_id: str) -> list[str]: ...
    async def list_peers(self, cluster_id: str, backend: str, exclude: str) -> list[str]: ...
    async def record_artifact(self, key: ArtifactKey, node_id: str) -> None: ...
    async def forget_artifact(self, key: ArtifactKey, node_id: str) -> None: ...
    async def lookup_artifact(self, key: ArtifactKey, exclude: str) -> list[str]: ...

    async def gateway_hint(self, method: str, path: str, body: bytes) -> dict[str, Any] | None:
        """Read as AgentENV's gateway reads it, in the cases' words (`kind` cold or template)."""

    async def intersect_cpu_configs(self, texts: Sequence[str]) -> str:
        """Raises ValueError when one text cannot be read."""
