"""Ctrl-C, as a terminal sends it: to the command and to everything it has started. It ends with status 130, at once.

SIGTERM, as whoever supervises the command sends it: to the command alone. It ends with 143, likewise."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parents[2]
# Limits for what has gone wrong: a run that waited for its killed server took two minutes.
PATIENCE_SECONDS = 60.0
Started = subprocess.Popen[str]

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for child processes in /proc")


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[Started]:
    process = subprocess.Popen(
        [sys.executable, "-m", "scheduler", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")},
        start_new_session=True,
        # Whoever runs the tests in the background of a shell has it ignored, and processes inherit that.
        preexec_fn=restore_interrupts,  # noqa: PLW1509 – no other thread runs
    )
    try:
        yield process
    finally:
        for child in children_of(process.pid):
            os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()


def restore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def until(found: Callable[[], bool], process: Started) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not found():
        assert process.poll() is None, f"it ended by itself: {process.communicate()}"
        assert time.monotonic() < deadline, "it did not begin"
        time.sleep(0.01)


def its_own_server_has_work(process: Started) -> bool:
    for child in children_of(process.pid):
        found = re.search(r"127\.0\.0\.1:(\d+)", Path(f"/proc/{child}/cmdline").read_text())  # it names itself so
        if found is None:
            continue
        try:
            with redis.Redis(port=int(found[1])) as client:
                return bool(client.dbsize() > 20)
        except redis.ConnectionError:
            return False
    return False


def interrupt(process: Started, by: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """Its exit status and standard error."""
    if by is signal.SIGINT:
        os.killpg(process.pid, by)
    else:
        process.send_signal(by)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, errors


@pytest.mark.parametrize(
    ("arguments", "by"),
    [
        (["replay", "--strategy", "random"], signal.SIGINT),
        (["bench", "schedule", "--nodes", "20000"], signal.SIGTERM),
        (["lifecycle", "--replicas", "1", "--nodes", "10"], signal.SIGINT),
        (["lifecycle", "--replicas", "1", "--nodes", "10"], signal.SIGTERM),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value[0],
)
def test_an_interrupted_run_of_the_lab_ends_at_once_and_leaves_no_process(
    arguments: Sequence[str], by: signal.Signals
) -> None:
    with started(arguments) as process:
        until(lambda: its_own_server_has_work(process), process)
        children = children_of(process.pid)
        assert len(children) == 1 + ("--replicas" in arguments)
        began = time.monotonic()
        status, errors = interrupt(process, by)
        assert (status, "cannot be reached" in errors, "Traceback" in errors) == (128 + by, False, False), errors
        assert time.monotonic() - began < PATIENCE_SECONDS
        assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_an_interrupted_demo_ends_at_once() -> None:
    with started(["demo", "--keep"]) as process:
        assert process.stdout is not None
        assert "Starting" in process.stdout.readline()
        status, errors = interrupt(process)
        assert (status, "Traceback" in errors) == (130, False), errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["fleet", "--nodes", "1", "--url", "http://{address}"],
        ["nodes", "list", "--watch", "--url", "http://{address}"],
        ["inspect", "check", "--redis-addr", "{address}"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_is_interrupted_while_it_waits_for_an_answer(arguments: Sequence[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_SECONDS)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with started([each.format(address=address) for each in arguments]) as process, silent.accept()[0]:
            assert interrupt(process) == (130, "")


def test_watching_is_interrupted_between_two_looks() -> None:
    with started(["nodes", "--watch", "--interval", "1h", "--url", "http://127.0.0.1:1"]) as process:
        assert process.stderr is not None
        assert "was not reached" in process.stderr.readline()
        assert interrupt(process)[0] == 130
