"""Validates what nodes report: heartbeats and sandbox events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from scheduler.domain import text
from scheduler.domain.limits import (
    EVENTS_MAX,
    ROSTER_MAX,
    SAFE_INTEGER_MAX,
    SANDBOX_CPU_MAX,
    SANDBOX_MEMORY_BYTES_MAX,
    TEXT_BYTES_MAX,
)
from scheduler.domain.node import FIGURES, DiskMetric, Heartbeat, MachineInfo, NodeSnapshot, P2pEndpoint
from scheduler.domain.sandbox import SandboxEvent
from scheduler.domain.text import cut
from scheduler.errors import InvalidRequest
from scheduler.service.checks import (
    byte_count,
    clean_endpoint,
    clean_id,
    clean_labels,
    clean_optional_id,
    clean_resources,
    clean_roster,
    clean_text,
    refuse,
    required,
    trim,
    uint32,
    whole_number,
)

# Large hosts mount hundreds of file systems, and a CPU template takes some 100 KB: these limits stop nonsense
# without refusing a real node.
DISKS_MAX = 4096
# A node may report more than its scheduler is told of.
REPORTED_RESOURCES_MAX = 64
DISK_TEXT_BYTES_MAX = 4096
CPU_CONFIG_BYTES_MAX = 1024 * 1024
P2P_ADDRESS_BYTES_MAX = 64 * 1024

_figures_of = attrgetter(*FIGURES)
_MOST = tuple(figure.most for figure in FIGURES.values())


def clean_heartbeat(heartbeat: Heartbeat) -> Heartbeat:
    """The report with trimmed ids, a clean roster, descriptive texts and lists cut to their limits, and every number
    checked. An oversized description never costs the report."""
    required(
        "node_id and service_instance_id are required",
        node_id=heartbeat.node_id,
        service_instance_id=heartbeat.service_instance_id,
    )
    roster = heartbeat.sandbox_ids
    if roster is not None and len(roster) > ROSTER_MAX:
        raise refuse("sandbox_ids", roster, f"at most {ROSTER_MAX} ids")
    if heartbeat.sequence is not None:
        byte_count("sequence", heartbeat.sequence)
    if heartbeat.acknowledged_generation is not None:
        byte_count("acknowledged_generation", heartbeat.acknowledged_generation)
    clean_resources("resources", heartbeat.resources, REPORTED_RESOURCES_MAX)
    for name, load in heartbeat.resources.items():
        byte_count(f"resources.{name}.total", load.total)
        byte_count(f"resources.{name}.allocated", load.allocated)
    if heartbeat.snapshot is not None:
        check_snapshot(heartbeat.snapshot)
    return replace(
        heartbeat,
        node_id=clean_id("node_id", heartbeat.node_id),
        service_instance_id=clean_id("service_instance_id", heartbeat.service_instance_id),
        cluster_id=clean_optional_id("cluster_id", heartbeat.cluster_id),
        version=cut(heartbeat.version, TEXT_BYTES_MAX),
        commit=cut(heartbeat.commit, TEXT_BYTES_MAX),
        snapshot=None if heartbeat.snapshot is None else _with_tidy_disks(heartbeat.snapshot),
        machine_info=None if heartbeat.machine_info is None else clean_machine_info(heartbeat.machine_info),
        endpoint=clean_endpoint("endpoint", heartbeat.endpoint)
        if heartbeat.endpoint is not None and trim(heartbeat.endpoint)
        else None,
        sandbox_ids=None if roster is None else clean_roster(roster),
        p2p_endpoint=clean_p2p_endpoint(heartbeat.p2p_endpoint),
        labels=clean_labels("labels", heartbeat.labels),
    )


def check_snapshot(snapshot: NodeSnapshot) -> None:
    for name, figure in FIGURES.items():
        whole_number(f"snapshot.{name}", getattr(snapshot, name), figure.most)
    # Scripts rank by active plus paused memory, so the sum must be exact too.
    byte_count(
        "snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes",
        snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes,
    )
    for disk in snapshot.disks:
        byte_count("snapshot.disks.used_bytes", disk.used_bytes)
        byte_count("snapshot.disks.total_bytes", disk.total_bytes)
    # What is placed on a node's disks, and the fleet's sums, count all of them together.
    byte_count("snapshot.disks.used_bytes of all disks", sum(disk.used_bytes for disk in snapshot.disks))
    byte_count("snapshot.disks.total_bytes of all disks", sum(disk.total_bytes for disk in snapshot.disks))


def _is_within(figure: int, most: int) -> bool:
    return 0 <= figure <= most


def held_to_bounds(snapshot: NodeSnapshot) -> NodeSnapshot:
    """The snapshot with every figure clamped to its bounds, for callers that cannot handle a refusal."""
    found = _figures_of(snapshot)
    if not snapshot.disks and all(map(_is_within, found, _MOST)):
        both = snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes
        if both <= SAFE_INTEGER_MAX:
            return snapshot  # nearly always, and copying it costs more than looking
    figures = {name: min(max(told, 0), most) for name, told, most in zip(FIGURES, found, _MOST, strict=True)}
    allowed = SAFE_INTEGER_MAX - figures["allocated_memory_bytes"]
    figures["paused_allocated_memory_bytes"] = min(figures["paused_allocated_memory_bytes"], allowed)
    return replace(snapshot, disks=tuple(_held_disks(snapshot.disks)), **figures)


def held_to_form(heartbeat: Heartbeat) -> Heartbeat:
    """The report without what cannot be kept of its descriptions, for callers that cannot handle a refusal: a cluster
    id that is none gives way to its digest, an endpoint that is none makes no peer, and a CPU template that is too
    large counts as none."""
    cluster_id, info, peer = heartbeat.cluster_id, heartbeat.machine_info, heartbeat.p2p_endpoint
    if trim(cluster_id) and text.clean_id(cluster_id) is None:
        cluster_id = hashlib.sha256(trim(cluster_id).encode("utf-8", "replace")).hexdigest()
    if info is not None and len(info.cpu_config_json.encode("utf-8", "replace")) > CPU_CONFIG_BYTES_MAX:
        info = replace(info, cpu_config_json="")
    try:
        peer = clean_p2p_endpoint(peer)
    except InvalidRequest:
        peer = None
    if (cluster_id, info, peer) == (heartbeat.cluster_id, heartbeat.machine_info, heartbeat.p2p_endpoint):
        return heartbeat
    return replace(heartbeat, cluster_id=cluster_id, machine_info=info, p2p_endpoint=peer)


def _held_disks(disks: Iterable[DiskMetric]) -> Iterator[DiskMetric]:
    """Each held to what the ones before it leave of the bound of all together."""
    used_left = total_left = SAFE_INTEGER_MAX
    for disk in disks:
        used, total = min(max(disk.used_bytes, 0), used_left), min(max(disk.total_bytes, 0), total_left)
        used_left, total_left = used_left - used, total_left - total
        yield replace(disk, used_bytes=used, total_bytes=total)


def _with_tidy_disks(snapshot: NodeSnapshot) -> NodeSnapshot:
    if not snapshot.disks:
        return snapshot
    return replace(snapshot, disks=tuple(_clean_disk(disk) for disk in snapshot.disks[:DISKS_MAX]))


def _clean_disk(disk: DiskMetric) -> DiskMetric:
    return replace(
        disk,
        mount_point=cut(disk.mount_point, DISK_TEXT_BYTES_MAX),
        device=cut(disk.device, DISK_TEXT_BYTES_MAX),
        filesystem_type=cut(disk.filesystem_type, DISK_TEXT_BYTES_MAX),
    )


def clean_machine_info(machine_info: MachineInfo) -> MachineInfo:
    """Descriptions are cut. The CPU template is refused when it is too large, because a cut one is useless."""
    clean_text("machine_info.cpu_config_json", machine_info.cpu_config_json, most_bytes=CPU_CONFIG_BYTES_MAX)
    return replace(
        machine_info,
        cpu_family=cut(machine_info.cpu_family, TEXT_BYTES_MAX),
        cpu_model=cut(machine_info.cpu_model, TEXT_BYTES_MAX),
        cpu_model_name=cut(machine_info.cpu_model_name, TEXT_BYTES_MAX),
        cpu_architecture=cut(machine_info.cpu_architecture, TEXT_BYTES_MAX),
    )


def clean_p2p_endpoint(endpoint: P2pEndpoint | None) -> P2pEndpoint | None:
    """None when backend or address is blank: such a report withdraws the peer."""
    if endpoint is None or not trim(endpoint.backend) or not trim(endpoint.address):
        return None
    return P2pEndpoint(
        backend=clean_id("p2p_endpoint.backend", endpoint.backend),
        address=clean_text("p2p_endpoint.address", trim(endpoint.address), most_bytes=P2P_ADDRESS_BYTES_MAX),
    )


def clean_events(events: Sequence[SandboxEvent]) -> tuple[SandboxEvent, ...]:
    """At most 1,024 events with trimmed ids and checked sizes, held to what a sandbox may have, so that their sums are
    exact. Drops events with invalid sandbox ids and keeps the rest, because those happened."""
    if len(events) > EVENTS_MAX:
        raise refuse("events", events, f"at most {EVENTS_MAX} events")
    cleaned = []
    for index, event in enumerate(events):
        uint32(f"events.{index}.requested_cpu", event.requested_cpu)
        byte_count(f"events.{index}.requested_memory_bytes", event.requested_memory_bytes)
        sandbox_id = text.clean_id(event.sandbox_id)
        if sandbox_id is not None:
            cleaned.append(
                replace(
                    event,
                    sandbox_id=sandbox_id,
                    requested_cpu=min(event.requested_cpu, SANDBOX_CPU_MAX),
                    requested_memory_bytes=min(event.requested_memory_bytes, SANDBOX_MEMORY_BYTES_MAX),
                )
            )
    return tuple(cleaned)
