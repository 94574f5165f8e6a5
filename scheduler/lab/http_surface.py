"""The same surface over HTTP: a simulated gateway and nodes that talk to running replicas through the client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from itertools import cycle
from typing import Any

import httpx

import agentenv_scheduler_client as over
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

# What both sides call the same and write as numbers.
_SNAPSHOT_NUMBERS = tuple(each.name for each in fields(over.NodeSnapshot) if each.name not in {"status", "disks"})


def open_client(url: str, api_key: str | None = None, *, seconds: float = 10.0) -> over.AsyncSchedulerClient:
    """A client that asks once, as the lab counts answers, and knows nothing of this machine's proxies."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    transport = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)
    return over.AsyncSchedulerClient(url, transport=transport, api_key=api_key, timeout_seconds=seconds, attempts=1)


class OverHttp:
    """Calls several replicas in turn, each through a client of its own. `addresses`: where they answer."""

    def __init__(self, *clients: over.AsyncSchedulerClient, addresses: Sequence[str] = ()) -> None:
        self._clients = cycle(clients)
        self.addresses = tuple(addresses)

    async def discover(self, active: Sequence[NodeAddress]) -> None:
        with _own_errors():
            await self._next.nodes.replace([over.NodeAddress(node.node_id, node.endpoint) for node in active])

    async def drain(self, address: NodeAddress) -> None:
        node = over.NodeAddress(address.node_id, address.endpoint)
        with _own_errors():
            await self._next.nodes.put(node, over.DiscoveryState.LINGERING)

    async def heartbeat(self, heartbeat: Heartbeat) -> int:
        with _own_errors():
            return (await self._next.nodes.heartbeat(heartbeat.node_id, _report(heartbeat))).generation

    async def report_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> None:
        told = [over.SandboxEvent(**asdict(event)) for event in events]
        with _own_errors():
            await self._next.nodes.report_events(node_id, service_instance_id, told)

    async def schedule(self, request: ScheduleRequest) -> Decision:
        hint = None if request.hint is None else _hint(request.hint)
        with _own_errors():
            decision = await self._next.schedule(
                hint,
                lifecycle=over.Lifecycle(request.lifecycle.value),
                exclude_nodes=request.exclude_nodes,
                sandbox_id=request.sandbox_id,
            )
        return Decision(
            node=NodeAddress(decision.node.node_id, decision.node.endpoint),
            strategy=Strategy(decision.strategy.value),
            replayed=decision.replayed,
            degraded=decision.degraded,
            reservation=None if decision.reservation is None else _reservation(decision.reservation),
        )

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        with _own_errors():
            await self._next.reservations.confirm(reservation_id, sandbox_id)

    async def cancel(self, reservation_id: str, reason: str, cause: CancelCause = CancelCause.CALLER) -> None:
        with _own_errors():
            await self._next.reservations.cancel(reservation_id, reason, cause=over.CancelCause(cause.value))

    async def nodes(self) -> tuple[Node, ...]:
        with _own_errors():
            return tuple(_node(each) for each in await self._next.nodes.list())

    async def maintain(self) -> None:
        """A running replica sees to that itself."""

    @property
    def _next(self) -> over.AsyncSchedulerClient:
        return next(self._clients)


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raises the scheduler's own errors, as far as the lab tells them apart."""
    try:
        yield
    except over.NoNodes as refused:
        raise NoNodes(refused.candidates, refused.reasons) from refused
    except over.Overloaded as busy:
        raise Overloaded(busy.detail) from busy
    except over.SchedulerError as failure:
        if failure.status is None:
            raise SchedulerError(f"no answer: {failure.detail}", code="unanswered") from failure
        raise SchedulerError(f"HTTP {failure.status}: {failure.detail}", code=failure.code) from failure


def _report(heartbeat: Heartbeat) -> over.Heartbeat:
    snapshot, machine, peer = heartbeat.snapshot, heartbeat.machine_info, heartbeat.p2p_endpoint
    return over.Heartbeat(
        service_instance_id=heartbeat.service_instance_id,
        cluster_id=heartbeat.cluster_id,
        version=heartbeat.version,
        commit=heartbeat.commit,
        endpoint=heartbeat.endpoint,
        machine_info=None if machine is None else over.MachineInfo(**asdict(machine)),
        sequence=heartbeat.sequence,
        acknowledged_generation=heartbeat.acknowledged_generation,
        snapshot=None if snapshot is None else _told_snapshot(snapshot),
        sandbox_ids=heartbeat.sandbox_ids,
        p2p_endpoint=None if peer is None else over.P2pEndpoint(peer.backend, peer.address),
    )


def _told_snapshot(snapshot: NodeSnapshot) -> over.NodeSnapshot:
    told = {name: getattr(snapshot, name) for name in _SNAPSHOT_NUMBERS}
    disks = tuple(over.Disk(**asdict(disk)) for disk in snapshot.disks)
    return over.NodeSnapshot(status=over.NodeStatus(snapshot.status.value), disks=disks, **told)


def _hint(hint: Hint) -> over.Hint:
    if hint.kind is HintKind.SANDBOX:
        return over.TemplateSandbox(hint.template_id)
    return over.ColdSandbox(hint.cpu_count, hint.memory_mb, hint.images)


def _reservation(told: over.Reservation) -> Reservation:
    return Reservation(
        reservation_id=told.reservation_id,
        node_id=told.node_id,
        state=ReservationState(told.state.value),
        lifecycle=Lifecycle(told.lifecycle.value),
        cpu_count=told.cpu_count,
        memory_bytes=told.memory_bytes,
        created_at_ms=told.created_at_ms,
        expires_at_ms=told.expires_at_ms,
        sandbox_id=told.sandbox_id,
    )


def _node(told: over.Node) -> Node:
    snapshot: dict[str, Any] = {name: getattr(told.snapshot, name) for name in _SNAPSHOT_NUMBERS}
    return Node(
        node_id=told.node_id,
        endpoint=told.endpoint,
        discovery=DiscoveryState(told.discovery.value),
        status=NodeStatus(told.status.value),
        last_seen_ms=told.last_seen_ms,
        generation=told.generation,
        snapshot=NodeSnapshot(status=NodeStatus(told.snapshot.status.value), **snapshot),
        pending=PendingTotals(**asdict(told.pending)),
        pressure=Pressure(told.pressure.cpu, told.pressure.memory),
        eligible=told.eligible,
        ineligible_reason=told.ineligible_reason,
    )
