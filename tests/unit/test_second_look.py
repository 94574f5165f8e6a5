"""What CI looks at twice, and what fails at once; pytest runs on a small suite of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.second_look import MARKED, MOST, VARIABLE

ROOT = Path(__file__).parents[2]
PLUGINS = "-p xdist.plugin -p pytest_timeout -p tests.support.second_look"  # all others would only cost time
ON_TIME = "@pytest.mark.real_time\n"
# Fails when it is run for the first time only, as on a machine that was busy for a moment.
FAILS_ONCE = """
def test_fails_once():
    if not FILE.with_suffix(".ran").exists():
        FILE.with_suffix(".ran").touch()
        assert False
"""
FAILS = """
def test_fails():
    assert False
"""
PASSES = """
def test_passes():
    pass
"""
DIES = """
def test_dies():
    import os
    os._exit(1)
"""
HANGS_ONCE = """
@pytest.mark.timeout(2)
def test_hangs_once():
    if not FILE.with_suffix(".ran").exists():
        FILE.with_suffix(".ran").touch()
        import threading
        threading.Event().wait()
"""


class Run:
    """One run of pytest on a file of these tests, as CI starts it."""

    def __init__(self, directory: Path, *tests: str, processes: int = 0) -> None:
        names = directory / "second-looks"
        head = "import pathlib, pytest\nFILE = pathlib.Path(__file__)\n"
        (directory / "test_sample.py").write_text(head + "\n".join(tests))
        (directory / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers {PLUGINS}\n")
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", str(processes), "-p", "no:cacheprovider", str(directory)],
            cwd=directory,
            env=os.environ | {VARIABLE: str(names), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.status = ended.returncode
        self.output = ended.stdout + ended.stderr
        self.second_looks = names.read_text().splitlines() if names.exists() else []


def test_a_marked_test_that_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, ON_TIME + FAILS_ONCE, PASSES)
    assert run.status == 0, run.output
    assert run.second_looks == ["test_sample.py::test_fails_once"]
    assert "A second look, alone, at test_sample.py::test_fails_once" in run.output


def test_a_marked_test_that_fails_twice_has_failed(tmp_path: Path) -> None:
    run = Run(tmp_path, ON_TIME + FAILS, PASSES)
    assert run.status == 1
    assert run.second_looks == []
    assert run.output.count("A second look") == 1


@pytest.mark.parametrize(
    ("failing", "processes"),
    [
        pytest.param(FAILS_ONCE, 0, id="a test that is not marked"),
        pytest.param(ON_TIME + HANGS_ONCE, 0, id="a marked test that hung"),
        pytest.param(ON_TIME + DIES, 1, id="a marked test that ended its process"),
        pytest.param("import nothing_of_this_name", 0, id="a file that cannot be read"),
        pytest.param(ON_TIME + FAILS_ONCE + FAILS, 0, id="another test beside a marked one"),
    ],
)
def test_everything_else_fails_at_once(tmp_path: Path, failing: str, processes: int) -> None:
    run = Run(tmp_path, failing, PASSES, processes=processes)
    assert run.status not in (0, 5), run.output
    assert run.second_looks == []
    assert "A second look" not in run.output


def test_when_all_pass_nothing_is_looked_at_twice(tmp_path: Path) -> None:
    run = Run(tmp_path, PASSES)
    assert run.status == 0, run.output
    assert run.second_looks == []
    assert "A second look" not in run.output


def test_no_more_than_ten_tests_are_marked(pytestconfig: pytest.Config) -> None:
    """Of those that this run collected, so that only a run of all sees all."""
    marked = pytestconfig.stash[MARKED]
    assert len(marked) <= MOST, marked
