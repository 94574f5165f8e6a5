"""Converts between script replies and the domain's values. The one place that knows the ledger's field names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

import msgpack

from scheduler.domain import labels, resources
from scheduler.domain.fleet import FleetTally, Fullness
from scheduler.domain.node import (
    FIGURES,
    DiscoveryState,
    DiskMetric,
    Heartbeat,
    MachineInfo,
    Node,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
    PendingTotals,
    Pressure,
)
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import Lifecycle, Reservation, ReservationState
from scheduler.errors import StoreUnusable
from scheduler.ledger.request_codec import made_of

# Of the figures of a report, those that differ nearly every time.
_VOLATILE = tuple(tuple(FIGURES).index(name) for name in ("cpu_percent", "memory_used_bytes", "reported_at_unix_ms"))


def text(value: bytes | str | int | None) -> str:
    """A reply as text; invalid UTF-8 is replaced, not raised."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def pairs(flat: Sequence[Any]) -> dict[str, bytes]:
    """A flat HGETALL reply by field name; values stay bytes (some are MessagePack)."""
    values = iter(flat)
    return {
        text(name): value if isinstance(value, bytes) else str(value).encode()
        for name, value in zip(values, values, strict=True)
    }


def texts(flat: Sequence[Any]) -> dict[str, str]:
    """A hash whose values are all text, by field."""
    return {name: text(value) for name, value in pairs(flat).items()}


def counts(flat: Sequence[Any]) -> dict[str, int]:
    """Numbers by name."""
    return {name: int(value) for name, value in pairs(flat).items()}


def number(value: bytes | str | int | None, default: int = 0) -> int:
    return int(value) if value not in (None, "", b"") else default


