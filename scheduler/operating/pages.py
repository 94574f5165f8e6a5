"""One thing at length, for people: a node, a reservation, the settings, the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from scheduler.domain.wording import counted
from scheduler.operating.lists import cpu_capacity, memory_capacity, state_word
from scheduler.operating.source import Row
from scheduler.operating.words import (
    NONE,
    age,
    amounts,
    instant,
    label_list,
    resource_amount,
    size,
)


def node_page(node: Row, now_ms: int) -> Iterator[str]:
    snapshot, pending = node["snapshot"], node["pending"]
    reason = state_word(node, node["ineligible_reason"] or "")
    chosen = "may be chosen" if node["eligible"] else f"not chosen: {reason}"
    yield f"node {node['node_id']}: {state_word(node, node['status'])}, {chosen}"
    discovery = "draining" if node["discovery"] == "lingering" else node["discovery"]
    yield f"  endpoint     {node['endpoint']}, {discovery} in discovery"
    if node["cordoned"]:
        yield f"  cordoned     while instance {node['service_instance_id']} reports, or until `nodes uncordon`"
    if node["labels"]:
        yield f"  labels       {label_list(node['labels'])}"
    if node["last_seen_ms"] is None:
        yield "  report       none yet"
    else:
        since = age(max(0, now_ms - node["last_seen_ms"]))
        yield (
            f"  report       {since} ago ({instant(node['last_seen_ms'])}), generation {node['generation']}, "
            f"instance {node['service_instance_id']}"
        )
    yield (
        f"  reported     {snapshot['sandbox_count']} running, {snapshot['sandbox_starting_count']} starting, "
        f"{snapshot['paused_sandbox_count']} paused"
    )
    cpus = (snapshot["allocated_cpu"], snapshot["paused_allocated_cpu"], pending["cpu_count"])
    yield _dimension("CPUs", cpus, cpu_capacity(node), snapshot["cpu_count"])
    memory = (snapshot["allocated_memory_bytes"], snapshot["paused_allocated_memory_bytes"], pending["memory_bytes"])
    yield _dimension("memory", memory, memory_capacity(node), snapshot["memory_total_bytes"])
    for name, load in sorted(node["resources"].items()):
        yield _further(name, load)
    highest = node["pressure"]["highest"]
    yield f"  pressure     {NONE if highest is None else f'{highest:.4f}'}"


def _dimension(name: str, parts: tuple[int, int, int], capacity: int | None, advertised: int) -> str:
    """`parts` are active, paused and pending; what the node advertises is told where overcommit makes it another."""

    def shown(amount: int) -> str:
        return f"{amount:,}" if name == "CPUs" else size(amount)

    active, paused, pending = parts
    load = sum(parts)
    total = f"{shown(active)} active + {shown(paused)} paused + {shown(pending)} pending = {shown(load)}"
    if capacity is None:
        return f"  {name:<12} {total}, capacity not known"
    left = f"{shown(capacity - load)} left" if load < capacity else "full"
    also = "" if advertised == capacity else f" (advertised {shown(advertised)})"
    return f"  {name:<12} {total} of {shown(capacity)}{also}, {left}"


def _further(name: str, load: Mapping[str, int]) -> str:
    """A resource beside CPUs and memory; a total of -1 is not known."""

    def shown(amount: int) -> str:
        return resource_amount(name, amount)

    taken, total = load["allocated"] + load["pending"], load["total"]
    told = f"  {name:<12} {shown(load['allocated'])} allocated + {shown(load['pending'])} pending = {shown(taken)}"
    if total < 0:
        return f"{told}, capacity not known"
    return f"{told} of {shown(total)}, {shown(total - taken) + ' left' if taken < total else 'full'}"


def reservation_page(reservation: Row, now_ms: int) -> Iterator[str]:
    """What the HTTP API tells of it; `inspect reservations show` has the whole story."""
    cpus = counted(reservation["cpu_count"], "CPU") if reservation["cpu_count"] else "? CPUs"
    memory = size(reservation["memory_bytes"]) if reservation["memory_bytes"] else "memory not stated"
    yield f"reservation {reservation['reservation_id']}: {reservation['state']}"
    asked = [cpus, memory, *amounts(reservation["resources"])]
    yield f"  asked for    {', '.join(asked)}, lifecycle {reservation['lifecycle']}"
    yield f"  {instant(reservation['created_at_ms'])}  placed on node {reservation['node_id']}"
    if reservation["confirmed_at_ms"] is not None:
        yield f"  {instant(reservation['confirmed_at_ms'])}  confirmed: sandbox {reservation['sandbox_id']} came of it"
    if reservation["finished_at_ms"] is not None:
        why = f" ({reservation['reason']})" if reservation["reason"] else ""
        yield f"  {instant(reservation['finished_at_ms'])}  {reservation['state']}{why}"
    else:
        expires_at_ms = reservation["expires_at_ms"]
        yield f"  {instant(expires_at_ms)}  its deadline, in {age(expires_at_ms - now_ms)}"


def settings_page(settings: Row) -> Iterator[str]:
    """`name = value`, nested ones by their path, and where each comes from that is not the default; at the end what the
    replica that answered is configured with otherwise."""
    yield f"revision {settings['revision']}, epoch {settings['epoch']}"
    replica = settings.get("replica") or {"settings": {}, "sources": {}}
    in_force, sources = dict(_leaves(settings["settings"])), dict(_leaves(settings["sources"]))
    own, own_sources = dict(_leaves(replica["settings"])), dict(_leaves(replica["sources"]))
    for path, value in in_force.items():
        source = sources[path]
        if source != "default" and path in own and own[path] == value:
            source = own_sources[path]
        yield _setting(path, value, source)
    differing = [path for path, value in own.items() if path in in_force and in_force[path] != value]
    if differing:
        yield f"replica {replica['replica_id']} is configured otherwise:"
        yield from (_setting(path, own[path], own_sources[path]) for path in differing)


def _setting(path: str, value: Any, source: str) -> str:
    shown = NONE if value is None else str(value).lower() if isinstance(value, bool) else value
    return f"  {path} = {shown}" + (f"  ({source})" if source != "default" else "")


def _leaves(members: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested members by their path."""
    for name, value in members.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def summary_page(summary: Row) -> Iterator[str]:
    replicas, by_status = summary["replicas"], summary["nodes"]
    words = {"lingering": "draining or cordoned"}
    told = ", ".join(f"{count:,} {words.get(status, status)}" for status, count in by_status.items() if count)
    revision = summary["settings_revision"]
    yield f"domain       {summary['domain']}, strategy {summary['strategy']}, settings of revision {revision}"
    yield f"replicas     {counted(len(replicas), 'replica')} alive: {', '.join(replicas) or NONE}"
    yield f"nodes        {counted(sum(by_status.values()), 'node')}" + (f": {told}" if told else "")
    yield f"CPUs         {_fullness(summary, 'cpu_count', '{:,}'.format)}"
    yield f"memory       {_fullness(summary, 'memory_bytes', size)}"
    for name in sorted(set(summary["capacity"]) - {"cpu_count", "memory_bytes"}):
        yield f"{name:<12} {_made_of(summary, name, partial(resource_amount, name))}"
    by_state = summary["reservations"]
    yield f"open         {counted(by_state.get('pending', 0) + by_state.get('confirmed', 0), 'reservation')}"
    yield f"rates        {_rates(summary['rates'])}"
    ledger = summary["ledger"]
    if ledger["rebuilding"]:
        yield "ledger       lost, and being rebuilt: what is missing may come back"
    if ledger.get("clock_skew_ms"):
        yield f"ledger       its time is {age(ledger['clock_skew_ms'])} ahead of the server's clock"


def _fullness(summary: Row, name: str, shown: Any) -> str:
    largest = max((most[name] or 0 for most in summary["largest_free"].values()), default=0)
    return f"{_made_of(summary, name, shown)}; largest free on one node {shown(largest)}"


def _made_of(summary: Row, name: str, shown: Any) -> str:
    capacity, allocated, reserved, free = (
        summary[part][name] for part in ("capacity", "allocated", "reserved", "free")
    )
    return f"{shown(allocated)} allocated + {shown(reserved)} reserved of {shown(capacity)}, {shown(free)} free"


def _rates(rates: Row) -> str:
    """The rates of the last minute."""
    refused = sum(rates["refused"].values())
    why = ", ".join(f"{reason} {rate:.2f}" for reason, rate in rates["refused"].items())
    return f"{rates['placed']:.2f} placed/s, {refused:.2f} refused/s" + (f": {why}" if why else "")
