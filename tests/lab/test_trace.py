"""Traces are read whole or refused with file, line and column."""

from __future__ import annotations

import gzip
import io
import sys
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
from scheduler.lab.trace_file import FAULTS_SHOWN_MAX

NODES = "node_id,cpu_count,memory_mb\n"
REQUESTS = "arrival_s,duration_s,cpu,memory_mb,image_or_template\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_nodes_and_requests_are_read_with_their_units(tmp_path: Path) -> None:
    assert read_nodes(written(tmp_path, NODES + "a,16,32768\n")) == (NodeSpec("a", 16, 32768),)
    assert read_requests(written(tmp_path, REQUESTS + "0.5,2,1,512,app:1\n7,,0,0,\n8,inf,2,64,b\n")) == (
        TraceRequest(0, 2000, 1, 512, "app:1"),
        TraceRequest(6500, None, 0, 0, ""),
        TraceRequest(7500, None, 2, 64, "b"),
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


@pytest.mark.parametrize(
    "arrivals",
    [
        ("arrival_s", "1731689870", "1731689872.5"),
        ("arrival_ms", "1731689870000", "1731689872500"),
        ("arrival_s", "2024-11-15 16:57:50", "2024-11-15 16:57:52.5"),
        ("arrival_s", "2024-11-15T16:57:50.0000000Z", "2024-11-15T18:57:52.5+02:00"),
    ],
    ids=["unix seconds", "unix milliseconds", "dates", "dates with zones"],
)
def test_times_count_from_the_first_arrival(tmp_path: Path, arrivals: tuple[str, str, str]) -> None:
    column, first, second = arrivals
    lines = [f"{column},duration_ms,cpu,memory_mb,image_or_template", f"{first},10,1,1,k", f"{second},,1,1,k"]
    requests = read_requests(written(tmp_path, "\n".join(lines)))
    assert [(each.arrival_ms, each.duration_ms) for each in requests] == [(0, 10), (2500, None)]


@pytest.mark.parametrize(
    ("column", "arrival", "named"),
    [
        ("arrival_s", "1731689870000", "looks like milliseconds since 1970: name the column arrival_ms"),
        ("arrival_s", "1731689870000000", "looks like microseconds or less"),
        ("arrival_ms", "1731689870000000", "arrival_ms looks like microseconds or less"),
    ],
)
def test_a_unit_that_is_not_the_columns_is_refused_once(tmp_path: Path, column: str, arrival: str, named: str) -> None:
    header = f"{column},duration_s,cpu,memory_mb,image_or_template\n"
    with pytest.raises(ConfigurationError, match="line 2") as refused:
        read_requests(written(tmp_path, header + f"{arrival},1,1,1,k\n" * 5))
    assert named in refused.value.detail
    assert "faults" not in refused.value.detail


PLAIN = "Node_ID,CPU Count,memory_mb\n a , 16 , 32768\n\nb,8.0,1\n"


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", ",,\n").replace("\n\n", "\n , \n").encode(),
        b"\n" + PLAIN.replace("a ", '"a"').encode(),
        gzip.compress(PLAIN.encode()),
    ],
    ids=["plain", "byte order mark", "semicolons", "tabs", "empty cells too many", "quotes", "gzip"],
)
def test_a_table_is_read_as_people_have_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "nodes"
    file.write_bytes(content)
    assert read_nodes(file) == (NodeSpec("a", 16, 32768), NodeSpec("b", 8, 1))


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((NODES + "a,1,1\n,1,1\n").encode())))
    with pytest.raises(ConfigurationError, match="standard input, line 3: node_id"):
        read_nodes(Path("-"))
    with pytest.raises(ConfigurationError, match="only one"):
        read_trace(Path("-"), Path("-"))


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    nodes, requests = tmp_path / "nodes.csv", tmp_path / "requests.csv"
    nodes.write_text(NODES + "a,1,1,\na,x,1\nb\x01,1,1\n", encoding="utf-8")
    requests.write_text(REQUESTS + "0,1,1,1,k,extra\nsoon,1,1,1,k\n3,1;5,1,1,k\n2,1,1,-1,k\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        read_trace(nodes, requests)
    assert refused.value.detail.splitlines() == [
        f"{nodes}: 3 faults",
        "  - line 3: cpu_count must be an integer from 0 to 4294967295, not 'x'",
        "  - line 3: node_id 'a' appears twice",
        "  - line 4: node_id must be 1 to 255 bytes of text without control characters, not 'b\\x01'",
        f"{requests}: 5 faults",
        "  - line 2: 6 cells, but the header names 5 columns",
        "  - line 3: arrival_s must be seconds, 0 or more, not 'soon'",
        "  - line 4: duration_s must be seconds, 0 or more, not '1;5'",
        "  - line 5: memory_mb must be an integer from 0 to 16777216, not '-1'",
        "  - line 5: arrival_s must be not before the line above it (sort the file by it), not '2'",
    ]


def test_of_many_faults_the_first_are_told_and_the_others_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="1,000 faults") as refused:
        read_nodes(written(tmp_path, NODES + "".join(f"n{number},x,1\n" for number in range(1000))))
    assert len(refused.value.detail.splitlines()) == FAULTS_SHOWN_MAX + 2
    assert refused.value.detail.endswith("  - and 980 more")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"node_id;cpu_count;memory_mb\na;1,5;1\n", "with a point and not a comma"),
        (b"node,cpus,memory_mb\n", "it holds 'node, cpus, memory_mb', perhaps node_id is what is called node"),
        (b"a,1,1\n", "the first line must name the columns"),
        (b"node_id,cpu_count,memory_mb,CPU_COUNT\n", "names cpu_count twice"),
        (NODES.encode("utf-16"), "it is UTF-16"),
        (NODES.encode() + b"a,1,1\n\xe9,1,1\n", "line 3"),
        (NODES.encode() + b'"a,1,1\n', "cannot be read as CSV"),
        (b"\x1f\x8bno", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_with_how_to_mend_it(tmp_path: Path, content: bytes, named: str) -> None:
    file = tmp_path / "nodes.csv"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        read_nodes(file)
    assert named in refused.value.detail


def test_requests_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="arrival_s must be not before the line above it"):
        read_requests(written(tmp_path, REQUESTS + "5,1,1,1,k\n4,1,1,1,k\n"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (NODES + "a,1,1\na,2,2\n", "appears twice"),
        (NODES + ",1,1\n", "node_id must be 1 to 255 bytes of text"),
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