def fraction(value: bytes | str) -> float | None:
    return float(value) if value else None


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Raises StoreUnusable when something in the ledger, as changed by hand, cannot be read by this version."""
    try:
        yield
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise StoreUnusable(f"the ledger's {what} cannot be read by this version: {error}") from error


# -- the fleet -------------------------------------------------------------------------------------------------


def add_nodes(tally: FleetTally, reply: Sequence[Any]) -> FleetTally:
    """The tally plus one more slice of tally_nodes.lua."""
    counts, unknown, cpu, memory, *nodes = reply
    words = iter(nodes)
    pending = {
        text(node_id): PendingTotals(int(cpu_count), int(memory_bytes), int(count))
        for node_id, cpu_count, memory_bytes, count in zip(words, words, words, words, strict=True)
    }
    observed = {status: int(count) for status, count in texts(counts).items()}
    return FleetTally(
        observed={
            status: tally.observed.get(status, 0) + observed.get(status, 0) for status in {*tally.observed, *observed}
        },
        unknown_capacity=tally.unknown_capacity + int(unknown),
        cpu_count=tally.cpu_count + Fullness(*map(int, cpu)),
        memory_bytes=tally.memory_bytes + Fullness(*map(int, memory)),
        pending={**tally.pending, **pending},
    )


# -- reservations ---------------------------------------------------------------------------------------------


def reservation(reservation_id: str, flat: Sequence[Any]) -> Reservation:
    with understood(f"reservation {reservation_id}"):
        return _reservation(reservation_id, texts(flat))


def _reservation(reservation_id: str, found: Mapping[str, str]) -> Reservation:

    def instant(name: str) -> int | None:
        return int(found[name]) if found.get(name) else None

    def held(name: str, whole: int) -> int:
        # Written only once a report accounts for a part; without it the whole reservation is held.
        return number(found.get(name), whole if found["state"] in ("pending", "confirmed") else 0)

    return Reservation(
        reservation_id=reservation_id,
        node_id=found.get("node_id", ""),
        state=ReservationState(found["state"]),
        lifecycle=Lifecycle(found.get("lifecycle", "explicit")),
        cpu_count=number(found.get("cpu_count")),
        memory_bytes=number(found.get("memory_bytes")),
        created_at_ms=number(found.get("created_at_ms")),
        expires_at_ms=number(found.get("expires_at_ms")),
        sandbox_id=found.get("sandbox_id") or None,
        sandbox_told=found.get("sandbox_told") in ("1", "named"),
        reason=found.get("reason") or None,
        held_cpu_count=held("held_cpu", number(found.get("cpu_count"))),
        held_memory_bytes=held("held_memory", number(found.get("memory_bytes"))),
        held_sandbox_count=held("held_count", 1),
        group_key=found.get("group_key") or None,
        request_id=found.get("request_id") or None,
        caller=found.get("caller") or None,
        confirmed_at_ms=instant("confirmed_at_ms"),
        finished_at_ms=instant("finished_at_ms"),
        orphaned=found.get("orphaned") == "1",
        resources=resources.read(found.get("resources", "")),
    )


def new_reservation(reservation_id: str, node_id: bytes, told: Sequence[Any], request: ScheduleRequest) -> Reservation:
    """A reservation just made, of what its request asked for and its reply told (lua/schedule_sandbox)."""
    _, cpu, memory, created, expires, *further = told
    cpu_count, memory_bytes = int(cpu), int(memory)
    return Reservation(
        reservation_id,
        node_id.decode(),
        ReservationState.PENDING,
        request.lifecycle,
        cpu_count,
        memory_bytes,
        int(created),
        int(expires),
        sandbox_id=request.sandbox_id,
        sandbox_told=request.sandbox_id is not None,
        held_cpu_count=cpu_count,
        held_memory_bytes=memory_bytes,
        held_sandbox_count=1,
        group_key=(texts(further).get("group_key") or None) if further else None,
        request_id=request.request_id or None,
        caller=request.caller or None,
        resources=request.hint.resources if request.hint else {},
    )


def new_fields(
    node_id: bytes, told: Sequence[Any], request: ScheduleRequest, fingerprint: str, strategy: bytes
) -> list[Any]:
    """The fields of a reservation just made, as they were written (lua/include/new_reservation)."""
    sequence, cpu_count, memory_bytes, created_at_ms, expires_at_ms, *further = told
    template_id, origin = made_of(request)
    fields = [
        b"node_id", node_id, b"state", b"pending", b"lifecycle", request.lifecycle.value, b"cpu_count", cpu_count,
        b"memory_bytes", memory_bytes, b"created_at_ms", created_at_ms, b"expires_at_ms", expires_at_ms,
        b"sequence", sequence, b"revision", b"1", b"fingerprint", fingerprint, b"strategy", strategy,
        b"caller", request.caller, b"request_id", request.request_id, *further,
    ]  # fmt: skip
    if template_id:
        fields += (b"template_id", template_id)
    if origin:
        fields += (b"origin", origin)
    return fields


def sequence_of(flat: Sequence[Any]) -> int:
    """The ledger sequence in these reservation fields; 0 without one."""
    names = flat[::2]
    return int(flat[2 * names.index(b"sequence") + 1]) if b"sequence" in names else 0


# -- nodes ----------------------------------------------------------------------------------------------------


def heartbeat_details(heartbeat: Heartbeat) -> list[str | bytes]:
    """The descriptive fields of a report, stored unchanged."""
    machine, peer = heartbeat.machine_info, heartbeat.p2p_endpoint
    disks = heartbeat.snapshot.disks if heartbeat.snapshot else ()
    details: list[str | bytes] = [
        "cluster_id", heartbeat.cluster_id, "version", heartbeat.version, "commit", heartbeat.commit,
        "p2p_backend", peer.backend if peer else "", "p2p_address", peer.address if peer else "",
        "disks", msgpack.packb([asdict(disk) for disk in disks]) if disks else b"",
    ]  # fmt: skip
    if machine is None:
        return [*details, "machine_info", b"", "cpu_config_json", ""]
    about = asdict(machine)
    # A node sends its CPU configuration only until it was accepted once, so the stored one stays.
    config = about.pop("cpu_config_json")
    details += ["machine_info", msgpack.packb(about)]
    return [*details, "cpu_config_json", config] if config else details


def stable_digest(status: str, figures: Sequence[int], details: Sequence[str | bytes]) -> str:
    """Equal while a node reports the same but for what differs in nearly every report: a digest of the figures, and
    behind a colon one of the details, which seldom change with them."""
    stable = list(figures)
    for place in _VOLATILE:
        stable[place] = 0
    of_figures, of_details = (blake2b(msgpack.packb(part), digest_size=8) for part in ([status, stable], details))
    return f"{of_figures.hexdigest()}:{of_details.hexdigest()}"


def roster_digest(sandbox_ids: Sequence[str]) -> str:
    """Equal for equal sets of ids; never empty, because "" means that a report has no roster."""
    # No id contains the character between them, so no two sets give the same text.
    digest = blake2b("\0".join(sorted(sandbox_ids)).encode(), digest_size=16)
    return f"{len(sandbox_ids)}:{digest.hexdigest()}"


_ROW = re.compile(r"([A-Za-z])((?:,-?\d+){10,14})(?:;\d*(?:;[^;=]+=-?\d+:\d+:-?\d+)*)?")


def row(text: str) -> tuple[str, tuple[int, ...]] | None:
    """The pool and the figures of a row in `loads` (lua/include/row_text); None: it cannot be read."""
    found = _ROW.fullmatch(text)
    return None if found is None else (found[1].lower(), tuple(map(int, found[2][1:].split(","))))


def row_resources(row_text: str) -> dict[str, resources.ResourceLoad]:
    """The further resources of a row in `loads` that can be read."""
    return resources.read_loads(row_text.partition(";")[2].partition(";")[2])


def node(entry: Sequence[Any]) -> Node:
    """One node of read_nodes."""
    with understood(f"node {text(entry[0])}"):
        return _node(entry)


def _node(entry: Sequence[Any]) -> Node:
    node_id, flat, status, reason, cpu_pressure, memory_pressure, cpu, memory, count, further = entry
    found = pairs(flat)
    last_seen = found.get("last_seen_ms")
    return Node(
        node_id=text(node_id),
        endpoint=text(found.get("endpoint")),
        discovery=DiscoveryState(text(found.get("discovery")) or "active"),
        status=NodeStatus(text(status)),
        last_seen_ms=int(last_seen) if last_seen else None,
        generation=number(found.get("generation")),
        cluster_id=text(found.get("cluster_id")),
        service_instance_id=text(found.get("service_instance_id")),
        version=text(found.get("version")),
        commit=text(found.get("commit")),
        snapshot=_snapshot(found) if last_seen else NodeSnapshot(),
        machine_info=_machine_info(found),
        p2p_endpoint=_p2p_endpoint(found),
        pending=PendingTotals(int(cpu), int(memory), int(count)),
        pressure=Pressure(fraction(cpu_pressure), fraction(memory_pressure)),
        cordoned_instance=text(found.get("cordoned")),
        eligible=not reason,
        ineligible_reason=text(reason) or None,
        labels=labels.read(text(found.get("labels"))),
        resources=resources.read_loads(text(further)),
        api_labels=labels.read(text(found.get("labels_api"))),
    )


def _snapshot(found: Mapping[str, bytes]) -> NodeSnapshot:
    figures = {name: number(found.get(name)) for name in FIGURES}
    # A node that does not say when it sampled them did so when its report arrived, as far as anybody knows.
    figures["reported_at_unix_ms"] = figures["reported_at_unix_ms"] or number(found.get("last_seen_ms"))
    disks = msgpack.unpackb(found["disks"]) if found.get("disks") else ()
    return NodeSnapshot(
        status=NodeStatus(text(found.get("told_status") or found.get("status")) or "connecting"),
        disks=tuple(DiskMetric(**disk) for disk in disks),
        **figures,
    )


def _machine_info(found: Mapping[str, bytes]) -> MachineInfo | None:
    if not found.get("machine_info"):
        return None
    return MachineInfo(**msgpack.unpackb(found["machine_info"]), cpu_config_json=text(found.get("cpu_config_json")))


def _p2p_endpoint(found: Mapping[str, bytes]) -> P2pEndpoint | None:
    backend, address = text(found.get("p2p_backend")), text(found.get("p2p_address"))
    return P2pEndpoint(backend, address) if backend or address else None
