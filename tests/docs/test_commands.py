"""Every command the documents show is one that works: its program, subcommand and options exist,
and what is cheap to run is run."""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.docs.commands import ROOT, Command, commands_in, documents

COMMANDS = [command for path in documents() for command in commands_in(path)]

# Programs of the reader's own machine: nothing of this project could break them.
TAKEN_ON_TRUST = {
    "cd", "cat", "chmod", "echo", "export", "git", "jq", "mkdir", "mv", "openssl", "redis-check-rdb", "rm",
    "sed", "source", "apt-get", "docker", "grpcurl", "gzip", "kill", "sleep", "watch", ".",
}  # fmt: skip


@functools.cache
def own_commands() -> Any:
    from scheduler.cli import complete_app

    return typer.main.get_command(complete_app())


def check_own_command(words: Sequence[str]) -> None:
    """Parse as the command line would, without running anything."""
    # Typer brings a click of its own, whose classes are not the installed click's.
    command: Any = own_commands()
    context = command.context_class(command, info_name="agentenv-scheduler")
    rest = [_filled_in(word) for word in words]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"no subcommand {name}"
        command, context = found, found.context_class(found, info_name=name, parent=context)
    takes_anything = command.context_settings.get("ignore_unknown_options")  # the options of another program
    if set(rest) & {"--help", "-h"} or hasattr(command, "commands") or takes_anything:
        return
    command.make_parser(context).parse_args(args=list(rest))


def _filled_in(word: str) -> str:
    """A document writes NODE or <id> where the reader puts their own."""
    return re.sub(r"<[^>]*>", "x", word)


def check_make(words: Sequence[str]) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [word for word in words if "=" not in word and not word.startswith("-")]
    assert set(named) <= targets, f"make has no {sorted(set(named) - targets)}"


def check_curl(words: Sequence[str]) -> None:
    """The route exists with that method."""
    from starlette.routing import Match

    from scheduler.api.http import create_app
    from scheduler.service import build_services
    from tests.support.embedded import unopened_ledger

    method, url, has_body = "GET", "", False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in {"-X", "--request"}:
            method = rest.pop(0)
        elif word in {"-d", "--data", "--json", "--data-binary", "-T"}:
            has_body = True
            rest.pop(0)
        elif word in {
            "-H",
            "--header",
            "-o",
            "--output",
            "-m",
            "--max-time",
            "-w",
            "-u",
            "--cacert",
            "--cert",
            "--key",
            "--retry",
        }:
            rest.pop(0)
        elif not word.startswith("-"):
            url = word
    if has_body and method == "GET":
        method = "POST"
    path = re.sub(r"^(https?://)?[^/]+", "", url).partition("?")[0] or "/"
    scope = {"type": "http", "method": method, "path": _filled_in(path), "root_path": "", "headers": []}
    app = create_app(build_services(unopened_ledger()))
    assert any(route.matches(scope)[0] is Match.FULL for route in app.routes), f"no route {method} {path}"


def check_python(words: Sequence[str]) -> None:
    """Modules of this project that are run must be there."""
    if "-m" in words:
        module = words[words.index("-m") + 1]
        assert module in {"pytest", "pip", "venv", "scheduler"}, f"python -m {module}"
    for word in words:
        if word.startswith(("tests/", "scheduler/")):
            assert (ROOT / word.partition("::")[0]).exists(), f"{word} does not exist"


def check_pip(words: Sequence[str]) -> None:
    assert words[0] in {"install", "uninstall"}, words


def check_redis_cli(words: Sequence[str]) -> None:
    """Only its form here; `test_redis_cli.py` runs these against a ledger."""
    assert words, "redis-cli without a command"


def check_kubectl(words: Sequence[str]) -> None:
    """What is built or applied is a folder of this repository; the cluster is the reader's own."""
    for flag, folder in itertools.pairwise(words):
        if flag in {"-k", "kustomize"}:
            assert (ROOT / folder / "kustomization.yaml").exists(), f"{folder}/kustomization.yaml does not exist"


