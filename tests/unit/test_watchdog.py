"""A hang ends the process that hangs, and the run fails with the test's name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support.watchdog import watch

def pytest_configure(config):
    watch(config)
"""
BEFORE_AND_AFTER = """
import asyncio, re, subprocess, sys, threading, time
import pytest

def test_before(): pass
{hanging}
def test_after(): pass
"""
# A task that no cancellation ends, awaited by a fixture's teardown; it is busy, so that a signal would meet it at work.
DEAF = """
async def deaf():
    while True:
        try:
            for _ in range(100):
                await asyncio.sleep(0)
        except BaseException:
            pass

@pytest.fixture
async def never_torn_down():
    task = asyncio.create_task(deaf())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
"""
HANGS = {
    "in the teardown of a test that passed": DEAF + "async def test_hangs(never_torn_down): pass",
    "in the teardown of a test that failed": DEAF + "async def test_hangs(never_torn_down): assert False",
    "in a test": "def test_hangs(): threading.Event().wait()",
    "without letting go of the interpreter": "def test_hangs(): re.match('(a+)+$', 'a' * 64 + 'b')",
}
IMPORTED = "threading.Event().wait()"
AT_THE_END = "def test_hangs(): threading.Thread(target=threading.Event().wait).start()"


PLUGINS = ["-p", "pytest_timeout", "-p", "pytest_asyncio.plugin"]


# A worker that does not end is told of, and ended, sooner.
IMPATIENT = """
import tests.support.watchdog, xdist.workermanage
tests.support.watchdog.LEAVING_SECONDS = 0.3
xdist.workermanage.NodeManager.EXIT_TIMEOUT = 2
"""


def run(
    directory: Path, hanging: str, *arguments: str, seconds: int = 1, conftest: str = CONFTEST
) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, with a test that hangs between two that do not."""
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (directory / "conftest.py").write_text(conftest)
    (directory / "test_it.py").write_text(BEFORE_AND_AFTER.format(hanging=hanging))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGINS, "--timeout", str(seconds), *arguments],
        cwd=directory,
        # Only the plugins it needs: all of them take seconds to load.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("where", HANGS)
def test_a_hang_ends_with_the_name_of_its_test(where: str, tmp_path: Path) -> None:
    ended = run(tmp_path, HANGS[where])
    assert ended.returncode == 1
    assert "test_hangs" in ended.stderr


def test_a_hang_while_files_are_imported_ends_with_the_name_of_the_file(tmp_path: Path) -> None:
    ended = run(tmp_path, IMPORTED)
    assert ended.returncode == 1
    assert "while tests were collected, test_it.py" in ended.stderr


def test_under_xdist_the_name_is_told_and_the_other_tests_run(tmp_path: Path) -> None:
    hang = HANGS["in the teardown of a test that failed"]
    ended = run(tmp_path, hang, "-p", "xdist", "-n", "2", "--dist", "worksteal", seconds=2)
    assert ended.returncode == 1
    assert "HUNG for more than 2 s: test_it.py::test_hangs" in ended.stderr
    assert "crashed while running 'test_it.py::test_hangs'" in ended.stdout
    assert "2 passed" in ended.stdout


def test_a_hang_after_the_last_test_is_told_with_its_name(tmp_path: Path) -> None:
    ended = run(tmp_path, AT_THE_END, "-k", "hangs")
    assert ended.returncode == 1
    assert "HUNG for more than 1 s: after the last test, test_it.py::test_hangs" in ended.stderr


def test_a_worker_that_waits_for_the_others_does_not_hang(tmp_path: Path) -> None:
    # The worker without the long test is done at once, and then waits for longer than its own last test might take.
    long = "@pytest.mark.timeout(60)\ndef test_hangs(): time.sleep(4)"
    ended = run(tmp_path, long, "-p", "xdist", "-n", "2", "--dist", "worksteal", seconds=2)
    assert "3 passed" in ended.stdout
    assert "HUNG" not in ended.stderr


def test_a_worker_that_does_not_end_is_told_with_its_last_test(tmp_path: Path) -> None:
    ended = run(tmp_path, AT_THE_END, "-p", "xdist", "-n", "1", "-k", "hangs", conftest=CONFTEST + IMPATIENT)
    assert "1 passed" in ended.stdout
    assert "HUNG for more than 0.3 s: after the last test of a worker, test_it.py::test_hangs" in ended.stderr


def test_processes_of_a_hanging_test_are_ended_with_it(tmp_path: Path) -> None:
    # It holds the pipe that `run` reads to the end.
    sleeps = "[sys.executable, '-c', 'import time; time.sleep(50)']"
    ended = run(tmp_path, f"def test_hangs(): subprocess.Popen({sleeps}, stdout=2).wait()", "-s")
    assert "HUNG for more than 1 s: test_it.py::test_hangs" in ended.stderr


def test_a_test_that_only_fails_leaves_the_run_alone(tmp_path: Path) -> None:
    ended = run(tmp_path, "def test_hangs(): assert False", seconds=60)
    assert "1 failed, 2 passed" in ended.stdout
    assert ended.returncode == 1
    assert "HUNG" not in ended.stderr
