"""Replica processes forked from one that has imported everything, so that a start costs a tenth of its time.

What runs in them is what `python -m scheduler` runs, with its own arguments, environment, standard error and exit
status; only the interpreter has not been started anew. One nursery serves one test process and ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What `serve` imports, nothing of which may start a thread or open anything.
IMPORTED = ("scheduler.replica", "scheduler.cli.serve", "scheduler.api.http", "scheduler.api.grpc", "fakeredis")
_REQUEST_BYTES = 1 << 20
_DESCRIPTORS = 2  # standard error, and the socket that hears of pid and exit status
_ENDED = -(1 << 20)  # no exit status, nor a signal's


class Forked:
    """A process of the nursery's, with what `subprocess.Popen` has of use: its exit status comes from its minder."""

    def __init__(self, minder: socket.socket, read_end: int) -> None:
        self._minder = minder.makefile("r", encoding="utf-8")
        minder.close()
        self.stderr = os.fdopen(read_end, encoding="utf-8", errors="replace")
        self.returncode: int | None = None
        self._ended = threading.Event()
        told = self._minder.readline()
        if not told:
            raise RuntimeError("the nursery has ended")
        self.pid = int(told)
        threading.Thread(target=self._wait_for_status, daemon=True).start()

    def _wait_for_status(self) -> None:
        with self._minder as minder:
            self.returncode = int(minder.readline() or _ENDED)
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode


class Nursery:
    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # numpy's threads would be forked without their work.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())],
            cwd=ROOT,
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._turn = threading.Lock()

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], directory: Path) -> Forked:
        """`python -m scheduler *arguments`, its standard error in a pipe."""
        ours, minders = socket.socketpair()
        read_end, write_end = os.pipe()
        request = {"arguments": [*arguments], "environment": {**environment}, "directory": str(directory)}
        try:
            with self._turn:
                socket.send_fds(self._requests, [json.dumps(request).encode()], [write_end, minders.fileno()])
        finally:
            os.close(write_end)
            minders.close()
        return Forked(ours, read_end)

    def close(self) -> None:
        self._requests.close()
        self._process.wait(30)


@functools.cache
def nursery() -> Nursery:
    """That of this test process."""
    opened = Nursery()
    atexit.register(opened.close)
    return opened


# In the nursery


def _serve(requests: socket.socket) -> list[str]:
    """Forks for each request, until nobody can ask any more. In a forked process: returns its arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, meant for the tests
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # minders need no minder
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, _DESCRIPTORS)
        if not request:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            return _mind(json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _mind(request: dict[str, object], stderr: int, minder: int) -> list[str]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(minder)
        os.dup2(stderr, 2)
        os.dup2(0, 1)  # the null device, as standard input is
        os.close(stderr)
        return _become(request)
    os.close(stderr)
    threading.Thread(target=_end_with_tests, args=(minder, pid), daemon=True).start()
    with contextlib.suppress(OSError):
        os.write(minder, b"%d\n" % pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        os.write(minder, b"%d\n" % status)
    os._exit(0)


def _end_with_tests(minder: int, pid: int) -> None:
    """Who asked for a process hears of its end before it closes the socket, unless it was killed itself."""
    with contextlib.suppress(OSError):
        os.read(minder, 1)
        os.kill(pid, signal.SIGKILL)


def _become(request: dict[str, object]) -> list[str]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.chdir(str(request["directory"]))
    os.environ.clear()
    os.environ.update(environment)
    return arguments


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        sys.argv = [str(ROOT / "scheduler" / "__main__.py"), *_serve(asked)]
    from scheduler.__main__ import main

    main()
