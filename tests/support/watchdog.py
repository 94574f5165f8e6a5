"""A test that hangs ends with its name, whatever it hangs in.

pytest-timeout's own timers do not keep that promise. Its signal raises in whatever the main thread runs just then:
inside a task of the event loop the exception becomes that task's result, and the hang goes on without a timer. And
it forgets the timer of a test that has failed, although its teardown is still to come. So its settings (`timeout`,
`--timeout`, the mark) are kept, but the time is watched here: from the start of a test to the end of its last
fixture, and while a file is collected, by a thread of its own, and by one that does not need the interpreter's
lock. A process that hangs says the test's name and where everything stands, ends the processes it has started, and
exits; under pytest-xdist the run reports a crashed worker by the test's name and goes on with another.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout

# Where even a thread gets no turn: a loop in C, or in a Lua script of the embedded ledger.
LAST_RESORT_FACTOR, LAST_RESORT_SECONDS = 1.1, 1.0
# How long a worker may take to end once it is told to; pytest-xdist ends it after ten seconds, and says nothing.
LEAVING_SECONDS = 5.0
TASKS_SHOWN = 30


def watch(config: pytest.Config) -> None:
    """Call it from `pytest_configure`, while nothing is captured yet."""
    config.pluginmanager.register(Watchdog(config, os.dup(sys.stderr.fileno())), "hang-watchdog")


class Watchdog:
    """Hooks. `report_fd` is where a hang is told."""

    def __init__(self, config: pytest.Config, report_fd: int) -> None:
        self._config = config
        self._report_fd = report_fd
        self._timer: threading.Timer | None = None
        self._last: tuple[str, float] | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._disarm()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """A file that hangs while it is imported is told by its name."""
        seconds = pytest_timeout.get_env_settings(self._config).timeout
        if seconds:
            self._arm(f"while tests were collected, {collector.nodeid or 'in all folders'}", seconds)
        try:
            return (yield)
        finally:
            self._disarm()

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool:
        self._last = (item.nodeid, settings.timeout)
        self._arm(item.nodeid, settings.timeout)
        return True  # instead of pytest-timeout's

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        return True  # also called for a test that failed, before its teardown

    def pytest_enter_pdb(self) -> None:
        self._disarm()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """What is left to do, until the process has ended, belongs to the last test.

        A worker of pytest-xdist waits for the others first, however long their tests take."""
        if self._last is None:
            return
        if hasattr(self._config, "workerinput"):
            threading.Thread(target=self._leaving, args=(self._last[0],), daemon=True).start()
        else:
            self._arm(f"after the last test, {self._last[0]}", self._last[1])

    def _leaving(self, last: str) -> None:
        """Tells of a worker that does not end when the controller says so; the controller then ends it."""
        threading.main_thread().join()
        time.sleep(LEAVING_SECONDS)
        self._tell(f"\n\n+++ HUNG for more than {LEAVING_SECONDS:g} s: after the last test of a worker, {last}\n")
        faulthandler.dump_traceback(file=self._report_fd, all_threads=True)

    def _arm(self, what: str, seconds: float) -> None:
        self._disarm()
        self._timer = threading.Timer(seconds, self._hung, (what, seconds))
        self._timer.daemon = True
        self._timer.start()
        faulthandler.dump_traceback_later(
            seconds * LAST_RESORT_FACTOR + LAST_RESORT_SECONDS, exit=True, file=self._report_fd
        )

    def _disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None

    def _hung(self, what: str, seconds: float) -> None:
        if pytest_timeout.is_debugging():
            return
        try:
            self._tell(f"\n\n+++ HUNG for more than {seconds:g} s: {what}\n")
            faulthandler.dump_traceback(file=self._report_fd, all_threads=True)
            self._tell(_tasks())
            self._tell(self._captured())
            self._tell(f"+++ HUNG for more than {seconds:g} s: {what}; this process ends\n\n")
            _end_descendants()
        finally:
            os._exit(1)

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._report_fd, text.encode(errors="replace"))

    def _captured(self) -> str:
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            return ""
        capture.suspend_global_capture(in_=True)
        out, err = capture.read_global_capture()
        return f"captured:\n{(out + err)[-8_000:]}\n"


def _tasks() -> str:
    """Where the tasks of all loops stand."""
    waiting = [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]
    return "".join(f"{task!r}\n" for task in waiting[:TASKS_SHOWN])


def _end_descendants() -> None:
    """Servers and replicas that tests have started, so that nobody waits for their output."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while found := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= found
    for descendant in ours - {os.getpid()}:
        with contextlib.suppress(OSError):
            os.kill(descendant, signal.SIGKILL)
