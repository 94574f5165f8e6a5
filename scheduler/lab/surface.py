"""What a gateway and a node can ask of the scheduler; the only way the lab has into it.

Two bodies, one meaning: the services in this process (fast, with a virtual clock), or HTTP to a
running replica (real, with real time). Both raise the scheduler's own errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scheduler.domain.node import DiscoveryState, Heartbeat, Node, NodeAddress
from scheduler.domain.placement import Decision, ScheduleRequest
from scheduler.domain.reservation import CancelCause
from scheduler.domain.sandbox import SandboxEvent
from scheduler.errors import SchedulerError
from scheduler.service import Services


class Surface(Protocol):
    async def discover(self, active: Sequence[NodeAddress]) -> None:
        """Make these the whole list of nodes."""

    async def drain(self, address: NodeAddress) -> None:
        """Place nothing more on this node."""

    async def heartbeat(self, heartbeat: Heartbeat) -> int:
        """The generation that the answer gives it."""

    async def report_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> None: ...

    async def schedule(self, request: ScheduleRequest) -> Decision:
        """Raises `NoNodes` with its reasons when nothing fits."""

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None: ...

    async def cancel(self, reservation_id: str, reason: str, cause: CancelCause = CancelCause.CALLER) -> None: ...

    async def nodes(self) -> tuple[Node, ...]: ...

    async def maintain(self) -> None:
        """What a replica does in the background: work off what is due."""


class InProcess:
    """The services of this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def discover(self, active: Sequence[NodeAddress]) -> None:
        await self._services.nodes.replace(active, ())

    async def drain(self, address: NodeAddress) -> None:
        await self._services.nodes.set(address.node_id, address.endpoint, DiscoveryState.LINGERING)

    async def heartbeat(self, heartbeat: Heartbeat) -> int:
        return (await self._services.nodes.heartbeat(heartbeat, None)).generation

    async def report_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> None:
        await self._services.nodes.record_events(node_id, service_instance_id, events)

    async def schedule(self, request: ScheduleRequest) -> Decision:
        return await self._services.placement.schedule(request)

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        await self._services.reservations.confirm(reservation_id, sandbox_id)

    async def cancel(self, reservation_id: str, reason: str, cause: CancelCause = CancelCause.CALLER) -> None:
        await self._services.reservations.cancel(reservation_id, reason, cause)

    async def nodes(self) -> tuple[Node, ...]:
        return await self._services.nodes.list()

    async def maintain(self) -> None:
        while await self._services.reservations.sweep():
            pass


def code_of(failure: SchedulerError) -> str:
    """The stable code of a failed call, also when it came over HTTP and has no class of its own here."""
    return str(failure.facts.get("code") or failure.code)
