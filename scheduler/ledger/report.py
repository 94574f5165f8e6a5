"""A report in the form that record_heartbeat.lua takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.domain import labels, resources
from scheduler.domain.node import FIGURES, Heartbeat, NodeSnapshot
from scheduler.domain.resources import ResourceLoad
from scheduler.ledger import codec
from scheduler.ledger.roster import RosterChange


def clean_roster(sandbox_ids: Sequence[str] | None) -> tuple[str, ...] | None:
    """Trimmed, without blanks and duplicates."""
    if sandbox_ids is None:
        return None
    trimmed = (sandbox_id.strip() for sandbox_id in sandbox_ids)
    return tuple(dict.fromkeys(sandbox_id for sandbox_id in trimmed if sandbox_id))


def report_arguments(heartbeat: Heartbeat, digest: str, stage: str, edits: str, change: RosterChange) -> list[Any]:
    """A report in the order of record_heartbeat.lua."""
    acknowledged = heartbeat.acknowledged_generation
    snapshot = heartbeat.snapshot or NodeSnapshot()
    details = codec.heartbeat_details(heartbeat)
    figures = [getattr(snapshot, name) for name in FIGURES]
    endpoint, labelled = heartbeat.endpoint or "", labels.written(heartbeat.labels)
    loads = resources.written_loads(_resources(heartbeat, snapshot))
    return [
        heartbeat.node_id,
        heartbeat.service_instance_id,
        "" if heartbeat.sequence is None else heartbeat.sequence,
        endpoint,
        digest,
        stage,
        edits,
        len(change.added),
        "" if acknowledged is None else acknowledged,
        int(heartbeat.hung_up),
        snapshot.status.value,
        labelled,
        loads,
        len(details),
        codec.stable_digest(snapshot.status.value, figures, [endpoint, labelled, loads, *details]),
        *figures,
        *details,
        *(change.added if stage == "whole" else ()),
        *(change.removed if stage == "whole" else ()),
    ]


def _resources(heartbeat: Heartbeat, snapshot: NodeSnapshot) -> Mapping[str, ResourceLoad]:
    """With the disks, unless the node reports `disk` itself."""
    if resources.DISK in heartbeat.resources or not snapshot.disks:
        return heartbeat.resources
    disks = resources.of_disks((disk.device, disk.total_bytes, disk.used_bytes) for disk in snapshot.disks)
    return heartbeat.resources if disks is None else {**heartbeat.resources, resources.DISK: disks}
