"""From traces as their owners publish them to the form that `replay` reads.

    cluster-trace-gpu-v2023/csv/openb_node_list_all_node.csv    → nodes.csv, nodes_small.csv
    cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv      → requests.csv
    cluster-trace-v2026-GenAI/lora_request_trace.csv            → requests_keyed.csv

All of them are in https://github.com/alibaba/clusterdata. Nothing is drawn at random and nothing left out: everybody
makes the same files.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from scheduler.errors import ConfigurationError
from scheduler.lab.trace import NODE_COLUMNS, REQUEST_COLUMNS

GPU_NODES = Path("cluster-trace-gpu-v2023/csv/openb_node_list_all_node.csv")
GPU_PODS = Path("cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv")
GENAI_REQUESTS = Path("cluster-trace-v2026-GenAI/lora_request_trace.csv")

# Shapes of machine in about the proportion that the 1,523 have, and so few that the pods ask for 80 % of their CPUs at
# the peak.
SMALL_FLEET = frozenset(f"openb-node-{number:04}" for number in (0, 173, 174, 175, 176, 177, 228, 231, 244, 251, 259))
# What the requests for pictures do not tell: every one of them is taken for a sandbox of this size.
GENAI_CPU_COUNT, GENAI_MEMORY_MB = 2, 1024
LEAST_MEMORY_MB = 128

Row = Mapping[str, str]
Cells = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Made:
    """How one file is made from another."""

    file: str
    source: Path
    columns: Sequence[str]
    rows: Callable[[Iterable[Row]], Iterable[Cells]]


def normalise(clusterdata: Path, folder: Path) -> list[tuple[Path, int]]:
    """Make every file in `folder`, from a checkout of alibaba/clusterdata. Returns each with its number of rows.

    ConfigurationError, with nothing written, names a published file that is missing or of another form."""
    written = {made.file: list(_rows_of(made, clusterdata)) for made in _FILES}
    folder.mkdir(parents=True, exist_ok=True)
    for made in _FILES:
        with (folder / made.file).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([made.columns, *written[made.file]])
    return [(folder / name, len(rows)) for name, rows in written.items()]


def _rows_of(made: _Made, clusterdata: Path) -> Iterator[Cells]:
    source = clusterdata / made.source
    try:
        with source.open(encoding="utf-8", newline="") as lines:
            yield from made.rows(csv.DictReader(lines))
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no file {source}; it is part of https://github.com/alibaba/clusterdata"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{source} cannot be read: {error.strerror or error}") from error
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{source} has another form than the one that was published: {error!r}") from error


def _nodes(rows: Iterable[Row]) -> Iterator[Cells]:
    for row in rows:
        yield row["sn"], int(row["cpu_milli"]) // 1000, int(row["memory_mib"])


def _small_fleet(rows: Iterable[Row]) -> list[Cells]:
    chosen = [cells for cells in _nodes(rows) if cells[0] in SMALL_FLEET]
    return sorted(chosen, key=lambda cells: (int(cells[1]), cells[0]))


def _pods(rows: Iterable[Row]) -> list[Cells]:
    """Pods of one shape and class of service have one key: the trace names no images. A pod lives from when it was
    scheduled, or from its creation when it never was, until its deletion; part of a CPU is a whole one. One pod asks
    for no memory at all, and is given the least that a node of AgentENV starts a sandbox with."""
    requests = [(int(row["creation_time"]), *_pod(row)) for row in rows]
    return sorted(requests, key=lambda cells: int(cells[0]))


def _pod(row: Row) -> Cells:
    began = int(float(row["scheduled_time"] or row["creation_time"]))
    milli, memory = row["cpu_milli"], row["memory_mib"]
    key = f"shape-c{milli}-m{memory}-g{row['num_gpu']}x{row['gpu_milli']}-{row['qos']}"
    return int(row["deletion_time"]) - began, -(-int(milli) // 1000), max(int(memory), LEAST_MEMORY_MB), key


def _genai(rows: Iterable[Row]) -> Iterator[Cells]:
    """The key is the model; a request lives as long as it was worked on."""
    first: datetime | None = None
    for row in rows:
        created = datetime.fromisoformat(row["gmt_create"])
        first = first or created
        key = row["checkpoint_model_version_id"] or "none"
        duration = f"{float(row['exec_time_seconds']):g}"
        yield int((created - first).total_seconds()), duration, GENAI_CPU_COUNT, GENAI_MEMORY_MB, key


_FILES = (
    _Made("nodes.csv", GPU_NODES, NODE_COLUMNS, _nodes),
    _Made("nodes_small.csv", GPU_NODES, NODE_COLUMNS, _small_fleet),
    _Made("requests.csv", GPU_PODS, REQUEST_COLUMNS, _pods),
    _Made("requests_keyed.csv", GENAI_REQUESTS, REQUEST_COLUMNS, _genai),
)
