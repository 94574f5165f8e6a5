"""The domain's values as the JSON a caller sees; `http/answers.py` and `http/routes` have the same shapes for the
document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, fields
from typing import Any

from scheduler.domain.journal import Entry
from scheduler.domain.node import MachineInfo, Node, NodeAddress, NodeSnapshot, P2pEndpoint, PendingTotals, Pressure
from scheduler.domain.placement import BatchDecision, Decision, Explanation, Hint, HintKind, NodeExplanation, OverLimit
from scheduler.domain.replica import LiveReplica, OwnSettings, SettingsInForce
from scheduler.domain.reservation import Reservation, ReservationResult
from scheduler.domain.sandbox import PlacementGroup, Template, WarmNode
from scheduler.domain.settings import LedgerSettings
from scheduler.domain.summary import Amount, Summary

_SNAPSHOT_NUMBERS = tuple(field.name for field in fields(NodeSnapshot) if field.name not in {"status", "disks"})


def address_view(address: NodeAddress) -> dict[str, Any]:
    return {"node_id": address.node_id, "endpoint": address.endpoint}


def decision_view(decision: Decision) -> dict[str, Any]:
    return {
        "node": address_view(decision.node),
        "strategy": decision.strategy.value,
        "replayed": decision.replayed,
        "degraded": decision.degraded,
        "reservation": None if decision.reservation is None else reservation_view(decision.reservation),
    }


def batch_view(decision: BatchDecision) -> dict[str, Any]:
    return {
        "placed": [
            {
                "index": placed.index,
                "node": address_view(placed.node),
                "degraded": placed.degraded,
                "reservation": reservation_view(placed.reservation),
            }
            for placed in decision.placed
        ],
        "refused": [
            {
                "index": refused.index,
                "reasons": dict(refused.reasons),
                "over_limit": over_limit_view(refused.over_limit),
            }
            for refused in decision.refused
        ],
        "strategy": decision.strategy.value,
        "replayed": decision.replayed,
    }


def reservation_view(reservation: Reservation) -> dict[str, Any]:
    return {
        "reservation_id": reservation.reservation_id,
        "node_id": reservation.node_id,
        "state": reservation.state.value,
        "lifecycle": reservation.lifecycle.value,
        "cpu_count": reservation.cpu_count,
        "memory_bytes": reservation.memory_bytes,
        "sandbox_id": reservation.sandbox_id,
        "created_at_ms": reservation.created_at_ms,
        "expires_at_ms": reservation.expires_at_ms,
        "confirmed_at_ms": reservation.confirmed_at_ms,
        "finished_at_ms": reservation.finished_at_ms,
        "reason": reservation.reason,
        "group_key": reservation.group_key,
        "resources": dict(reservation.resources),
    }


def reservation_result_view(result: ReservationResult) -> dict[str, Any]:
    return {
        "reservation": reservation_view(result.reservation),
        "replayed": result.replayed,
        "orphaned": result.orphaned,
    }


def explanation_view(explanation: Explanation) -> dict[str, Any]:
    return {
        "strategy": explanation.strategy.value,
        "node": None if explanation.node is None else address_view(explanation.node),
        "degraded": explanation.degraded,
        "nodes": [_node_explanation_view(node) for node in explanation.nodes],
        "reasons": dict(explanation.reasons),
        "over_limit": over_limit_view(explanation.over_limit),
        "cursor": explanation.cursor,
    }


def over_limit_view(exceeded: OverLimit | None) -> dict[str, Any] | None:
    return None if exceeded is None else asdict(exceeded)


def _node_explanation_view(node: NodeExplanation) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "status": node.status.value,
        "rank": node.rank,
        "reason": node.reason,
        "pressure": pressure_view(node.pressure),
        "pending": pending_view(node.pending),
        "over_limit": over_limit_view(node.over_limit),
        "label": None if node.label is None else asdict(node.label) | {"asked": list(node.label.asked)},
    }


def pressure_view(pressure: Pressure) -> dict[str, float | None]:
    return {"cpu": pressure.cpu, "memory": pressure.memory, "highest": pressure.highest}


def pending_view(pending: PendingTotals) -> dict[str, int]:
    return {
        "cpu_count": pending.cpu_count,
        "memory_bytes": pending.memory_bytes,
        "sandbox_count": pending.sandbox_count,
    }


def node_view(node: Node, members: Set[str] | None = None) -> dict[str, Any]:
    """All of a node, or these members."""
    return {name: show(node) for name, show in _NODE_MEMBERS.items() if members is None or name in members}


_NODE_MEMBERS: dict[str, Callable[[Node], Any]] = {
    "node_id": lambda node: node.node_id,
    "endpoint": lambda node: node.endpoint,
    "cluster_id": lambda node: node.cluster_id,
    "service_instance_id": lambda node: node.service_instance_id,
    "version": lambda node: node.version,
    "commit": lambda node: node.commit,
    "labels": lambda node: dict(node.labels),
    "resources": lambda node: {name: asdict(load) for name, load in node.resources.items()},
    "discovery": lambda node: node.discovery.value,
    "status": lambda node: node.status.value,
    "last_seen_ms": lambda node: node.last_seen_ms,
    "generation": lambda node: node.generation,
    "snapshot": lambda node: snapshot_view(node.snapshot),
    "machine_info": lambda node: None if node.machine_info is None else machine_info_view(node.machine_info),
    "p2p_endpoint": lambda node: None if node.p2p_endpoint is None else p2p_endpoint_view(node.p2p_endpoint),
    "pending": lambda node: pending_view(node.pending),
    "pressure": lambda node: pressure_view(node.pressure),
    "cordoned": lambda node: node.cordoned,
    "eligible": lambda node: node.eligible,
    "ineligible_reason": lambda node: node.ineligible_reason,
}
STATE_MEMBERS = frozenset(
    {"node_id", "discovery", "status", "last_seen_ms", "pending", "pressure", "cordoned"}
    | {"eligible", "ineligible_reason"}
)
"""What `NodeDetail.STATE` reads."""


def snapshot_view(snapshot: NodeSnapshot) -> dict[str, Any]:
    numbers = {name: getattr(snapshot, name) for name in _SNAPSHOT_NUMBERS}
    return {"status": snapshot.status.value, **numbers, "disks": [asdict(disk) for disk in snapshot.disks]}


def machine_info_view(machine_info: MachineInfo) -> dict[str, str]:
    return asdict(machine_info)


def p2p_endpoint_view(endpoint: P2pEndpoint) -> dict[str, str]:
    return {"backend": endpoint.backend, "address": endpoint.address}


def peers_view(peers: tuple[tuple[str, P2pEndpoint], ...]) -> dict[str, Any]:
    return {"peers": [{"node_id": node_id, "endpoint": p2p_endpoint_view(endpoint)} for node_id, endpoint in peers]}


def hint_view(hint: Hint) -> dict[str, Any]:
    """A hint as `POST /v1/schedule` would take it."""
    if hint.kind is HintKind.SANDBOX:
        return {"kind": hint.kind.value, "template_id": hint.template_id, "metadata": dict(hint.metadata)}
    return {
        "kind": hint.kind.value,
        "cpu_count": hint.cpu_count,
        "memory_mb": hint.memory_mb,
        "images": list(hint.images),
        "metadata": dict(hint.metadata),
    }


def template_view(template: Template) -> dict[str, Any]:
    return asdict(template)


def group_view(group: PlacementGroup) -> dict[str, Any]:
    return asdict(group)


def warm_node_view(node: WarmNode) -> dict[str, Any]:
    return {"node_id": node.node_id, "keys": [asdict(key) for key in node.keys]}


def replica_view(replica: LiveReplica) -> dict[str, Any]:
    return asdict(replica)


def settings_view(found: SettingsInForce) -> dict[str, Any]:
    settings = _shown_settings(found.settings)
    return {
        "domain": found.domain,
        "revision": found.settings.revision,
        "epoch": found.epoch,
        "rebuilding": found.rebuilding,
        "clock_skew_ms": found.clock_skew_ms,
        "settings": settings,
        "sources": _sources(settings, _shown_settings(LedgerSettings())),
    }


def own_settings_view(own: OwnSettings) -> dict[str, Any]:
    """What a replica is configured with; a setting that no source names is the default."""
    settings = _shown_settings(own.settings)
    return {"replica_id": own.replica_id, "settings": settings, "sources": _named(settings, own.sources)}


def _named(settings: dict[str, Any], sources: Mapping[str, str], above: str = "") -> dict[str, Any]:
    return {
        name: _named(value, sources, f"{above}{name}.")
        if isinstance(value, dict)
        else sources.get(above + name, "default")
        for name, value in settings.items()
    }


def _shown_settings(in_force: LedgerSettings) -> dict[str, Any]:
    """Fractions as a file says them, or `unlimited` and `off`. Templates have a list of their own."""
    settings = asdict(in_force)
    del settings["revision"], settings["templates"]
    for name in ("overcommit_cpu", "overcommit_memory"):
        settings[name] = "unlimited" if settings[name] is None else settings[name] / 1000
    settings["fill_to"] /= 1000
    affinity = settings["affinity"]
    affinity["slack"] = "off" if affinity["slack"] is None else affinity["slack"] / 1000
    return settings


def _sources(settings: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Each setting's source, under the same names."""
    return {
        name: _sources(value, defaults[name])
        if isinstance(value, dict)
        else ("default" if value == defaults[name] else "configuration")
        for name, value in settings.items()
    }


