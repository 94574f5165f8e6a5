"""The file of keys: what it may say, how it rotates, what happens when it breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.access import KeyRing, Principal, Role, generate_key, hash_key
from scheduler.access.cli import keys_app
from scheduler.cli import main
from scheduler.errors import ConfigurationError


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def write(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text(json.dumps({"keys": entries}), "utf-8")
    # Some file systems keep whole seconds; a changed file must look changed.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000 * len(path.read_bytes())))


def entry(of: str, name: str = "edge", role: str = "gateway", **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "sha256": hash_key(of), **more}


def test_keys_are_long_and_never_the_same() -> None:
    keys = {generate_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(32 <= len(key) <= 256 and key.isascii() for key in keys)


def test_two_keys_of_one_name_are_both_valid_while_they_rotate(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write(path, entry("old"), entry("new"))
    ring = KeyRing(path)
    assert ring.authenticate("old") == ring.authenticate("new") == Principal("edge", Role.GATEWAY)
    assert ring.authenticate("other") is None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    write(path, entry("old"))
    ring = KeyRing(path, clock)
    write(path, entry("old"), entry("new"))
    assert ring.authenticate("new") is None
    clock.now += 1
    assert ring.authenticate("new") is not None
    write(path, entry("new"))
    clock.now += 1
    assert ring.authenticate("old") is None


@pytest.mark.parametrize("content", ["", "{", '{"keys": []}'])
def test_a_file_that_breaks_later_leaves_the_last_good_keys(tmp_path: Path, content: str) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    write(path, entry("good"))
    ring = KeyRing(path, clock)
    path.write_text(content, "utf-8")
    clock.now += 1
    assert ring.authenticate("good") is not None
    path.unlink()
    clock.now += 1
    assert ring.authenticate("good") is not None


def test_toml_says_the_same_as_json(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nname = "n"\nrole = "node"\nnode_id = " a "\nsha256 = "{hash_key("k")}"\n', "utf-8")
    principal = KeyRing(path).authenticate("k")
    assert principal == Principal("n", Role.NODE, "a")
    assert principal.may_act_for("a")
    assert not principal.may_act_for("b")


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([], "at least one key"),
        ([{"role": "admin", "sha256": "0" * 64}], "name must be"),
        ([entry("k", role="root")], "role must be"),
        ([{"name": "n", "role": "admin", "sha256": "plain-text-key"}], "sha256 must be"),
        ([entry("k", role="gateway", node_id="a")], "node_id"),
        ([entry("k", role="node", node_id=" ")], "node_id"),
        ([entry("k", role="node", node_id="a\nb")], "node_id"),
        ([entry("k", key="k")], "unknown member key"),
        ([entry("a"), entry("b"), entry("c")], "at most 2"),
        ([entry("a"), entry("b", role="admin")], "must agree"),
        (["text"], "must be an object"),
    ],
)
def test_an_impossible_file_stops_the_start_and_says_why(tmp_path: Path, entries: list[Any], complaint: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": entries}), "utf-8")
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        KeyRing(path)
    assert "plain-text-key" not in caught.value.detail


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read: No such file or directory"):
        KeyRing(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("keys.json", b"{\n  keys", "is not JSON: Expecting property name enclosed in double quotes: line 2 column 3"),
        ("keys.json", b"[" * 100_000, "is not JSON"),
        ("keys.json", b"\xff", "cannot be read: it is not UTF-8"),
        ("keys.toml", b"keys = ", "is not TOML: Invalid value"),
        ("keys.json", b'{"keys": [], "keys": [{}]}', "member keys is given twice"),
        ("keys.json", b'{"keys": [{"role": "node", "role": "admin"}]}', "member role is given twice"),
    ],
)
def test_a_file_that_is_none_is_told_in_words(tmp_path: Path, file: str, content: bytes, complaint: str) -> None:
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        KeyRing(path)
    assert caught.value.detail.startswith(f"API keys: {path}")
    assert complaint in caught.value.detail


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [entry("k")]}), "utf-8-sig")
    assert KeyRing(path).authenticate("k") is not None


def test_the_command_shows_the_key_once_and_prints_only_its_hash(tmp_path: Path) -> None:
    result = CliRunner().invoke(keys_app, ["new", "edge", "--role", "gateway"])
    assert result.exit_code == 0
    key = result.stderr.strip().removeprefix("key (shown once): ")
    path = tmp_path / "keys.json"
    write(path, json.loads(result.stdout))
    assert key not in result.stdout
    assert KeyRing(path).authenticate(key) == Principal("edge", Role.GATEWAY)


@pytest.mark.parametrize(("key", "code"), [("k" * 32, 0), ("k" * 31, 2), ("with space " * 4, 2)])
def test_an_existing_key_is_taken_over_when_it_cannot_be_guessed(key: str, code: int) -> None:
    result = CliRunner().invoke(keys_app, ["hash", "edge"], input=f"{key}\n")
    assert result.exit_code == code
    assert (hash_key(key) in result.stdout) == (code == 0)
    assert key not in result.stdout


def test_a_key_may_come_through_a_pipe() -> None:
    asked, key = [sys.executable, "-m", "scheduler", "keys", "hash", "edge"], "k" * 32
    # Without a terminal, so that nobody can be asked.
    told = subprocess.run(asked, input=f"{key}\n", capture_output=True, text=True, check=True, start_new_session=True)
    assert (json.loads(told.stdout)["sha256"], told.stderr) == (hash_key(key), "")


def test_only_a_node_key_is_bound_to_a_node() -> None:
    result = CliRunner().invoke(keys_app, ["new", "edge", "--role", "gateway", "--node-id", "a"])
    assert result.exit_code != 0


def test_an_unknown_role_is_answered_with_the_known_ones() -> None:
    result = CliRunner().invoke(keys_app, ["new", "edge", "--role", "boss"])
    assert result.exit_code == 2
    assert "Invalid value for --role: 'boss' is not one of node, gateway, admin" in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["bad name", "", "a/b", "n" * 65, "schlüssel"])
@pytest.mark.parametrize("command", [["new"], ["hash"], ["add", "--file", "keys.json"]])
def test_a_name_that_serve_refuses_is_refused_where_keys_are_made(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(keys_app, [*command, name], input="k" * 32)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "1 to 64 of A-Z, a-z, 0-9, dot, underscore and" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["keys.json", "keys.toml"])
def test_keys_that_are_added_to_a_file_are_accepted_and_only_their_owner_reads_it(file: str, tmp_path: Path) -> None:
    path, runner = tmp_path / file, CliRunner()
    added = ["add", "--file", str(path)]
    first = runner.invoke(keys_app, [*added, "ops", "--role", "admin"])
    assert (first.exit_code, path.stat().st_mode & 0o777) == (0, 0o600)
    path.chmod(0o640)
    second = runner.invoke(keys_app, [*added, "n", "--role", "node", "--node-id", 'a"ü\\b'])
    ring = KeyRing(path)
    assert ring.authenticate(first.stdout.strip()) == Principal("ops", Role.ADMIN)
    assert ring.authenticate(second.stdout.strip()) == Principal("n", Role.NODE, 'a"ü\\b')
    assert path.stat().st_mode & 0o777 == 0o640, "whoever could read it still can"
    assert [each.name for each in tmp_path.iterdir()] == [file]
    assert first.stdout.strip() not in path.read_text("utf-8")


def test_an_interrupt_at_the_prompt_ends_as_every_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("getpass.getpass", interrupted)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(SystemExit) as ended:
        main(["keys", "hash", "ops"])
    assert ended.value.code == 130


def test_a_key_is_saved_for_its_owner_alone_and_over_nothing(tmp_path: Path) -> None:
    path, saved, runner = tmp_path / "keys.json", tmp_path / "ops.key", CliRunner()
    added = ["add", "--file", str(path), "--save-key", str(saved), "ops"]
    result = runner.invoke(keys_app, added)
    assert (result.exit_code, result.stdout) == (0, "")
    assert saved.stat().st_mode & 0o777 == 0o600
    key = saved.read_text("utf-8").strip()
    assert KeyRing(path).authenticate(key) is not None
    again = runner.invoke(keys_app, added)
    assert "ops.key is there already" in str(again.exception)
    assert saved.read_text("utf-8").strip() == key
    elsewhere = runner.invoke(keys_app, [*added[:-3], "--save-key", str(tmp_path / "b.key"), "ops", "--role", "admin"])
    assert "must agree on role" in str(elsewhere.exception)
    assert not (tmp_path / "b.key").exists(), "a key that opens nothing"


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
def test_a_key_behind_a_file_that_others_can_read_is_warned_of(tmp_path: Path, mode: int, warned: bool) -> None:
    behind = tmp_path / "ops.key"
    behind.touch()
    behind.chmod(mode)
    with behind.open("w") as file:
        run = [sys.executable, "-m", "scheduler", "keys", "add", "ops", "--file", str(tmp_path / "keys.json")]
        result = subprocess.run(run, stdout=file, stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    assert ("others on this machine can read the file" in result.stderr) is warned
    assert len(behind.read_text("utf-8").strip()) == 43


def test_what_serve_would_refuse_is_not_added_to_a_file(tmp_path: Path) -> None:
    path, runner = tmp_path / "keys.json", CliRunner()
    added = ["add", "--file", str(path), "ops"]
    write(path, entry("one", "ops"), entry("two", "ops"))
    before = path.read_bytes()
    third = runner.invoke(keys_app, added)
    assert "ops has 3 keys, at most 2" in str(third.exception)
    write(path, entry("one", "ops"))
    other = runner.invoke(keys_app, [*added, "--role", "admin"])
    assert "must agree on role" in str(other.exception)
    path.write_bytes(b"{")
    broken = runner.invoke(keys_app, added)
    assert "is not JSON" in str(broken.exception)
    path.write_bytes(before)
    (tmp_path / ".keys.json.new").touch()
    write(path, entry("one", "ops"))
    busy = runner.invoke(keys_app, added)
    assert "somebody else writes" in str(busy.exception)
    assert [result.stdout for result in (third, other, broken, busy)] == [""] * 4
