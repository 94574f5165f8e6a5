"""Traces are read whole or refused with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.errors import ConfigurationError
from scheduler.lab.trace import (
    BUNDLED_NODES,
    BUNDLED_REQUESTS,
    NodeSpec,
    Trace,
    TraceRequest,
    read_nodes,
    read_requests,
    read_trace,
)

NODES = "node_id,cpu_count,memory_mb\n"
REQUESTS = "arrival_s,duration_s,cpu,memory_mb,image_or_template\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_nodes_and_requests_are_read_with_their_units(tmp_path: Path) -> None:
    assert read_nodes(written(tmp_path, NODES + "a,16,32768\n")) == (NodeSpec("a", 16, 32768),)
    assert read_requests(written(tmp_path, REQUESTS + "0.5,2,1,512,app:1\n7,,0,0,\n8,inf,2,64,b\n")) == (
        TraceRequest(500, 2000, 1, 512, "app:1"),
        TraceRequest(7000, None, 0, 0, ""),
        TraceRequest(8000, None, 2, 64, "b"),
    )


def test_extra_columns_and_another_order_do_not_matter(tmp_path: Path) -> None:
    file = written(tmp_path, "zone,memory_mb,cpu_count,node_id\nx,64,2,n\n")
    assert read_nodes(file) == (NodeSpec("n", 2, 64),)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("-1,2,1,1,k", "arrival_s must be seconds, 0 or more, not '-1'"),
        ("nan,2,1,1,k", "arrival_s"),
        ("0,soon,1,1,k", "duration_s"),
        ("0,1,2.5,1,k", "cpu must be an integer from 0 to 65536, not '2.5'"),
        ("0,1,4294967296,1,k", "cpu"),
        ("0,1,1,-5,k", "memory_mb"),
        ("0,1", "cpu"),
    ],
)
def test_a_broken_request_names_line_and_column(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_requests(written(tmp_path, REQUESTS + "0,1,1,1,fine\n" + line + "\n"))
    assert "line 3" in refused.value.detail
    assert named in refused.value.detail


def test_requests_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="arrival_s must be not before the line above it"):
        read_requests(written(tmp_path, REQUESTS + "5,1,1,1,k\n4,1,1,1,k\n"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (NODES + "a,1,1\na,2,2\n", "appears twice"),
        (NODES + ",1,1\n", "node_id must be 1 to 255 bytes long"),
        (NODES, "nothing in it"),
        ("node_id,cpu_count\na,1\n", "the header lacks memory_mb"),
        ("", "the header lacks"),
    ],
)
def test_a_broken_node_file_says_why(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        read_nodes(written(tmp_path, text))


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.csv"):
        read_nodes(tmp_path / "absent.csv")


def test_compressing_brings_arrivals_closer_and_leaves_durations_alone() -> None:
    trace = Trace((NodeSpec("a", 1, 1),), (TraceRequest(1000, 700, 1, 1), TraceRequest(3001, None, 1, 1)))
    assert [(each.arrival_ms, each.duration_ms) for each in trace.compressed(100).requests] == [(10, 700), (30, None)]


@pytest.mark.parametrize("time_scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_scale_that_is_no_positive_number_is_refused(time_scale: float) -> None:
    trace = Trace((NodeSpec("a", 1, 1),), (TraceRequest(0, 1, 1, 1),))
    with pytest.raises(ConfigurationError, match="time scale"):
        trace.compressed(time_scale)


def test_the_bundled_trace_is_whole() -> None:
    trace = read_trace(BUNDLED_NODES, BUNDLED_REQUESTS)
    assert len(trace.nodes) == 5
    assert len(trace.requests) == 600
    assert len({request.key for request in trace.requests}) == 23