def amount_view(amount: Amount) -> dict[str, Any]:
    """Further resources stand beside CPUs and memory, by their names."""
    return {"cpu_count": amount.cpu_count, "memory_bytes": amount.memory_bytes, **amount.resources}


def summary_view(summary: Summary) -> dict[str, Any]:
    return {
        "domain": summary.domain,
        "strategy": summary.strategy.value,
        "settings_revision": summary.settings_revision,
        "ledger": {
            "epoch": summary.epoch,
            "rebuilding": summary.rebuilding,
            "clock_skew_ms": summary.clock_skew_ms,
        },
        "now_ms": summary.now_ms,
        "replicas": list(summary.replicas),
        "nodes": dict(summary.nodes),
        "capacity": amount_view(summary.capacity),
        "allocated": amount_view(summary.allocated),
        "reserved": amount_view(summary.reserved),
        "free": amount_view(summary.free),
        "largest_free": {name: amount_view(amount) for name, amount in summary.largest_free.items()},
        "reservations": dict(summary.reservations),
        "oldest_pending_ms": summary.oldest_pending_ms,
        "waiting": 0,
        "rates": asdict(summary.rates),
    }


def decision_entry_view(entry: Entry) -> dict[str, Any]:
    """One of the last decisions; the strategy of a refusal is the one that was in force."""
    facts = entry.facts
    return {
        "instant_ms": entry.at_ms,
        "outcome": facts["outcome"],
        "reason": facts.get("reason"),
        "reasons": facts.get("reasons") or {},
        "over_limit": facts.get("over_limit"),
        "hint": facts.get("hint"),
        "node_id": facts.get("node_id"),
        "reservation_id": facts.get("reservation_id"),
        "degraded": bool(facts.get("degraded")),
        "caller": facts.get("caller"),
        "request_id": facts.get("request_id"),
        "strategy": facts.get("strategy") or entry.strategy,
    }


def act_view(entry: Entry) -> dict[str, Any]:
    return {"instant_ms": entry.at_ms, **entry.facts}