def check_cp(words: Sequence[str]) -> None:
    """What is copied out of this repository is there, or is made by the script that makes secrets."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "deploy/prepare.sh", folder], check=True, capture_output=True)
        for word in words:
            if word.startswith("deploy/"):
                place = Path(folder) if word.startswith("deploy/secrets/") else ROOT
                assert (place / word).exists(), f"{word} does not exist"


def check_systemctl(words: Sequence[str]) -> None:
    for unit in words:
        if unit.endswith(".service"):
            template = re.sub(r"@\w+\.", "@.", unit)
            assert (ROOT / "deploy/systemd" / template).exists(), f"deploy/systemd/{template} does not exist"


CHECKS: dict[str, Callable[[Sequence[str]], None]] = {
    "agentenv-scheduler": check_own_command,
    "make": check_make,
    "curl": check_curl,
    "pip": check_pip,
    "python": check_python,
    "python3": check_python,
    "redis-cli": check_redis_cli,
    "kubectl": check_kubectl,
    "cp": check_cp,
    "install": check_cp,
    "systemctl": check_systemctl,
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.id)
def test_a_documented_command_exists(command: Command) -> None:
    words = command.words[1:] if command.words[0] == "sudo" else command.words
    program = words[0]
    if program in TAKEN_ON_TRUST:
        return
    if program.startswith((".ci/", "./")):
        assert (ROOT / program).exists(), f"{program} does not exist"
        return
    check = CHECKS.get(program.rpartition("/")[2])
    assert check is not None, f"{command.id}: no check knows how to judge {program}"
    check(words[1:])


def test_the_readme_shows_the_two_commands_that_do_everything() -> None:
    shown = {command.words[:2] for command in commands_in(ROOT / "README.md")}
    assert {("make", "demo"), ("make", "test")} <= shown


@pytest.mark.parametrize(
    "text",
    [
        "agentenv-scheduler srve",
        "agentenv-scheduler serve --redis-address x",
        "agentenv-scheduler inspect nothing",
        "make everything",
        "curl http://127.0.0.1:8090/v2/nodes",
        "curl -X PATCH http://127.0.0.1:8090/v1/nodes",
        "python -m pytest tests/nowhere",
        "kubectl apply -k deploy/kubernetes/nowhere",
        "cp deploy/systemd/nothing.service /etc",
        "systemctl start nothing@1.service",
    ],
)
def test_a_command_that_does_not_exist_is_found_out(text: str) -> None:
    program, *words = text.split()
    with pytest.raises(Exception, match=r"no|No|exist|make has") as found:
        CHECKS[program](words)
    assert not isinstance(found.value, TypeError | AttributeError)


def test_the_scheduler_of_the_page_of_http_knows_the_resources_that_the_page_asks_for() -> None:
    page = ROOT / "docs" / "http.md"
    [start] = [command.words for command in commands_in(page) if command.words[:2] == ("agentenv-scheduler", "serve")]
    bodies = [json.loads(word) for command in commands_in(page) for word in command.words if word.startswith("{")]
    asked = {name for body in bodies for part in (body, body.get("hint", {})) for name in part.get("resources", {})}
    given = next(word.partition("=")[2] for word in start if word.startswith("resources="))
    assert asked - {"disk"} == set(given.split(","))


def test_the_page_of_the_command_line_shows_every_command() -> None:
    def words_of(command: Any, *words: str) -> list[tuple[str, ...]]:
        if not hasattr(command, "commands"):
            return [words]
        return [found for name, each in command.commands.items() for found in words_of(each, *words, name)]

    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    for words in words_of(own_commands()):
        assert re.search(rf"(`|agentenv-scheduler ){re.escape(' '.join(words))}\b", page), f"{words} is not on the page"
