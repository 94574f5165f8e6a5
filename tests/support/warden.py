"""Servers that tests start end with the tests, also when a test process is killed before it can stop them.

Who interrupts a run with processes side by side, or asks twice, has pytest-xdist kill them in the middle of a test. So
each test process tells another, its warden, what it has started and what has ended. The warden hears when the test
process is no more, however it came to its end, and ends what is left with the folders it wrote to.
"""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
import threading
from pathlib import Path

# Of a session of its own, so that an interrupt from the terminal is none of its business.
_WARDEN = """
import os, shutil, signal, sys
left = {}
for line in sys.stdin:
    pid, folder = line.rstrip("\\n").split(" ", 1)
    if folder == "ended":
        left.pop(int(pid), None)
    else:
        left[int(pid)] = folder
for pid, folder in left.items():
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
"""


class Warden:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WARDEN], stdin=subprocess.PIPE, start_new_session=True, text=True
        )
        self._turn = threading.Lock()
        atexit.register(self._leave)

    def started(self, pid: int, folder: Path | None = None) -> None:
        """End this process, and remove its temporary folder, when this test process has ended."""
        self._tell(f"{pid} {folder or ''}\n")

    def ended(self, pid: int) -> None:
        """It is gone and waited for: its number may be another's soon."""
        self._tell(f"{pid} ended\n")

    def _leave(self) -> None:
        """This process comes to its end by itself; what it started has ended before."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with self._turn:
            self._process.stdin.write(line)
            self._process.stdin.flush()


@functools.cache
def warden() -> Warden:
    """That of this test process."""
    return Warden()
