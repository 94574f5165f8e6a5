"""What a test process started ends with it, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.support.warden import warden

def start(folder):
    # It holds our standard output open for as long as it runs.
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"])
    warden().started(process.pid, folder)
    return process

folder = Path(sys.argv[1])
folder.mkdir()
ended = start(None)
ended.kill()
ended.wait()
warden().ended(ended.pid)
start(folder)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_test_process_started_ends_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    # Returns once nobody holds the output any more: neither the process, nor what it started, nor its warden.
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=60
    )
    assert killed.returncode < 0
    assert not folder.exists()
