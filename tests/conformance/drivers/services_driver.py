"""The scheduler as its own edges see it: calls into the service layer, in process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from scheduler import errors
from scheduler.domain.node import (
    DiskMetric,
    Heartbeat,
    MachineInfo,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
    PendingTotals,
)
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Spread
from scheduler.domain.reservation import CancelCause, Lifecycle
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent, Template
from tests.conformance.driver import Ask, ObservedView, Placed, Refused, Report
from tests.conformance.world import World

KIND_WORDS = {HintKind.COLD_SANDBOX: "cold", HintKind.SANDBOX: "template"}
HINT_KINDS = {word: kind for kind, word in KIND_WORDS.items()}

# First match wins. A node outside discovery is "not in the list" to the cases, an invalid argument.
_REFUSALS: tuple[tuple[type[errors.SchedulerError], str], ...] = (
    (errors.NoNodes, "no_nodes"),
    (errors.NodeNotListed, "invalid_argument"),
    (errors.NotFound, "not_found"),
    (errors.InvalidRequest, "invalid_argument"),
    (errors.InstanceMismatch, "failed_precondition"),
    (errors.Conflict, "conflict"),
    (errors.StoreUnavailable, "unavailable"),
)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the scheduler's errors into the cases' codes."""
    try:
        yield
    except errors.SchedulerError as error:
        for kind, code in _REFUSALS:
            if isinstance(error, kind):
                raise Refused(code) from error
        raise


def to_hint(hint: dict[str, Any]) -> Hint:
    return Hint(
        kind=HINT_KINDS[hint["kind"]],
        cpu_count=hint.get("cpu", 0),
        memory_mb=hint.get("memory_mb", 0),
        images=tuple(hint.get("images", ())),
        template_id=hint.get("template_id", ""),
        metadata=hint.get("metadata", {}),
        locality=tuple(hint.get("locality", ())),
        require=required(hint),
        resources=hint.get("resources", {}),
        spread=Spread(**hint["spread"]) if "spread" in hint else None,
    )


