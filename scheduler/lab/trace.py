"""Traces: which machines there are, and what is asked of them when.

Both are tables with a header line, read by `trace_file`:

    nodes      node_id,cpu_count,memory_mb
    requests   arrival_s,duration_s,cpu,memory_mb,image_or_template     sorted by arrival

Times count from the first arrival, so Unix timestamps and dates do as well as seconds of a run; `arrival_ms` and
`duration_ms` are the same in milliseconds. An empty duration (or `inf`) is a sandbox that never ends. The key in
`image_or_template` is what affinity works on; it may be empty. Further
columns are read by `trace_terms`. `ConfigurationError` tells everything that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from scheduler.domain.limits import (
    MEMORY_MB_MAX,
    SANDBOX_CPU_MAX,
    SANDBOX_MEMORY_MB_MAX,
    UINT32_MAX,
)
from scheduler.domain.placement import Spread
from scheduler.domain.resources import DISK, RESOURCES_MAX
from scheduler.errors import ConfigurationError
from scheduler.lab import trace_terms
from scheduler.lab.trace_file import STANDARD_INPUT, Row, TraceFile

BUNDLED = Path(__file__).parent / "data"
BUNDLED_NODES = BUNDLED / "nodes.csv"
BUNDLED_REQUESTS = BUNDLED / "requests.csv"

NODE_COLUMNS = ("node_id", "cpu_count", "memory_mb")
REQUEST_COLUMNS = ("arrival_s", "duration_s", "cpu", "memory_mb", "image_or_template")
_IN_MILLISECONDS = {"arrival_s": "arrival_ms", "duration_s": "duration_ms"}
_NO_TIMESTAMP_MS = 10**14

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One machine; 0 CPUs or MiB means that it does not tell."""

    node_id: str
    cpu_count: int
    memory_mb: int
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One sandbox to create. Times count from the first arrival; `duration_ms` None: it never ends."""

    arrival_ms: int
    duration_ms: int | None
    cpu_count: int
    memory_mb: int
    key: str = ""
    require: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """`unread`: columns of the files that say nothing to a replay, each with its file."""

    nodes: tuple[NodeSpec, ...]
    requests: tuple[TraceRequest, ...]
    unread: tuple[str, ...] = ()

    @property
    def resource_names(self) -> tuple[str, ...]:
        """What the setting `resources` must list for this trace."""
        told = [each.resources for each in self.nodes] + [each.resources for each in self.requests]
        return tuple(sorted({name for amounts in told for name in amounts} - {DISK}))

    def compressed(self, time_scale: float) -> Trace:
        """The same requests arriving `time_scale` times as fast, each lasting as long as before.

        That is how a light trace is made to bite: the load rises in proportion.
        """
        if not (math.isfinite(time_scale) and time_scale > 0):
            raise ConfigurationError(f"time scale must be a number above 0, not {time_scale}")
        squeezed = (replace(each, arrival_ms=round(each.arrival_ms / time_scale)) for each in self.requests)
        return replace(self, requests=tuple(squeezed))


def read_trace(nodes_file: Path, requests_file: Path) -> Trace:
    """The faults of both files are told together."""
    if nodes_file == requests_file == STANDARD_INPUT:
        raise ConfigurationError("only one of nodes and requests can come from standard input")
    nodes: tuple[NodeSpec, ...] = ()
    requests: tuple[TraceRequest, ...] = ()
    node_table, request_table = TraceFile(nodes_file), TraceFile(requests_file)
    problems = []
    try:
        nodes = _nodes_of(node_table)
    except ConfigurationError as error:
        problems.append(error.detail)
    try:
        requests = _requests_of(request_table)
    except ConfigurationError as error:
        problems.append(error.detail)
    if problems:
        raise ConfigurationError("\n".join(problems))
    unread = (
        f"{table.name}: {', '.join(table.unread)}; known are {', '.join(known)}"
        for table, known in (
            (node_table, (*NODE_COLUMNS, *trace_terms.NODE_TERMS)),
            (request_table, (*REQUEST_COLUMNS, *trace_terms.REQUEST_TERMS)),
        )
        if table.unread
    )
    trace = Trace(nodes, requests, tuple(unread))
    if len(trace.resource_names) > RESOURCES_MAX:
        raise ConfigurationError(
            f"at most {RESOURCES_MAX} resources beside disk, not {', '.join(trace.resource_names)}"
        )
    return trace


def read_nodes(file: Path) -> tuple[NodeSpec, ...]:
    return _nodes_of(TraceFile(file))


def read_requests(file: Path) -> tuple[TraceRequest, ...]:
    return _requests_of(TraceFile(file))


def _nodes_of(table: TraceFile) -> tuple[NodeSpec, ...]:
    nodes: dict[str, NodeSpec] = {}
    for row in table.rows(NODE_COLUMNS, may=trace_terms.NODE_TERMS):
        node = NodeSpec(
            node_id=row.identifier("node_id"),
            cpu_count=row.integer("cpu_count", UINT32_MAX),
            memory_mb=row.integer("memory_mb", MEMORY_MB_MAX),
            labels=trace_terms.labels(row),
            resources=trace_terms.resources(row),
        )
        if node.node_id and node.node_id in nodes:
            table.fault(f"line {row.line}: node_id {node.node_id!r} appears twice")
        nodes[node.node_id] = node
    return _whole(table, tuple(nodes.values()))


def _requests_of(table: TraceFile) -> tuple[TraceRequest, ...]:
    requests: list[TraceRequest] = []
    first_ms: int | None = None
    for row in table.rows(REQUEST_COLUMNS, _IN_MILLISECONDS, trace_terms.REQUEST_TERMS):
        told_ms = row.milliseconds("arrival_s", "arrival_ms")
        if first_ms is None and told_ms is not None:
            first_ms = told_ms
            _look_at_the_unit(table, row, told_ms)
        request = TraceRequest(
            arrival_ms=(told_ms or 0) - (first_ms or 0),
            duration_ms=_duration_ms(row),
            cpu_count=row.integer("cpu", SANDBOX_CPU_MAX),
            memory_mb=row.integer("memory_mb", SANDBOX_MEMORY_MB_MAX),
            key=row.text("image_or_template"),
            require=trace_terms.require(row),
            resources=trace_terms.resources(row),
            spread=trace_terms.spread(row),
        )
        if told_ms is not None and requests and request.arrival_ms < requests[-1].arrival_ms:
            row.broken(_arrival_of(row), "not before the line above it (sort the file by it)")
        requests.append(request)
    return _whole(table, tuple(requests))


def _duration_ms(row: Row) -> int | None:
    told = row.cells.get("duration_s", row.cells.get("duration_ms", ""))
    return None if told.lower() in ("", "inf") else row.milliseconds("duration_s", "duration_ms")


def _arrival_of(row: Row) -> str:
    return "arrival_s" if "arrival_s" in row.cells else "arrival_ms"


def _look_at_the_unit(table: TraceFile, row: Row, arrival_ms: int) -> None:
    """A first arrival that would be thousands of years after 1970 is told in another unit."""
    if arrival_ms < _NO_TIMESTAMP_MS:
        return
    column = _arrival_of(row)
    if column == "arrival_s":
        unit, remedy = (
            "milliseconds",
            "name the column arrival_ms, and duration_ms if durations are in ms too",
        )
        if arrival_ms >= _NO_TIMESTAMP_MS * 1000:
            unit, remedy = "microseconds or less", "divide it so that it is seconds or, as arrival_ms, milliseconds"
    else:
        unit, remedy = "microseconds or less", "divide it so that it is milliseconds"
    table.fault(f"line {row.line}: {column} looks like {unit} since 1970: {remedy}")


def _whole(table: TraceFile, items: tuple[Item, ...]) -> tuple[Item, ...]:
    table.finish()
    if not items:
        raise ConfigurationError(f"{table.name}: there is nothing in it")
    return items
