"""Traces: which machines there are, and what is asked of them when.

Both are CSV files with a header line:

    nodes      node_id,cpu_count,memory_mb
    requests   arrival_s,duration_s,cpu,memory_mb,image_or_template     sorted by arrival

An empty `duration_s` (or `inf`) is a sandbox that never ends. The key in `image_or_template` is
what affinity works on; it may be empty. A broken line is a `ConfigurationError` that names file,
line, column and what would be allowed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from scheduler.domain.limits import (
    ID_BYTES_MAX,
    MEMORY_MB_MAX,
    SANDBOX_CPU_MAX,
    SANDBOX_MEMORY_MB_MAX,
    UINT32_MAX,
)
from scheduler.errors import ConfigurationError

BUNDLED = Path(__file__).parent / "data"
BUNDLED_NODES = BUNDLED / "nodes.csv"
BUNDLED_REQUESTS = BUNDLED / "requests.csv"

NODE_COLUMNS = ("node_id", "cpu_count", "memory_mb")
REQUEST_COLUMNS = ("arrival_s", "duration_s", "cpu", "memory_mb", "image_or_template")

Number = TypeVar("Number", int, float)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One machine; 0 CPUs or MiB means that it does not tell."""

    node_id: str
    cpu_count: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One sandbox to create. Times count from the start of the trace; `duration_ms` None: it never ends."""

    arrival_ms: int
    duration_ms: int | None
    cpu_count: int
    memory_mb: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    nodes: tuple[NodeSpec, ...]
    requests: tuple[TraceRequest, ...]

    def compressed(self, time_scale: float) -> Trace:
        """The same requests arriving `time_scale` times as fast, each lasting as long as before.

        That is how a light trace is made to bite: the load rises in proportion.
        """
        if not (math.isfinite(time_scale) and time_scale > 0):
            raise ConfigurationError(f"time scale must be a number above 0, not {time_scale}")
        squeezed = (replace(each, arrival_ms=round(each.arrival_ms / time_scale)) for each in self.requests)
        return replace(self, requests=tuple(squeezed))


def read_trace(nodes_file: Path, requests_file: Path) -> Trace:
    return Trace(read_nodes(nodes_file), read_requests(requests_file))


def read_nodes(file: Path) -> tuple[NodeSpec, ...]:
    nodes = tuple(
        NodeSpec(
            node_id=row.identifier("node_id"),
            cpu_count=row.integer("cpu_count", UINT32_MAX),
            memory_mb=row.integer("memory_mb", MEMORY_MB_MAX),
        )
        for row in _rows(file, NODE_COLUMNS)
    )
    if len({node.node_id for node in nodes}) != len(nodes):
        raise ConfigurationError(f"{file}: a node_id appears twice")
    return _not_empty(nodes, file)


def read_requests(file: Path) -> tuple[TraceRequest, ...]:
    requests: list[TraceRequest] = []
    for row in _rows(file, REQUEST_COLUMNS):
        request = TraceRequest(
            arrival_ms=row.milliseconds("arrival_s"),
            duration_ms=row.milliseconds_or_never("duration_s"),
            cpu_count=row.integer("cpu", SANDBOX_CPU_MAX),
            memory_mb=row.integer("memory_mb", SANDBOX_MEMORY_MB_MAX),
            key=row.text("image_or_template"),
        )
        if requests and request.arrival_ms < requests[-1].arrival_ms:
            raise row.broken("arrival_s", "not before the line above it")
        requests.append(request)
    return _not_empty(tuple(requests), file)


@dataclass(frozen=True, slots=True)
class _Row:
    file: Path
    line: int
    cells: dict[str, str]

    def broken(self, column: str, allowed: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.file}, line {self.line}: {column} must be {allowed}, not {self.cells[column]!r}"
        )

    def text(self, column: str) -> str:
        return self.cells[column].strip()

    def identifier(self, column: str) -> str:
        value = self.text(column)
        if not value or len(value.encode()) > ID_BYTES_MAX:
            raise self.broken(column, f"1 to {ID_BYTES_MAX} bytes long")
        return value

    def integer(self, column: str, highest: int) -> int:
        return self._number(column, int, f"an integer from 0 to {highest}", highest)

    def milliseconds(self, column: str) -> int:
        return round(self._number(column, float, "seconds, 0 or more", math.inf) * 1000)

    def milliseconds_or_never(self, column: str) -> int | None:
        return None if self.text(column).lower() in ("", "inf") else self.milliseconds(column)

    def _number(self, column: str, parse: Callable[[str], Number], allowed: str, highest: float) -> Number:
        try:
            value = parse(self.text(column))
        except ValueError:
            raise self.broken(column, allowed) from None
        if not (0 <= value <= highest and math.isfinite(value)):
            raise self.broken(column, allowed)
        return value


def _rows(file: Path, columns: Sequence[str]) -> Iterator[_Row]:
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise ConfigurationError(f"{file}: the header lacks {', '.join(missing)}")
            for cells in reader:
                yield _Row(file, reader.line_num, {column: cells[column] or "" for column in columns})
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{file} cannot be read as a trace: {reason}") from error


def _not_empty(items: tuple[Item, ...], file: Path) -> tuple[Item, ...]:
    if not items:
        raise ConfigurationError(f"{file}: there is nothing in it")
    return items
