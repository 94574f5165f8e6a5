"""The columns of nodes, reservations, replicas, decisions, acts and warm keys, from rows as the HTTP API has them."""

from __future__ import annotations

from scheduler.domain.limits import MIB
from scheduler.domain.resources import DISK
from scheduler.domain.wording import counted
from scheduler.operating.listing import Column, Listing
from scheduler.operating.source import Row
from scheduler.operating.words import NONE, age, amounts, known, label_list, size, status_word


def allocated_cpu(node: Row) -> int:
    """Paused included, as for `allocated_memory`."""
    snapshot = node["snapshot"]
    return int(snapshot["allocated_cpu"] + snapshot["paused_allocated_cpu"])


def allocated_memory(node: Row) -> int:
    snapshot = node["snapshot"]
    return int(snapshot["allocated_memory_bytes"] + snapshot["paused_allocated_memory_bytes"])


def cpu_capacity(node: Row) -> int | None:
    """After overcommit where the source tells it, else as advertised; None where it is not known."""
    return _capacity(node, "cpu_capacity", "cpu_count")


def memory_capacity(node: Row) -> int | None:
    return _capacity(node, "memory_capacity_bytes", "memory_total_bytes")


def _capacity(node: Row, effective: str, advertised: str) -> int | None:
    if effective in node:
        found: int | None = node[effective]
        return found
    return int(node["snapshot"][advertised]) or None


def _pending(node: Row, now_ms: int) -> str:
    pending = node["pending"]
    return f"{pending['sandbox_count']}: {counted(pending['cpu_count'], 'CPU')}, {size(pending['memory_bytes'])}"


def _pressure(node: Row, now_ms: int) -> str:
    highest = node["pressure"]["highest"]
    return NONE if highest is None else f"{highest:.4f}"


def seen(node: Row, now_ms: int) -> str:
    """The age of its last report; clocks that differ a little show as 0s."""
    return "never" if node["last_seen_ms"] is None else age(max(0, now_ms - node["last_seen_ms"]))


def state_word(node: Row, state: str) -> str:
    """A node's status, or why it is not chosen, in words: what the API calls `lingering` is a drain, a cordon, or
    both."""
    if state != "lingering" or not node["cordoned"]:
        return status_word(state)
    return "draining, cordoned" if node["discovery"] == "lingering" else "cordoned"


def _status(node: Row, now_ms: int = 0) -> str:
    return state_word(node, node["status"])


def _reason(node: Row, now_ms: int = 0) -> str:
    return state_word(node, node["ineligible_reason"] or "")


NODES: Listing[Row] = Listing(
    "no nodes",
    (
        Column("node", lambda node, _: node["node_id"], lambda node: node["node_id"]),
        Column("status", _status, _status),
        Column("pressure", _pressure, lambda node: node["pressure"]["highest"]),
        Column(
            "running",
            lambda node, _: str(node["snapshot"]["sandbox_count"]),
            lambda node: node["snapshot"]["sandbox_count"],
        ),
        Column("cpus", lambda node, _: f"{allocated_cpu(node)} of {known(cpu_capacity(node))}", allocated_cpu, "CPUs"),
        Column(
            "memory",
            lambda node, _: f"{size(allocated_memory(node))} of {known(memory_capacity(node), size)}",
            allocated_memory,
        ),
        Column("pending", _pending, lambda node: node["pending"]["sandbox_count"]),
        Column("seen", seen, lambda node: None if node["last_seen_ms"] is None else -node["last_seen_ms"]),
        Column("reason", _reason, lambda node: _reason(node) or None, "not chosen for"),
    ),
)


def _left(reservation: Row, now_ms: int) -> str:
    return "" if reservation["finished_at_ms"] is not None else age(reservation["expires_at_ms"] - now_ms)


def _sandbox(reservation: Row, now_ms: int) -> str:
    told = reservation.get("sandbox_told", True) or reservation["sandbox_id"] is None
    return (reservation["sandbox_id"] or "") + ("" if told else " (by an event)")


