"""The same surface over HTTP: a simulated gateway and simulated nodes talking to a running replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle
from typing import Any

import httpx

from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    Node,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    PendingTotals,
    Pressure,
)
from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle, Reservation, ReservationState
from scheduler.domain.sandbox import SandboxEvent
from scheduler.errors import NoNodes, Overloaded, SchedulerError

# What a node itself says; other fields of a heartbeat are the scheduler's own observations.
REPORTED = {
    "node_id", "service_instance_id", "cluster_id", "version", "commit", "endpoint", "machine_info",
    "sequence", "snapshot", "sandbox_ids", "p2p_endpoint", "acknowledged_generation",
}  # fmt: skip


class OverHttp:
    """A client brings the base address, and the headers if the replica asks for a key. Of several replicas
    each is called in turn."""

    def __init__(self, *clients: httpx.AsyncClient) -> None:
        self._clients = cycle(clients)

    async def discover(self, active: Sequence[NodeAddress]) -> None:
        listed = [{"id": address.node_id, "endpoint": address.endpoint} for address in active]
        await self._call("PUT", "/v1/nodes", {"active": listed, "lingering": []})

    async def drain(self, address: NodeAddress) -> None:
        body = {"endpoint": address.endpoint, "state": DiscoveryState.LINGERING.value}
        await self._call("PUT", f"/v1/nodes/{address.node_id}", body)

    async def heartbeat(self, heartbeat: Heartbeat) -> None:
        said = {name: value for name, value in asdict(heartbeat).items() if name in REPORTED}
        body = {name: value for name, value in said.items() if value not in (None, "")}
        await self._call("POST", f"/v1/nodes/{body.pop('node_id')}/heartbeat", body)

    async def report_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> None:
        body = {"service_instance_id": service_instance_id, "events": [asdict(event) for event in events]}
        await self._call("POST", f"/v1/nodes/{node_id}/events", body)

    async def schedule(self, request: ScheduleRequest) -> Decision:
        body: dict[str, Any] = {"lifecycle": request.lifecycle.value, "exclude_nodes": list(request.exclude_nodes)}
        if request.hint is not None:
            body["hint"] = _hint(request.hint)
        if request.sandbox_id is not None:
            body["sandbox_id"] = request.sandbox_id
        answer = await self._call("POST", "/v1/schedule", body)
        return Decision(
            node=NodeAddress(**answer["node"]),
            strategy=Strategy(answer["strategy"]),
            replayed=answer["replayed"],
            degraded=answer["degraded"],
            reservation=_reservation(answer["reservation"]),
        )

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        await self._call("POST", f"/v1/reservations/{reservation_id}/confirm", {"sandbox_id": sandbox_id})

    async def cancel(self, reservation_id: str, reason: str, cause: CancelCause = CancelCause.CALLER) -> None:
        body = {"reason": reason, "cause": cause.value}
        await self._call("POST", f"/v1/reservations/{reservation_id}/cancel", body)

    async def nodes(self) -> tuple[Node, ...]:
        answer = await self._call("GET", "/v1/nodes", None)
        return tuple(_node(each) for each in answer["nodes"])

    async def upkeep(self) -> None:
        """A running replica sees to that itself."""

    async def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            response = await next(self._clients).request(method, path, json=body)
        except httpx.TransportError as failure:
            raise SchedulerError(f"no answer: {failure!r}", code="unanswered") from failure
        if response.is_success:
            return response.json()
        raise _refusal(response)


def _refusal(response: httpx.Response) -> SchedulerError:
    """The error behind a problem document, as far as the lab tells them apart."""
    try:
        problem = response.json()
    except ValueError:
        return SchedulerError(f"HTTP {response.status_code} without a problem document")
    if problem.get("code") == NoNodes.code:
        return NoNodes(problem.get("candidates", 0), problem.get("reasons", {}))
    if problem.get("code") == Overloaded.code:
        return Overloaded(problem["detail"])
    return SchedulerError(f"HTTP {response.status_code}: {problem.get('detail')}", code=problem.get("code"))


def _hint(hint: Hint) -> dict[str, Any]:
    if hint.kind is HintKind.SANDBOX:
        return {"kind": hint.kind.value, "template_id": hint.template_id}
    return {
        "kind": hint.kind.value,
        "cpu_count": hint.cpu_count,
        "memory_mb": hint.memory_mb,
        "images": list(hint.images),
    }


def _reservation(view: dict[str, Any] | None) -> Reservation | None:
    if view is None:
        return None
    return Reservation(
        reservation_id=view["reservation_id"],
        node_id=view["node_id"],
        state=ReservationState(view["state"]),
        lifecycle=Lifecycle(view["lifecycle"]),
        cpu_count=view["cpu_count"],
        memory_bytes=view["memory_bytes"],
        created_at_ms=view["created_at_ms"],
        expires_at_ms=view["expires_at_ms"],
        sandbox_id=view["sandbox_id"],
    )


def _node(view: dict[str, Any]) -> Node:
    snapshot = {name: view["snapshot"][name] for name in NodeSnapshot.__dataclass_fields__ if name in view["snapshot"]}
    snapshot |= {"status": NodeStatus(snapshot["status"]), "disks": ()}
    return Node(
        node_id=view["node_id"],
        endpoint=view["endpoint"],
        discovery=DiscoveryState(view["discovery"]),
        status=NodeStatus(view["status"]),
        last_seen_ms=view["last_seen_ms"],
        generation=view["generation"],
        snapshot=NodeSnapshot(**snapshot),
        pending=PendingTotals(**view["pending"]),
        pressure=Pressure(view["pressure"]["cpu"], view["pressure"]["memory"]),
        eligible=view["eligible"],
        ineligible_reason=view["ineligible_reason"],
    )
