"""The lab's commands: what they print, for people and for programs, and how they say no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from scheduler.errors import ConfigurationError
from scheduler.lab.cli import register
from scheduler.lab.demo import BURST
from scheduler.lab.server import find_server_binary

NODES = "node_id,cpu_count,memory_mb\na,4,8192\nb,8,16384\n"
REQUESTS = "arrival_s,duration_s,cpu,memory_mb,image_or_template\n" + "".join(
    f"{second},,2,1024,app:{second % 3}\n" for second in range(10)
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES, encoding="utf-8")
    (tmp_path / "requests.csv").write_text(REQUESTS, encoding="utf-8")
    return ["--nodes", str(tmp_path / "nodes.csv"), "--requests", str(tmp_path / "requests.csv")]


def run(*arguments: str) -> Result:
    app = typer.Typer(rich_markup_mode=None)
    register(app)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def replayed(*arguments: str) -> list[dict[str, Any]]:
    result = run("replay", "--redis-addr", "embedded", "--json", *arguments)
    assert result.exit_code == 0, result.output
    strategies: list[dict[str, Any]] = json.loads(result.stdout)["strategies"]
    return strategies


def test_replay_tells_programs_what_became_of_every_request(files: list[str]) -> None:
    by_turn, by_load = replayed(*files, "--strategy", "round_robin,least_loaded")
    assert (by_turn["strategy"], by_load["strategy"]) == ("round_robin", "least_loaded")
    assert (by_turn["placed"], by_turn["refused"], by_turn["peak_pressure"]) == (10, {}, 2.5)
    assert (by_load["placed"], by_load["refused"], by_load["peak_pressure"]) == (6, {"insufficient_cpu": 4}, 1.0)
    for result in (by_turn, by_load):
        assert {"p99_pressure", "imbalance", "hit_rate", "over_time"} <= set(result)
        assert result["over_time"][0]["at_s"] == 0


def test_options_reach_the_ledger(files: list[str]) -> None:
    (unlimited,) = replayed(*files, "--strategy", "least_loaded", "--overcommit-cpu", "unlimited")
    assert unlimited["placed"] == 10
    (half,) = replayed(*files, "--strategy", "least_loaded", "--overcommit-cpu", "0.5")
    assert half["placed"] == 3
    (always,) = replayed(*files, "--strategy", "round_robin", "--admission", "always")
    assert always["placed"] == 6
    grouped = replayed(*files, "--strategy", "grouped_round_robin", "--group-placement", "round_robin,least_loaded")
    assert [result["group_placement"] for result in grouped] == ["round_robin", "least_loaded"]


def test_replay_tells_what_the_trace_asks_for_at_its_peak(files: list[str]) -> None:
    result = run("replay", "--redis-addr", "embedded", "--json", "--strategy", "random", *files)
    assert json.loads(result.stdout)["demand"] == {
        "peak_cpu_count": 20,
        "fleet_cpu_count": 12,
        "peak_memory_mb": 10_240,
        "fleet_memory_mb": 24_576,
    }


def test_replay_prints_a_table_for_people(files: list[str]) -> None:
    result = run("replay", "--redis-addr", "embedded", "--strategy", "least_loaded", *files)
    assert result.exit_code == 0
    assert "10 requests on 2 nodes" in result.stdout
    assert "4 (insufficient_cpu 4)" in result.stdout
    assert "At its peak the trace asks for 20 of 12 CPUs (167%) and 10 of 24 GiB (42%)." in result.stdout
    assert "That is more than the fleet has" in result.stdout
    assert "1.0000" in result.stdout


def test_replay_names_what_it_does_not_read_and_its_help_what_it_does(files: list[str], tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("node_id,cpu_count,memory_mb,label,labels\na,64,8192,x,zone=east\n", encoding="utf-8")
    result = run("replay", "--redis-addr", "embedded", "--strategy", "random", "--scarce", "zone,gpu", *files)
    assert result.exit_code == 0
    assert (
        f"columns that are not read, of {nodes}: label; known are node_id, cpu_count, memory_mb, labels"
        in result.stderr
    )
    assert "--scarce: no node has gpu\n" in result.stderr
    nodes.write_text("node_id,cpu_count,memory_mb,labels\na,64,8192,east\n", encoding="utf-8")
    result = run("replay", "--redis-addr", "embedded", *files)
    assert "line 2: labels must be at most 16 of name=value, a space apart" in str(result.exception)
    told = " ".join(run("replay", "--help").stdout.split())
    for column in ("labels (zone=east gpu_model=h100)", "resources (gpu=8 disk=4000)", "require (zone=east+west)"):
        assert column in told


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_replay_draws_a_picture(files: list[str], tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="drawing is an extra")
    picture = tmp_path / f"picture{suffix}"
    assert replayed(*files, "--strategy", "round_robin,least_loaded", "--plot", str(picture))
    drawn = picture.read_bytes()
    assert drawn.startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategy", "best"), "--strategy must be one of round_robin, random"),
        (("--report-interval", "5"), "--report-interval must be a duration"),
        (("--overcommit-cpu", "-1"), "--overcommit-cpu must be a number above 0"),
        (("--group-placement", "best"), "--group-placement must be one of"),
        (("--time-scale", "0"), "time scale must be a number above 0"),
        (("--plot", "picture.gif"), r"--plot must name a \.png or \.svg file"),
        (("--plot", "absent/picture.png"), "there is no directory"),
        (("--nodes", "absent.csv"), r"^there is no file absent\.csv$"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(arguments: tuple[str, ...], message: str) -> None:
    result = run("replay", *arguments)
    assert isinstance(result.exception, ConfigurationError)
    with pytest.raises(ConfigurationError, match=message):
        raise result.exception


SMALL_FLEET = ("--nodes", "2", "--redis-addr", "embedded")


def test_lifecycle_tells_the_figures_of_every_ending() -> None:
    result = run("lifecycle", "--duration", "20s", "--forks", "0.1", "--restarts", "1", *SMALL_FLEET, "--json")
    assert result.exit_code == 0, result.output
    lifecycles = json.loads(result.stdout)["lifecycles"]
    assert [each["ending"] for each in lifecycles] == ["explicit", "named", "both", "events", "counters"]
    assert {"held_though_free", "given_twice", "over_by_forks", "refused_by_holding"} <= set(lifecycles[0])
    assert [each["placeable"] for each in lifecycles] == [None] * 5


def test_lifecycle_of_a_burst_tells_how_many_were_placed_of_how_many() -> None:
    burst = ("lifecycle", "--story", "burst", "--ending", "explicit", *SMALL_FLEET)
    result = run(*burst, "--json")
    assert result.exit_code == 0, result.output
    (told,) = json.loads(result.stdout)["lifecycles"]
    assert (told["story"], told["placeable"], told["given_twice"]) == ("burst", 6, 0)
    table = run(*burst)
    assert f"{told['placed']} of 6" in table.stdout
    assert "held though free" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--story", "quiet"), "--story must be one of full, burst"),
        (("--ending", "silent"), "--ending must be one of explicit"),
        (("--boot-time", "20s-2s"), "--boot-time must be a duration, or two with the shorter one first"),
        (("--report-interval", "often"), "--report-interval must be a duration"),
        (("--replicas", "2", "--redis-addr", "embedded"), "several replicas need a Redis server"),
    ],
)
def test_a_lifecycle_that_cannot_be_is_refused_before_anything_runs(arguments: tuple[str, ...], message: str) -> None:
    result = run("lifecycle", *arguments)
    assert isinstance(result.exception, ConfigurationError)
    with pytest.raises(ConfigurationError, match=message):
        raise result.exception


def test_bench_schedule_prints_the_contracts_shape() -> None:
    if find_server_binary() is None:
        pytest.skip("no Redis server on this machine")
    small = ("--nodes", "20,30", "--shapes", "1,2", "--rounds", "1", "--calls", "20")
    result = run("bench", "schedule", *small, "--json")
    assert result.exit_code == 0, result.output
    results = json.loads(result.stdout)["results"]
    assert [(each["nodes"], each["shapes"]) for each in results] == [(20, 1), (20, 2), (30, 1), (30, 2)]
    assert all({"script_us", "noop_us", "ratio", "round_trip_us", "bytes_per_node"} <= set(each) for each in results)
    table = run("bench", "schedule", "--nodes", "20", "--shapes", "1", "--rounds", "1", "--calls", "20")
    assert "bytes per node" in table.stdout
    assert "refused, all" in table.stdout  # the heading goes on in the next line


@pytest.mark.slow
def test_the_demo_shows_every_strategy_cancels_drains_and_says_what_to_try_next() -> None:
    result = run("demo")
    assert result.exit_code == 0, result.output
    for shown in ("random", "round_robin", "grouped_round_robin", "least_loaded"):
        assert f"{shown}: {BURST} of {BURST}" in result.stdout
    assert "cancelled" in result.stdout
    assert "is drained" in result.stdout
    assert "Try next" in result.stdout
