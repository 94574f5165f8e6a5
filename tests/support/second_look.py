"""A second look at the few tests that real time can fail; a plugin of pytest.

A test marked `real_time` runs real processes against real time, so a busy machine may fail it although
nothing is broken. Where `SCHEDULER_TEST_SECOND_LOOK` names a file, which only CI does, such a test runs once
more, alone, when all others have ended; the file gets a line for each that then passed. Everything else that
fails fails the run at once: any other test, a hang, a process that died, an error while collecting.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

MARK = "real_time"
MOST = 10  # tests may be marked; a test of this plugin counts them
MARKED = pytest.StashKey[list[str]]()
VARIABLE = "SCHEDULER_TEST_SECOND_LOOK"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: real processes and real time; CI looks a second time when it fails")
    if (file := os.environ.get(VARIABLE)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondLook(config.rootpath, Path(file)))


@pytest.hookimpl(tryfirst=True)  # before any test is deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[MARKED] = [item.nodeid for item in items if item.get_closest_marker(MARK)]


class SecondLook:
    """Hears of every failure, from all test processes."""

    def __init__(self, root: Path, file: Path) -> None:
        self._root = root
        self._file = file
        self._failed: dict[str, None] = {}  # in order, each once
        self._is_final = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None
            # What tells of a process that died carries no marks.
            self._is_final |= MARK not in report.keywords or "from pytest-timeout" in report.longreprtext

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_final |= report.failed

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost, so that the failures have been shown
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        yield
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self._failed and not self._is_final:
            session.exitstatus = self._look_again()

    def _look_again(self) -> int:
        """The exit status of the second run."""
        print(f"\nA second look, alone, at {', '.join(self._failed)}", flush=True)
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        command = [sys.executable, "-m", "pytest", "-n", "0", *self._failed]
        status = subprocess.run(command, cwd=self._root, env=environment, check=False).returncode
        if status == pytest.ExitCode.OK:
            with self._file.open("a", encoding="utf-8") as file:
                file.writelines(f"{test}\n" for test in self._failed)
        return status
