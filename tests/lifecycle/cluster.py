"""A small cluster told in whole sentences: nodes that report, a gateway that places, a clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.domain.node import DiscoveryState, Heartbeat, HeartbeatResult, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest
from scheduler.domain.reservation import CancelCause, Reservation, ReservationResult, ReservationState
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.errors import NotFound
from scheduler.ledger.ledger import Ledger
from scheduler.service import Services
from tests.support.clock import VirtualClock

MIB = 1024 * 1024
GIB = 1024 * MIB
NOTHING = (0, 0, 0)

TTL_MS = 600_000  # placement_reservation_ttl
GRACE_MS = 15_000  # binding_grace
REPORT_TTL_MS = 30_000
BINDING_TTL_MS = 180_000


def address(node_id: str) -> NodeAddress:
    return NodeAddress(node_id, f"http://{node_id}:8000")


def event(kind: str, sandbox_id: str, cpu_count: int = 0, memory_mb: int = 0) -> SandboxEvent:
    return SandboxEvent(sandbox_id, SandboxEventType(kind), cpu_count, memory_mb * MIB)


@dataclass
class Cluster:
    """Everything goes through the services, as it does from HTTP and gRPC. A node's figures are
    remembered, so that a report needs to name only what changed since the last one."""

    services: Services
    clock: VirtualClock
    ledger: Ledger | None = None
    figures: dict[str, NodeSnapshot] = field(default_factory=dict)

    # -- nodes --------------------------------------------------------------------------------------------------

    async def add(self, node_id: str = "a", cpu_count: int = 16, memory_mb: int = 32_768, **figures: Any) -> None:
        """A listed node that has reported once: empty, unless `figures` say otherwise."""
        await self.discover(node_id)
        await self.report(node_id, (), cpu_count=cpu_count, memory_total_bytes=memory_mb * MIB, **figures)

    async def discover(self, node_id: str = "a", state: DiscoveryState = DiscoveryState.ACTIVE) -> None:
        await self.services.nodes.set(node_id, address(node_id).endpoint, state)

    async def report(
        self,
        node_id: str = "a",
        roster: tuple[str, ...] | None = None,
        *,
        instance: str = "run-1",
        sequence: int | None = None,
        acknowledged: int | None = None,
        hung_up: bool = False,
        **figures: Any,
    ) -> HeartbeatResult:
        known = self.figures.get(node_id, NodeSnapshot(status=NodeStatus.READY))
        snapshot = self.figures[node_id] = replace(known, **figures)
        return await self.services.nodes.heartbeat(
            Heartbeat(
                node_id,
                instance,
                sequence=sequence,
                snapshot=snapshot,
                sandbox_ids=roster,
                acknowledged_generation=acknowledged,
                hung_up=hung_up,
            )
        )

    async def tell(self, node_id: str, *events: SandboxEvent, instance: str = "run-1") -> int:
        return await self.services.nodes.record_events(node_id, instance, events)

    async def pending(self, node_id: str = "a") -> tuple[int, int, int]:
        """What is reserved on the node beside its report: CPUs, MiB, sandboxes."""
        held = (await self.services.nodes.get(node_id)).pending
        return held.cpu_count, held.memory_bytes // MIB, held.sandbox_count

    # -- a gateway ----------------------------------------------------------------------------------------------

    async def schedule(self, cpu_count: int = 2, memory_mb: int = 4096, **request: Any) -> Decision:
        hint = request.pop("hint", Hint(HintKind.COLD_SANDBOX, cpu_count, memory_mb))
        return await self.services.placement.schedule(ScheduleRequest(hint=hint, **request))

    async def place(self, cpu_count: int = 2, memory_mb: int = 4096, **request: Any) -> Reservation:
        decision = await self.schedule(cpu_count, memory_mb, **request)
        assert decision.reservation is not None
        return decision.reservation

    async def place_template(self, template_id: str, **request: Any) -> Reservation:
        return await self.place(hint=Hint(HintKind.SANDBOX, template_id=template_id), **request)

    async def confirm(self, reservation: Reservation, sandbox_id: str = "s1") -> ReservationResult:
        return await self.services.reservations.confirm(reservation.reservation_id, sandbox_id)

    async def cancel(
        self, reservation: Reservation, reason: str = "no longer wanted", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        return await self.services.reservations.cancel(reservation.reservation_id, reason, cause)

    async def renew(self, reservation: Reservation, ttl_ms: int = TTL_MS) -> ReservationResult:
        return await self.services.reservations.renew(reservation.reservation_id, ttl_ms)

    async def now(self, reservation: Reservation) -> Reservation:
        return await self.services.reservations.get(reservation.reservation_id)

    async def state(self, reservation: Reservation) -> ReservationState:
        return (await self.now(reservation)).state

    async def ending(self, reservation: Reservation) -> tuple[str, str | None]:
        """State and reason."""
        found = await self.now(reservation)
        return found.state.value, found.reason

    async def record(self, sandbox_id: str, node_id: str = "a") -> None:
        await self.services.bindings.record(sandbox_id, address(node_id))

    async def node_of(self, sandbox_id: str) -> str | None:
        try:
            return (await self.services.bindings.lookup(sandbox_id)).node.node_id
        except NotFound:
            return None

    # -- time ---------------------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    async def stats(self) -> dict[str, int]:
        """The ledger's counters."""
        assert self.ledger is not None
        return await self.ledger.settings.stats()

    async def sweep(self) -> None:
        while await self.services.reservations.sweep():
            pass