def required(hint: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """A case may write one value without a list."""
    values = hint.get("require", {})
    return {label: (each,) if isinstance(each, str) else tuple(each) for label, each in values.items()}


def from_hint(hint: Hint | None) -> dict[str, Any] | None:
    if hint is None:
        return None
    return {
        "kind": KIND_WORDS[hint.kind],
        "cpu": hint.cpu_count,
        "memory_mb": hint.memory_mb,
        "images": list(hint.images),
        "template_id": hint.template_id,
        "metadata": dict(hint.metadata),
    }


def to_snapshot(snapshot: dict[str, Any]) -> NodeSnapshot:
    """Missing numbers are 0, a missing status is ready, `unspecified` is what absent means."""
    values = dict(snapshot)
    status = values.pop("status", "ready")
    values["disks"] = tuple(DiskMetric(**disk) for disk in values.get("disks", ()))
    return NodeSnapshot(status=NodeStatus.CONNECTING if status == "unspecified" else NodeStatus(status), **values)


class ServicesDriver:
    name = "services"

    def __init__(self, world: World) -> None:
        self.world = world
        self.services = world.services

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def set_nodes(self, active: Sequence[NodeAddress], lingering: Sequence[NodeAddress]) -> None:
        with refusals():
            await self.services.nodes.replace(tuple(active), tuple(lingering))

    async def heartbeat(self, report: Report) -> str:
        heartbeat = Heartbeat(
            node_id=report.node_id,
            service_instance_id=report.service_instance_id,
            cluster_id=report.cluster_id,
            machine_info=None if report.machine_info is None else MachineInfo(cpu_config_json=report.machine_info),
            snapshot=None if report.snapshot is None else to_snapshot(dict(report.snapshot)),
            sandbox_ids=None if report.sandbox_ids is None else tuple(report.sandbox_ids),
            p2p_endpoint=None if report.p2p is None else P2pEndpoint(report.p2p["backend"], report.p2p["address"]),
            labels=report.labels or {},
            resources={name: ResourceLoad(**load) for name, load in (report.resources or {}).items()},
        )
        with refusals():
            return (await self.services.nodes.heartbeat(heartbeat, None)).cpu_config_json

    async def schedule(self, ask: Ask) -> Placed:
        request = ScheduleRequest(
            hint=None if ask.hint is None else to_hint(dict(ask.hint)),
            lifecycle=Lifecycle(ask.lifecycle),
            exclude_nodes=tuple(ask.exclude),
        )
        with refusals():
            decision = await self.services.placement.schedule(request)
        reservation = decision.reservation
        return Placed(
            decision.node.node_id,
            decision.node.endpoint,
            reservation.reservation_id if reservation else None,
            decision.degraded,
        )

    async def pending(self, node_id: str) -> PendingTotals:
        with refusals():
            return (await self.services.nodes.get(node_id)).pending

    async def open_groups(self) -> int:
        total, _, _ = await self.services.groups.list(1, None)
        return total

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        with refusals():
            await self.services.reservations.confirm(reservation_id, sandbox_id)

    async def cancel(self, reservation_id: str, cause: str = "caller") -> None:
        with refusals():
            await self.services.reservations.cancel(reservation_id, cause=CancelCause(cause))

    async def put_template(self, template_id: str, cpu_count: int, memory_mb: int) -> None:
        with refusals():
            await self.services.templates.put(Template(template_id, cpu_count, memory_mb))

    async def events(self, node_id: str, instance: str, events: Sequence[SandboxEvent]) -> None:
        with refusals():
            await self.services.nodes.record_events(node_id, instance, tuple(events))

    async def record_assignment(self, sandbox_id: str, node: NodeAddress) -> None:
        with refusals():
            await self.services.bindings.record(sandbox_id, node)

    async def lookup(self, sandbox_id: str) -> str:
        with refusals():
            return (await self.services.bindings.lookup(sandbox_id)).node.node_id

    async def unregister(self, node_id: str, instance: str) -> None:
        with refusals():
            await self.services.nodes.unregister(node_id, instance)

    async def cordon(self, node_id: str, instance: str, cordoned: bool) -> None:
        with refusals():
            await self.services.nodes.cordon(node_id, instance, cordoned=cordoned)

    async def get_node(self, node_id: str, cluster_id: str) -> ObservedView:
        with refusals():
            node = await self.services.nodes.get(node_id)
        if node.last_seen_ms is None or cluster_id not in {"", node.cluster_id}:
            raise Refused("not_found")
        return ObservedView(node.node_id, node.status.value, node.endpoint, node.snapshot.sandbox_count)

    async def list_nodes(self) -> list[str]:
        return [address.node_id for address in await self.services.nodes.addresses()]

    async def list_observed(self, cluster_id: str) -> list[str]:
        nodes = await self.services.nodes.list(cluster_id)
        return [node.node_id for node in nodes if node.last_seen_ms is not None]

    async def list_peers(self, cluster_id: str, backend: str, exclude: str) -> list[str]:
        return [node_id for node_id, _ in await self.services.artifacts.peers(cluster_id, backend, exclude)]

    async def record_artifact(self, key: ArtifactKey, node_id: str) -> None:
        with refusals():
            await self.services.artifacts.record(key, node_id)

    async def forget_artifact(self, key: ArtifactKey, node_id: str) -> None:
        with refusals():
            await self.services.artifacts.forget(key, node_id)

    async def lookup_artifact(self, key: ArtifactKey, exclude: str) -> list[str]:
        with refusals():
            return [node_id for node_id, _ in await self.services.artifacts.lookup(key, exclude)]

    async def gateway_hint(self, method: str, path: str, body: bytes) -> dict[str, Any] | None:
        reading = self.services.hints.read(method, path, body.decode(), strict=True)
        return from_hint(reading.hint)

    async def intersect_cpu_configs(self, texts: Sequence[str]) -> str:
        from scheduler.service.cpu_config import intersect

        return intersect(texts)
