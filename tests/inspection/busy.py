"""A small ledger in which everything there is has happened once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    MachineInfo,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
)
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle, Reservation
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent, SandboxEventType, Template
from scheduler.domain.settings import GroupPlacement, GroupSettings, LedgerSettings
from scheduler.ledger.ledger import Ledger

MIB = 1024 * 1024
SETTINGS = LedgerSettings(
    strategy=Strategy.GROUPED_ROUND_ROBIN,
    groups=GroupSettings(max_sandbox_count=10, max_cpu_count=40, group_placement=GroupPlacement.LEAST_LOADED),
    templates_learn=True,
)
HINT = Hint(HintKind.COLD_SANDBOX, cpu_count=1, memory_mb=1024, images=("image",))
NODES = ("a", "b:1", "c")


@dataclass
class Busy:
    """What became of the placements, by name."""

    placed: dict[str, Reservation] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)

    def id(self, name: str) -> str:
        return self.placed[name].reservation_id

    def node(self, name: str) -> str:
        return self.placed[name].node_id


def address(node_id: str) -> NodeAddress:
    return NodeAddress(node_id, f"http://{node_id.replace(':', '-')}:8000")


def report(node_id: str, *, used: int = 0, roster: tuple[str, ...] | None = None, successes: int = 0) -> Heartbeat:
    snapshot = NodeSnapshot(
        NodeStatus.READY,
        cpu_count=64,
        memory_total_bytes=65_536 * MIB,
        allocated_cpu=used,
        allocated_memory_bytes=used * 1024 * MIB,
        sandbox_count=used,
        create_successes=successes,
    )
    return Heartbeat(
        node_id,
        f"instance-{node_id}",
        cluster_id="east",
        machine_info=MachineInfo(cpu_model="one", cpu_config_json='{"cpu": 1}'),
        snapshot=snapshot,
        sandbox_ids=roster,
        p2p_endpoint=P2pEndpoint("store", f"{node_id}:9"),
    )


async def make_busy(ledger: Ledger) -> Busy:
    """Nodes, reservations of every state, bindings, groups, templates, artifacts, a lease."""
    busy = Busy()
    for node_id in NODES:
        await ledger.nodes.set(node_id, address(node_id).endpoint, DiscoveryState.ACTIVE)
        result = await ledger.nodes.heartbeat(report(node_id, roster=(f"old-{node_id}",)))
        await ledger.cpu_configs.report(node_id, "east", result.generation, '{"cpu": 1}')
    await ledger.nodes.set("drained", address("drained").endpoint, DiscoveryState.LINGERING)
    await ledger.nodes.set("gone", address("gone").endpoint, DiscoveryState.ACTIVE)
    await ledger.nodes.heartbeat(report("gone", roster=("left",)))
    await ledger.nodes.remove("gone")

    await ledger.templates.put(Template("base", 2, 2048))
    for name, lifecycle in (
        ("pending", Lifecycle.EXPLICIT),
        ("confirmed", Lifecycle.EXPLICIT),
        ("settled", Lifecycle.EXPLICIT),
        ("cancelled", Lifecycle.EXPLICIT),
        ("counted", Lifecycle.HEARTBEAT),
        ("named", Lifecycle.HEARTBEAT),
    ):
        await place(ledger, busy, name, lifecycle)
    await ledger.reservations.confirm(busy.id("confirmed"), "s-confirmed")
    await ledger.reservations.confirm(busy.id("settled"), "s-settled")
    await ledger.reservations.cancel(busy.id("cancelled"), "changed my mind")
    await ledger.reservations.cancel_by_key("anonymous", "never-scheduled")
    await ledger.nodes.heartbeat(report(busy.node("settled"), used=1, roster=("s-settled",)))
    await ledger.nodes.heartbeat(report(busy.node("counted"), used=3, roster=None, successes=1))
    created = SandboxEvent("s-named", SandboxEventType.CREATE, 1, 1024 * MIB)
    await ledger.nodes.record_events(busy.node("named"), "", [created])

    await ledger.bindings.record("s-assigned", address("c"))
    await ledger.artifacts.record(ArtifactKey("east", "store", "layer"), "a")
    await ledger.artifacts.record(ArtifactKey("east", "store", "layer"), "c")
    await ledger.leases.hold("discovery", "replica", 10_000)
    await ledger.settings.keepalive("replica")
    await ledger.placements.explain(ScheduleRequest(HINT))  # brings the index up to date
    return busy


async def place(ledger: Ledger, busy: Busy, name: str, lifecycle: Lifecycle = Lifecycle.EXPLICIT) -> None:
    hint = replace(HINT, images=(f"image-{name}",))
    decision = await ledger.placements.schedule(ScheduleRequest(hint, lifecycle, request_id=f"request-{name}"))
    assert decision.reservation is not None
    busy.placed[name] = decision.reservation
    sequence = await ledger.client.command("ZSCORE", ledger.keys.reservations, busy.id(name))
    busy.sequences[name] = int(float(sequence))
