"""Pages for the bad day, run from their first command to their last: on a real server and the program itself, with
folders of the test in the place of the machine's, and `systemctl` that starts and stops that server."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio

from scheduler.connection.keys import Keys
from scheduler.connection.options import StoreOptions
from scheduler.ledger.ledger import Ledger, open_ledger
from tests.docs.commands import ROOT, scripts_in
from tests.inspection.busy import SETTINGS, make_busy
from tests.support.backends import put_settings
from tests.support.servers import free_port
from tests.upgrade.old_ledger import put_old_ledger

NEEDED = ("redis-server", "redis-cli", "redis-check-rdb")
needs_redis = pytest.mark.skipif(
    not all(map(shutil.which, NEEDED)), reason="Redis' own tools are not installed (Debian's package redis-server)"
)
SECONDS = 60
FOLDERS = ("/etc/agentenv-scheduler", "/var/lib/agentenv-ledger", "/var/backups")

SYSTEMCTL = """#!/bin/sh
echo "$@" >>{folder}/systemctl.log
start() {{
    {server} {etc}/ledger.conf --include {etc}/redis-auth.conf --port {port} --bind 127.0.0.1 \\
        --daemonize yes --pidfile {folder}/pid --logfile {folder}/log
    until {cli} -p {port} ping 2>&1 | grep -q NOAUTH; do sleep 0.05; done
}}
stop() {{
    pid=$(cat {folder}/pid)
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}}
case "$*" in
*agentenv-ledger.service*)
    case $1 in start) start ;; stop) stop ;; restart) stop; start ;; esac ;;
esac
"""


class Machine:
    """What the pages find on a machine: the folders, the secrets, the programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.paths = {path: folder / path.lstrip("/") for path in FOLDERS}
        for path in self.paths.values():
            path.mkdir(parents=True)
        self.etc, self.data = (self.paths[path] for path in FOLDERS[:2])
        subprocess.run([ROOT / "deploy/prepare.sh", folder / "made"], check=True, capture_output=True)
        for name in ("redis.password", "redis-auth.conf", "api-keys.json"):
            shutil.copy(folder / "made/deploy/secrets" / name, self.etc)
        for name in ("ledger.conf", "scheduler.toml"):
            (self.etc / name).write_text(self.here((ROOT / "deploy/systemd" / name).read_text(encoding="utf-8")))
        self._program("sudo", 'exec "$@"')
        self._program("redis-cli", f'exec {shutil.which("redis-cli")} -p {self.port} "$@"')
        self._program("agentenv-scheduler", f'exec {sys.executable} -m scheduler "$@"')
        programs = {"server": shutil.which("redis-server"), "cli": shutil.which("redis-cli")}
        text = SYSTEMCTL.format(folder=folder, etc=self.etc, port=self.port, **programs)
        (folder / "bin/systemctl").write_text(text)
        (folder / "bin/systemctl").chmod(0o755)

    def _program(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def here(self, text: str) -> str:
        for path, local in self.paths.items():
            text = text.replace(path, str(local))
        return text.replace("127.0.0.1:6379", f"127.0.0.1:{self.port}")

    def run(self, script: str) -> str:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")},
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SCHEDULER_CONFIG": str(self.etc / "scheduler.toml"),
            "SCHEDULER_STORE_PASSWORD_FILE": str(self.etc / "redis.password"),
        }
        done = subprocess.run(
            ["sh", "-eu", "-c", self.here(script)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def client(self) -> redis.Redis:
        password = (self.etc / "redis.password").read_text(encoding="utf-8")
        return redis.Redis(port=self.port, password=password)

    async def ledger(self) -> Ledger:
        options = StoreOptions(password_file=str(self.etc / "redis.password"))
        return await open_ledger(f"redis://127.0.0.1:{self.port}", domain="default", options=options)

    def stop(self) -> None:
        pid = self.folder / "pid"
        if pid.exists():
            self.run("systemctl stop agentenv-ledger.service")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    found.run("systemctl start agentenv-ledger.service")
    yield found
    found.stop()


def until_written(client: redis.Redis) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        info = client.info("persistence")
        if not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]:
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def fill(machine: Machine) -> None:
    async def work() -> None:
        ledger = await machine.ledger()
        try:
            await put_settings(ledger, SETTINGS)
            await make_busy(ledger)
        finally:
            await ledger.close()

    asyncio.run(work())


@needs_redis
@pytest.mark.slow
def test_a_ledger_comes_back_from_its_backup_as_the_page_says(machine: Machine) -> None:
    fill(machine)
    with machine.client() as client:
        before = {key: client.type(key) for key in client.scan_iter(count=1_000)}
        blocks = scripts_in(ROOT / "docs/backup.md")
        assert len(blocks) == 6
        make, stop, put_back, rewrite, make_last, start = blocks
        assert "RDB looks OK" in machine.run(make)
        client.flushall()
        machine.run(stop)
        machine.run(put_back)
    with machine.client() as client:
        assert "aof_rewrite_in_progress" in machine.run(rewrite)
        until_written(client)
    shown = machine.run(make_last)
    assert shown.strip(), "inspect check says what it counted"
    assert "node" in machine.run(start)  # `nodes list`
    with machine.client() as client:
        # Some of what is there ends by itself; nothing else is, and nothing was changed.
        after = {key: client.type(key) for key in client.scan_iter(count=1_000)}
        assert len(after) > 0.8 * len(before)
        assert after.items() <= before.items()
        assert client.config_get("appendonly") == {"appendonly": "yes"}
    asked = (machine.folder / "systemctl.log").read_text(encoding="utf-8")
    assert re.search(r"stop agentenv-scheduler@1.*\n(.*\n)*start agentenv-scheduler@1", asked)


@needs_redis
@pytest.mark.slow
def test_a_ledger_of_the_former_version_is_converted_as_the_page_says(machine: Machine) -> None:
    async def put() -> None:
        password = (machine.etc / "redis.password").read_text(encoding="utf-8")
        client = redis.asyncio.Redis(port=machine.port, password=password)
        await put_old_ledger(client, Keys("default"))
        await client.aclose()

    asyncio.run(put())
    blocks = [block for block in scripts_in(ROOT / "docs/upgrade.md") if "inspect" in block]
    check, look, convert, check_again = blocks
    assert check == check_again
    assert "version 0.1" in machine.run(look)
    assert "converted to format 4" in machine.run(convert)
    assert machine.run(check).strip()
