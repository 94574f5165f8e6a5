"""The command line from outside: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scheduler import __version__, cli
from scheduler.config import Configuration
from scheduler.config.keys import KEYS
from scheduler.errors import StoreUnavailable
from scheduler.store.scripts import ScriptLibrary


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS.values():
        for variable in key.environment:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("SCHEDULER_CONFIG", raising=False)


def run(*arguments: str) -> int:
    """The exit status of one command line, in this process."""
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    return raised.value.code if isinstance(raised.value.code, int) else 0


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Configuration]:
    """What `serve` would have run with."""
    configurations: list[Configuration] = []
    monkeypatch.setattr("scheduler.replica.run", configurations.append)
    return configurations


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        (["-config", "a.json"], ["serve", "--config", "a.json"]),
        (["--config", "a.json"], ["serve", "--config", "a.json"]),
        (["-config=a.json"], ["serve", "--config=a.json"]),
        (["-query-only", "-config", "a"], ["serve", "--query-only", "--config", "a"]),
        (["-query-only=true"], ["serve", "--query-only"]),
        (["-query-only=false"], ["serve", "--no-query-only"]),
        (["serve", "-config", "a"], ["serve", "--config", "a"]),
        (["config", "-config", "a"], ["config", "--config", "a"]),
        (["version"], ["version"]),
        ([], []),
    ],
)
def test_agentenvs_spellings_are_understood(written: Sequence[str], understood: Sequence[str]) -> None:
    assert cli.understand_agentenv(written) == understood


def test_agentenvs_arguments_serve_its_file(tmp_path: Path, served: list[Configuration]) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"scheduler": {"redis_addr": "redis:6379", "strategy": "random"}}')
    assert run("-config", str(file), "-query-only") == 0
    [configuration] = served
    assert configuration.settings.replica.query_only
    assert configuration.settings.store.redis_addr == "redis:6379"


def test_every_option_of_serve_reaches_its_key(served: list[Configuration]) -> None:
    switches = {
        "http.host": ["--host", "::1"],
        "http.port": ["--port", "0"],
        "grpc.port": ["--grpc-port", "1"],
        "grpc_listen_addr": ["--grpc-listen-addr", "127.0.0.2:9090"],
        "grpc.enabled": ["--no-grpc"],
        "metrics.port": ["--metrics-port", "2"],
        "metrics.enabled": ["--no-metrics-listener"],
        "redis_addr": ["--redis-addr", "host:6379"],
        "domain": ["--domain", "other"],
        "strategy": ["--strategy", "random"],
        "query_only": ["--query-only"],
        "http.insecure": ["--insecure"],
        "log_level": ["--log-level", "debug"],
        "log_format": ["--log-format", "json"],
    }
    assert {path for path, key in KEYS.items() if key.option} == switches.keys()
    run("serve", *(word for words in switches.values() for word in words))
    [configuration] = served
    sources = {entry.key.path: entry.source for entry in configuration.describe()}
    assert {path for path, source in sources.items() if source == "option"} == switches.keys()
    assert all(configuration.values[path] != KEYS[path].default for path in switches)


def test_any_key_can_be_set(served: list[Configuration]) -> None:
    run("serve", "--set", "overcommit.cpu=1.5", "--set", "domain=a", "--set", "domain=b")
    assert served[0].settings.ledger.overcommit_cpu == 1500
    assert served[0].settings.store.domain == "b"


def test_a_configuration_fault_ends_with_two_and_says_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", "--strategy", "fastest") == 2
    assert capsys.readouterr().err == (
        "agentenv-scheduler: configuration: strategy: found 'fastest' (option); "
        "must be one of round_robin, random, least_loaded, grouped_round_robin\n"
    )


def test_all_faults_of_the_options_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--set", "report_ttl=30", "--set", "foo.bar=hunter2", "--set", "stategy=random")
    assert run("serve", "--strategy", "bogus", "--port", "99999", *settings) == 2
    told = capsys.readouterr().err
    assert told.startswith("agentenv-scheduler: configuration: 5 faults\n")
    assert all(f"  - {path}: found" in told for path in ("strategy", "report_ttl", "http.port"))
    assert "  - there is no configuration key named foo.bar\n" in told
    assert "  - there is no configuration key named stategy; did you mean `strategy`?\n" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--nonsense"), ("serve", "--set", "domain"), ("serve", "--port", "many"), ("lua", "render", "nothing")],
)
def test_a_mistake_of_usage_ends_with_two(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert "Error: " in capsys.readouterr().err


def test_a_failure_ends_with_one_line_and_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Configuration) -> None:
        raise StoreUnavailable("the ledger at host:6379 cannot be reached")

    monkeypatch.setattr("scheduler.replica.run", fail)
    assert run("serve") == 1
    assert capsys.readouterr().err == "agentenv-scheduler: the ledger at host:6379 cannot be reached\n"


def test_config_shows_values_sources_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "--json", "--set", "redis_addr=redis://app:hunter2@host:1", "--set", "report_ttl=90s") == 0
    output = capsys.readouterr().out
    shown: dict[str, Any] = json.loads(output)
    assert shown.keys() == KEYS.keys()
    assert shown["report_ttl"] == {"value": "1m30s", "source": "option"}
    assert shown["redis_addr"]["value"] == "redis://app:***@host:1"
    assert "hunter2" not in output


def test_config_for_people_names_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config") == 0
    output = capsys.readouterr().out
    assert all(path in output for path in KEYS)


def test_config_warns_about_a_likely_typo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[scheduler]\nstategy = "random"\n')
    assert run("config", "--config", str(file)) == 0
    assert "warning: `scheduler.stategy` is not read; did you mean `strategy`?" in capsys.readouterr().err


def test_lua_render_prints_the_script_as_redis_gets_it(capsys: pytest.CaptureFixture[str]) -> None:
    library = ScriptLibrary.load()
    for name in library.names:
        assert run("lua", "render", name) == 0
        assert capsys.readouterr().out == library.render(name) + "\n"


def test_lua_list_names_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lua", "list") == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(ScriptLibrary.load().names)


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(asked) == 0
    assert capsys.readouterr().out == f"agentenv-scheduler {__version__}\n"


def test_serve_never_imports_the_lab_or_inspection(
    served: list[Configuration], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise AssertionError("serve added the tools")

    monkeypatch.setattr(cli, "complete_app", refuse)
    assert run("serve") == 0
    assert served


def test_a_reader_who_leaves_early_causes_no_traceback() -> None:
    process = subprocess.run(
        f"{sys.executable} -m scheduler config | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert process.stdout.startswith("key")
    assert process.stderr == ""


@pytest.mark.parametrize("command", ["demo", "replay", "bench", "inspect", "serve", "lua", "config", "version"])
def test_help_lists_every_command(command: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "scheduler", "--help"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=True,
    )
    assert f"\n  {command} " in process.stdout
