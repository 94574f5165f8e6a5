"""A ledger in plain dictionaries, for tests of the layers above the store.

It has the store's methods and answers and none of its subtleties: the first active node in id order is
chosen, and capacity is `cpu_count` of the last report. What the real ledger decides is tested on the real one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scheduler.domain.fleet import FleetTally
from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    HeartbeatResult,
    Node,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
)
from scheduler.domain.placement import Decision, Explanation, NodeExplanation, ScheduleRequest, Strategy
from scheduler.domain.replica import LiveReplica
from scheduler.domain.reservation import CancelCause, OpenReservations, Reservation, ReservationResult, ReservationState
from scheduler.domain.sandbox import ArtifactKey, Binding, PlacementGroup, SandboxEvent, Template
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import (
    AssignmentRefused,
    CommandsWithheld,
    Conflict,
    InstanceMismatch,
    InvalidRequest,
    NodeNotListed,
    NoNodes,
    NotFound,
    SchedulerError,
    WritesRefused,
)
from scheduler.store.client import StoreStatistics

if TYPE_CHECKING:
    from scheduler.store.ledger import Ledger

T = TypeVar("T")


@dataclass
class FakeLedger:
    """`fails` makes every call raise it, as an unreachable store would; `calls` remembers what was asked."""

    fails: SchedulerError | None = None
    now_ms: int = 1_700_000_000_000
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = FakeNodes(self)
        self.placements = FakePlacements(self)
        self.reservations = FakeReservations(self)
        self.bindings = FakeBindings(self)
        self.templates = FakeTemplates(self)
        self.groups = FakeGroups(self)
        self.artifacts = FakeArtifacts(self)
        self.settings = FakeSettings(self)
        self.time = FakeTime(self)
        self.client = FakeClient()
        self.cpu_configs = FakeCpuConfigs()
        self.domain = "test"

    def note(self, call: str, *arguments: Any) -> None:
        self.calls.append((call, arguments))
        if self.fails is not None:
            raise self.fails

    async def ping(self) -> None:
        self.note("ping")

    async def close(self) -> None:
        self.note("close")

    def as_ledger(self) -> Ledger:
        """The fake where a ledger is expected."""
        return cast("Ledger", self)


def page_of(items: Sequence[T], limit: int, cursor: str | None) -> tuple[tuple[T, ...], str | None]:
    if cursor is not None and not cursor.isdecimal():
        raise InvalidRequest.field("cursor", cursor, "a cursor from an earlier page")
    start = int(cursor or 0)
    end = start + limit
    return tuple(items[start:end]), str(end) if end < len(items) else None


@dataclass
class FakePart:
    ledger: FakeLedger


class FakeNodes(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.by_id: dict[str, Node] = {}
        self.generation = 0
        self.sequences: dict[str, int] = {}

    async def set(self, node_id: str, endpoint: str, state: DiscoveryState, *, recovering: bool = False) -> None:
        self.ledger.note("set_node", node_id, endpoint, state)
        status = NodeStatus.LINGERING if state is DiscoveryState.LINGERING else NodeStatus.CONNECTING
        known = self.by_id.get(node_id, Node(node_id, endpoint, state, status))
        self.by_id[node_id] = replace(known, endpoint=endpoint, discovery=state)

    async def replace(
        self, active: Sequence[NodeAddress], lingering: Sequence[NodeAddress], *, keep_configured: bool = False
    ) -> None:
        self.ledger.note("replace_nodes", active, lingering)
        assert not keep_configured, "nothing is configured here"
        self.by_id.clear()
        for addresses, state in ((active, DiscoveryState.ACTIVE), (lingering, DiscoveryState.LINGERING)):
            for address in addresses:
                await self.set(address.node_id, address.endpoint, state)

    async def unregister(self, node_id: str, service_instance_id: str) -> None:
        self.ledger.note("unregister_node", node_id, service_instance_id)
        node = self.by_id.get(node_id)
        if node is not None and node.service_instance_id not in {"", service_instance_id}:
            raise InstanceMismatch("another instance has reported since", found=node.service_instance_id)
        if node is not None:
            self.by_id[node_id] = Node(node_id, node.endpoint, node.discovery, NodeStatus.CONNECTING)

    async def remove(self, node_id: str) -> None:
        self.ledger.note("remove_node", node_id)
        if self.by_id.pop(node_id, None) is None:
            raise NotFound(f"node {node_id} is not listed")

    async def heartbeat(self, heartbeat: Heartbeat, deadline_ms: int | None = None) -> HeartbeatResult:
        self.ledger.note("heartbeat", heartbeat, deadline_ms)
        node = self.by_id.get(heartbeat.node_id)
        if node is None:
            raise NodeNotListed(f"node {heartbeat.node_id} is not listed")
        if heartbeat.sequence is not None:
            if heartbeat.sequence <= self.sequences.get(heartbeat.node_id, -1):
                return HeartbeatResult(generation=node.generation, stale=True)
            self.sequences[heartbeat.node_id] = heartbeat.sequence
        self.generation += 1
        snapshot = heartbeat.snapshot or NodeSnapshot()
        self.by_id[heartbeat.node_id] = replace(
            node,
            status=snapshot.status,
            last_seen_ms=self.ledger.now_ms,
            generation=self.generation,
            cluster_id=heartbeat.cluster_id,
            service_instance_id=heartbeat.service_instance_id,
            version=heartbeat.version,
            snapshot=snapshot,
            machine_info=heartbeat.machine_info,
            p2p_endpoint=heartbeat.p2p_endpoint,
            eligible=True,
        )
        return HeartbeatResult(generation=self.generation)

    async def get(self, node_id: str) -> Node:
        self.ledger.note("get_node", node_id)
        if node_id not in self.by_id:
            raise NotFound("observed node not found")
        return self.by_id[node_id]

    async def list(self, cluster_id: str = "") -> tuple[Node, ...]:
        self.ledger.note("list_nodes", cluster_id)
        nodes = (self.by_id[node_id] for node_id in sorted(self.by_id))
        return tuple(node for node in nodes if cluster_id in {"", node.cluster_id})

    async def tally(self) -> FleetTally:
        nodes = await self.list()
        observed = Counter(node.status.value for node in nodes if node.last_seen_ms is not None)
        return FleetTally(observed, pending={node.node_id: node.pending for node in nodes})

    async def addresses(self) -> tuple[NodeAddress, ...]:
        return tuple(node.address for node in await self.list())

    async def record_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> int:
        self.ledger.note("record_events", node_id, service_instance_id, events)
        return len(events)


class FakePlacements(FakePart):
    async def schedule(self, request: ScheduleRequest) -> Decision:
        self.ledger.note("schedule", request)
        reservations = self.ledger.reservations
        reservation_id = reservations._id_of(request.caller, request.idempotency_key)
        earlier = reservations.by_id.get(reservation_id)
        if earlier is not None:
            if earlier.state in {ReservationState.CANCELLED, ReservationState.EXPIRED}:
                raise Conflict("that reservation is over", reservation=earlier)
            node = self.ledger.nodes.by_id[earlier.node_id]
            return Decision(node.address, Strategy.ROUND_ROBIN, replayed=True, reservation=earlier)
        excluded = set(request.exclude_nodes)
        left = [node for node in await self.ledger.nodes.list() if self._reason(node, request, excluded) is None]
        if not left:
            raise NoNodes(len(self.ledger.nodes.by_id), self._reasons(request, excluded))
        if request.hint is None:
            return Decision(left[0].address, Strategy.ROUND_ROBIN)
        now_ms = self.ledger.now_ms
        reservation = Reservation(
            reservation_id=reservation_id,
            node_id=left[0].node_id,
            state=ReservationState.PENDING,
            lifecycle=request.lifecycle,
            cpu_count=request.hint.cpu_count,
            memory_bytes=request.hint.memory_mb * 1024 * 1024,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + (request.reservation_ttl_ms or 600_000),
            caller=request.caller,
        )
        reservations.by_id[reservation_id] = reservation
        return Decision(left[0].address, Strategy.ROUND_ROBIN, reservation=reservation)

    async def explain(self, request: ScheduleRequest) -> Explanation:
        self.ledger.note("explain", request)
        excluded = set(request.exclude_nodes)
        explained = []
        rank = 0
        for node in await self.ledger.nodes.list():
            reason = self._reason(node, request, excluded)
            explained.append(
                NodeExplanation(
                    node.node_id, node.status, None if reason else rank, reason, node.pressure, node.pending
                )
            )
            rank += reason is None
        first = next((node for node in explained if node.rank == 0), None)
        address = None if first is None else self.ledger.nodes.by_id[first.node_id].address
        return Explanation(Strategy.ROUND_ROBIN, address, False, tuple(explained), self._reasons(request, excluded))

    def _reason(self, node: Node, request: ScheduleRequest, excluded: set[str]) -> str | None:
        if node.discovery is DiscoveryState.LINGERING:
            return "lingering"
        if node.node_id in excluded:
            return "excluded"
        asked = request.hint.cpu_count if request.hint else 0
        return "insufficient_cpu" if 0 < node.snapshot.cpu_count < asked else None

    def _reasons(self, request: ScheduleRequest, excluded: set[str]) -> dict[str, int]:
        reasons: dict[str, int] = {}
        for node in self.ledger.nodes.by_id.values():
            reason = self._reason(node, request, excluded)
            if reason is not None:
                reasons[reason] = reasons.get(reason, 0) + 1
        return reasons


class FakeReservations(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.by_id: dict[str, Reservation] = {}

    def _id_of(self, caller: str, key: str | None) -> str:
        if key is None:
            return f"r{len(self.by_id)}"
        return hashlib.sha256(f"{caller}\n{key}".encode()).hexdigest()[:32]

    async def get(self, reservation_id: str) -> Reservation:
        self.ledger.note("get_reservation", reservation_id)
        if reservation_id not in self.by_id:
            raise NotFound(f"no reservation {reservation_id}")
        return self.by_id[reservation_id]

    async def list(
        self,
        node_id: str | None = None,
        state: ReservationState | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[tuple[Reservation, ...], str | None]:
        self.ledger.note("list_reservations", node_id, state, limit, cursor)
        found = [
            reservation
            for reservation in self.by_id.values()
            if node_id in {None, reservation.node_id} and state in {None, reservation.state}
        ]
        return page_of(found, limit, cursor)

    async def confirm(self, reservation_id: str, sandbox_id: str) -> ReservationResult:
        reservation = await self.get(reservation_id)
        if reservation.state is ReservationState.CANCELLED:
            raise Conflict("it was cancelled", reservation=reservation)
        if reservation.state is ReservationState.CONFIRMED:
            if reservation.sandbox_id != sandbox_id:
                raise Conflict("it was confirmed with another sandbox", reservation=reservation)
            return ReservationResult(reservation, replayed=True, orphaned=reservation.orphaned)
        orphaned = reservation.state is ReservationState.EXPIRED
        reservation = self._put(
            replace(reservation, state=ReservationState.CONFIRMED, sandbox_id=sandbox_id, orphaned=orphaned)
        )
        node = self.ledger.nodes.by_id[reservation.node_id]
        self.ledger.bindings.by_id[sandbox_id] = Binding(sandbox_id, node.address, self.ledger.now_ms)
        return ReservationResult(reservation, orphaned=orphaned)

    async def cancel(
        self, reservation_id: str, reason: str = "", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        reservation = await self.get(reservation_id)
        if reservation.state is ReservationState.CONFIRMED:
            raise Conflict("it was confirmed", reservation=reservation)
        if reservation.state is not ReservationState.PENDING:
            return ReservationResult(reservation, replayed=True)
        return ReservationResult(self._put(replace(reservation, state=ReservationState.CANCELLED, reason=reason)))

    async def cancel_by_key(
        self, caller: str, idempotency_key: str, reason: str = "", cause: CancelCause = CancelCause.CALLER
    ) -> ReservationResult:
        return await self.cancel(self._id_of(caller, idempotency_key), reason, cause)

    async def renew(self, reservation_id: str, ttl_ms: int) -> ReservationResult:
        reservation = await self.get(reservation_id)
        if reservation.state is not ReservationState.PENDING:
            raise Conflict("it is not pending", reservation=reservation)
        return ReservationResult(self._put(replace(reservation, expires_at_ms=self.ledger.now_ms + ttl_ms)))

    async def tally(self) -> tuple[OpenReservations, ...]:
        self.ledger.note("tally")
        return ()

    async def sweep(self) -> int:
        self.ledger.note("sweep")
        return 0

    def _put(self, reservation: Reservation) -> Reservation:
        self.by_id[reservation.reservation_id] = reservation
        return reservation


class FakeBindings(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.by_id: dict[str, Binding] = {}

    async def lookup(self, sandbox_id: str) -> Binding:
        self.ledger.note("lookup", sandbox_id)
        if sandbox_id not in self.by_id:
            raise NotFound("sandbox assignment not found")
        return self.by_id[sandbox_id]

    async def record(self, sandbox_id: str, node: NodeAddress) -> None:
        self.ledger.note("record_assignment", sandbox_id, node)
        if node not in await self.ledger.nodes.addresses():
            raise AssignmentRefused("that node is not listed with that endpoint")
        self.by_id[sandbox_id] = Binding(sandbox_id, node, self.ledger.now_ms)


class FakeTemplates(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.by_id: dict[str, Template] = {}

    async def put(self, template: Template) -> None:
        self.ledger.note("put_template", template)
        self.by_id[template.template_id] = template

    async def get(self, template_id: str) -> Template:
        self.ledger.note("get_template", template_id)
        if template_id not in self.by_id:
            raise NotFound(f"no template {template_id}")
        return self.by_id[template_id]

    async def delete(self, template_id: str) -> None:
        await self.get(template_id)
        del self.by_id[template_id]

    async def list(self, limit: int = 100, cursor: str | None = None) -> tuple[tuple[Template, ...], str | None]:
        self.ledger.note("list_templates", limit, cursor)
        return page_of(list(self.by_id.values()), limit, cursor)


class FakeGroups(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.open: list[PlacementGroup] = []

    async def list(
        self, limit: int = 100, cursor: str | None = None
    ) -> tuple[int, tuple[PlacementGroup, ...], str | None]:
        self.ledger.note("list_groups", limit, cursor)
        found, next_cursor = page_of(self.open, limit, cursor)
        return len(self.open), found, next_cursor


class FakeArtifacts(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.providers: dict[ArtifactKey, set[str]] = {}

    async def record(self, artifact: ArtifactKey, node_id: str) -> None:
        self.ledger.note("record_artifact", artifact, node_id)
        if node_id not in self.ledger.nodes.by_id:
            raise NodeNotListed(f"node {node_id} is not listed")
        self.providers.setdefault(artifact, set()).add(node_id)

    async def forget(self, artifact: ArtifactKey, node_id: str) -> None:
        self.ledger.note("forget_artifact", artifact, node_id)
        self.providers.get(artifact, set()).discard(node_id)

    async def lookup(self, artifact: ArtifactKey, exclude_node_id: str = "") -> tuple[tuple[str, P2pEndpoint], ...]:
        self.ledger.note("lookup_artifact", artifact, exclude_node_id)
        known = await self.peers(artifact.cluster_id, artifact.backend, exclude_node_id)
        return tuple(peer for peer in known if peer[0] in self.providers.get(artifact, set()))

    async def peers(
        self, cluster_id: str = "", backend: str = "", exclude_node_id: str = ""
    ) -> tuple[tuple[str, P2pEndpoint], ...]:
        nodes = await self.ledger.nodes.list(cluster_id)
        return tuple(
            (node.node_id, node.p2p_endpoint)
            for node in nodes
            if node.p2p_endpoint is not None
            and node.node_id != exclude_node_id
            and backend in {"", node.p2p_endpoint.backend}
        )


class FakeSettings(FakePart):
    def __init__(self, ledger: FakeLedger) -> None:
        super().__init__(ledger)
        self.in_force: LedgerSettings | None = LedgerSettings(revision=3)
        self.counters: dict[str, int] = {}

    async def get(self) -> tuple[LedgerSettings, str] | None:
        self.ledger.note("get_settings")
        return None if self.in_force is None else (self.in_force, "epoch-1")

    async def rebuilding_until_ms(self) -> int:
        self.ledger.note("rebuilding_until_ms")
        return 0

    async def replicas(self, now_ms: int) -> tuple[LiveReplica, ...]:
        self.ledger.note("list_replicas", now_ms)
        return (LiveReplica("replica", now_ms + 10_000),)

    async def stats(self) -> dict[str, int]:
        self.ledger.note("stats")
        return self.counters


class FakeTime(FakePart):
    async def now_ms(self) -> int:
        self.ledger.note("now_ms")
        return self.ledger.now_ms

    async def skew_ms(self) -> int:
        self.ledger.note("skew_ms")
        return 0


@dataclass
class FakeClient:
    """What readiness and metrics ask of the real one: nothing was refused, nothing was sent."""

    withheld: CommandsWithheld | None = None
    writes_refused: WritesRefused | None = None

    def __init__(self) -> None:
        self.statistics = StoreStatistics()
        self.reader = self


@dataclass(frozen=True)
class FakeCpuConfigAnswer:
    """No template, nothing to compute, nothing moved."""

    send: str = ""
    changed: bool = False
    holders: tuple[str, ...] = ()


class FakeCpuConfigs:
    async def report(self, node_id: str, cluster_id: str, generation: int, text: str) -> FakeCpuConfigAnswer:
        return FakeCpuConfigAnswer()
