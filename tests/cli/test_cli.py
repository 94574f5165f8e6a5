"""The command line from outside: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from scheduler import __version__, cli
from scheduler.config import Configuration
from scheduler.config.keys import KEYS
from scheduler.connection.scripts import ScriptLibrary
from scheduler.domain.placement import Strategy
from scheduler.errors import StoreUnavailable
from scheduler.ledger.format import FORMAT
from tests.docs.test_commands import check_own_command, own_commands
from tests.support.servers import free_port


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
        f"agentenv-scheduler: configuration: strategy: found 'fastest' (option); must be one of {', '.join(Strategy)}\n"
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
    assert capsys.readouterr().out == f"agentenv-scheduler {__version__}\nledger format {FORMAT}\n"


def test_serve_never_imports_the_lab_or_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Any] = []
    monkeypatch.setattr(cli, "_add_once", added.append)
    cli._app_for(["serve", "--port", "0"])
    assert added == [cli._ADDED_BY["serve"]]


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
    assert process.stdout == "Placing\n"
    assert process.stderr == ""


def test_config_is_readable_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scheduler.cli.serve._width", lambda: 80)
    listed = json.dumps([{"id": f"node-{number}", "endpoint": f"http://10.0.0.{number}:8000"} for number in range(9)])
    assert run("config", "--set", "report_ttl=90s", "--set", f"nodes={listed}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[lines.index("  report_ttl = 1m30s") + 1].strip() == "from option"
    assert run("config", "--changed", "--set", "report_ttl=90s") == 0
    assert capsys.readouterr().out == "Time\n  report_ttl = 1m30s\n      from option\n"


SLOW_TO_IMPORT = ("fastapi", "starlette", "grpc", "fakeredis", "structlog", "httpx", "scheduler.replica")


@pytest.mark.parametrize(
    ("arguments", "spared"),
    [
        (["--version"], (*SLOW_TO_IMPORT, "redis", "rich", "pydantic", "scheduler.config")),
        (
            ["inspect", "nodes", "--redis-addr", f"127.0.0.1:{free_port()}"],
            (*SLOW_TO_IMPORT, "rich", "scheduler.inspection.recount", "scheduler.inspection.story"),
        ),
    ],
    ids=["version", "inspect"],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], spared: tuple[str, ...]) -> None:
    told = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from scheduler.cli import main; main()"
    process = subprocess.run(
        [sys.executable, "-c", told, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert process.returncode == (0 if arguments == ["--version"] else 1), process.stderr
    imported = set(process.stdout.split())
    assert "scheduler.errors" in imported
    assert imported.isdisjoint(spared)


def commands(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command under this one, with the words that call it."""
    if not hasattr(command, "commands"):
        yield names, command
        return
    for name, found in command.commands.items():
        yield from commands(found, *names, name)


EVERY_COMMAND = dict(commands(own_commands()))


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    listed = capsys.readouterr().out
    assert {"serve", "inspect", "replay", "keys"} <= {names[0] for names in EVERY_COMMAND}
    assert all(f"\n  {names[0]} " in listed for names in EVERY_COMMAND)
    assert {names[0] for names in EVERY_COMMAND} == {*cli._ADDED_BY, "version", "grpc-health-probe"}


@pytest.mark.parametrize("names", EVERY_COMMAND, ids=" ".join)
def test_help_says_what_a_command_does_what_it_takes_and_shows_examples(names: tuple[str, ...]) -> None:
    command = EVERY_COMMAND[names]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{parameter.name} has no help"
    examples = [line.strip() for line in (command.epilog or "").split("Examples:")[-1].splitlines() if line.strip()]
    assert examples, "no examples"
    for example in examples:
        words = shlex.split(re.sub(r"( > \S+| &)$", "", example))
        program = words.index("agentenv-scheduler")
        assert words[program + 1 :][: len(names)] == list(names)
        check_own_command(words[program + 1 :])


def test_help_of_serve_tells_choices_defaults_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", "--help") == 0
    told = " ".join(capsys.readouterr().out.split())
    for key in KEYS.values():
        if key.option:
            assert f"env: {', '.join(key.environment)}" in told
    assert "|".join(Strategy) in told
    assert "default: 127.0.0.1; env: SCHEDULER_HTTP_HOST" in told