RESERVATIONS: Listing[Row] = Listing(
    "no reservations",
    (
        Column("reservation", lambda row, _: row["reservation_id"], lambda row: row["reservation_id"]),
        Column("node", lambda row, _: row["node_id"], lambda row: row["node_id"]),
        Column("state", lambda row, _: row["state"], lambda row: row["state"]),
        Column("lifecycle", lambda row, _: row["lifecycle"], lambda row: row["lifecycle"]),
        Column("cpus", lambda row, _: str(row["cpu_count"] or "?"), lambda row: row["cpu_count"], "CPUs"),
        Column(
            "memory",
            lambda row, _: size(row["memory_bytes"]) if row["memory_bytes"] else "?",
            lambda row: row["memory_bytes"],
        ),
        Column(
            "resources",
            lambda row, _: ", ".join(amounts(row["resources"])),
            lambda row: sorted(row["resources"].items()) or None,
        ),
        Column("age", lambda row, now_ms: age(now_ms - row["created_at_ms"]), lambda row: -row["created_at_ms"]),
        Column("left", _left, lambda row: None if row["finished_at_ms"] is not None else row["expires_at_ms"]),
        Column("sandbox", _sandbox, lambda row: row["sandbox_id"]),
        Column("why", lambda row, _: row["reason"] or "", lambda row: row["reason"]),
    ),
)

REPLICAS: Listing[Row] = Listing(
    "no replica is alive",
    (
        Column("replica", lambda row, _: row["replica_id"], lambda row: row["replica_id"]),
        Column(
            "expires",
            lambda row, now_ms: age(max(0, row["expires_at_ms"] - now_ms)),
            lambda row: row["expires_at_ms"],
            "dead if silent for",
        ),
    ),
)


def _asked(decision: Row) -> str:
    """What the hint says, as far as it fits on a line."""
    hint = decision["hint"]
    if hint is None:
        return "any node"
    if hint["kind"] == "sandbox":
        asked = f"template {hint.get('template_id') or NONE}"
    else:
        memory_mb = hint.get("memory_mb")
        asked = f"{counted(hint.get('cpu_count') or 0, 'CPU')}, {size(memory_mb * MIB) if memory_mb else '?'}"
    further = amounts(hint.get("resources", {}))
    if hint.get("require"):
        further.append(label_list(hint["require"]))
    if hint.get("spread"):
        further.append(_spread(**hint["spread"]))
    return ", ".join([asked, *further, *hint.get("images", [])])


def _spread(key: str, over: str, **bound: int) -> str:
    return f"spread {key} over {over}, " + ", ".join(f"{name} {most}" for name, most in bound.items())


def _figures(limit: str, current: int, pending: int, requested: int, maximum: int) -> str:
    def shown(amount: int) -> str:
        return size(amount) if limit == DISK or "memory_bytes" in limit else f"{amount:,}"

    there = f"{shown(current)} there + {shown(pending)} reserved"
    return f"{limit}: {there} + {shown(requested)} asked for, at most {shown(maximum)}"


def _kept_out(decision: Row) -> str:
    """Nodes by reason, and in figures what keeps most of them out."""
    told = [f"{nodes} {status_word(reason)}" for reason, nodes in decision["reasons"].items()]
    if decision.get("over_limit"):
        told.append(_figures(**decision["over_limit"]))
    return ", ".join(told)


def _when(row: Row, now_ms: int) -> str:
    return age(max(0, now_ms - row["instant_ms"]))


DECISIONS: Listing[Row] = Listing(
    "no decisions are kept like that",
    (
        Column("age", _when, lambda row: -row["instant_ms"]),
        Column("outcome", lambda row, _: row["outcome"], lambda row: row["outcome"]),
        Column("asked", lambda row, _: _asked(row), _asked, "asked for"),
        Column("node", lambda row, _: row["node_id"] or NONE, lambda row: row["node_id"]),
        Column("reservation", lambda row, _: row["reservation_id"] or NONE, lambda row: row["reservation_id"]),
        Column("caller", lambda row, _: row["caller"] or NONE, lambda row: row["caller"]),
        Column("why", lambda row, _: _kept_out(row), _kept_out, "nodes kept out"),
    ),
)

ACTS: Listing[Row] = Listing(
    "nobody has done anything yet",
    (
        Column("age", _when, lambda row: -row["instant_ms"]),
        Column("who", lambda row, _: row["actor"] or NONE, lambda row: row["actor"]),
        Column("act", lambda row, _: row["act"], lambda row: row["act"]),
        Column("subject", lambda row, _: row["subject"] or NONE, lambda row: row["subject"], "to"),
        Column(
            "details",
            lambda row, _: ", ".join(f"{name}: {value}" for name, value in row["details"].items() if value != ""),
            lambda row: str(row["details"]),
        ),
    ),
)

WARM_KEYS: Listing[Row] = Listing(
    "no keys are warm like that; affinity.slack turns it on",
    (
        Column("node", lambda row, _: row["node_id"], lambda row: row["node_id"]),
        Column("count", lambda row, _: str(len(row["keys"])), lambda row: len(row["keys"])),
        Column(
            "keys",
            lambda row, _: ", ".join(each["key"] for each in row["keys"]),
            lambda row: row["keys"][0]["key"],
            "the latest first",
        ),
    ),
)
