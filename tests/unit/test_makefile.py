"""Which Python the targets of the Makefile use, and what somebody with another one is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTED = ["3.11", "3.12", "3.13"]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# Says that it is another version. Its environments hold a copy of itself; what pip would do is written down.
PYTHON = """#!{real}
import sys, pathlib, shutil
{version}
match sys.argv[1:]:
    case ["-c", text]:
        exec(text)
    case ["-m", "venv", directory]:
        binaries = pathlib.Path(directory, "bin")
        binaries.mkdir(parents=True)
        shutil.copy(__file__, binaries / "python")
    case ["-m", "pip", *rest] if "--editable" in rest:
        with pathlib.Path("pip.log").open("a") as log:
            print("{name}", file=log)
"""


class Checkout:
    """A folder with the Makefile, and Pythons of any version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        shutil.copytree(ROOT / "requirements", folder / "requirements")

    def python(self, version: str) -> str:
        path = self.folder / f"python-{version}"
        numbers = tuple(map(int, version.split(".")))
        path.write_text(PYTHON.format(real=sys.executable, version=f"sys.version_info = {(*numbers, 0)}", name=version))
        path.chmod(0o755)
        return str(path)

    def install(self, version: str | None = None) -> tuple[int, str]:
        """`make` the environment. The exit status, and what was printed."""
        return self.make([] if version is None else [f"PYTHON={self.python(version)}"])

    def make(self, arguments: list[str]) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
        command = ["make", *arguments, ".venv/.installed"]
        made = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return made.returncode, made.stdout + made.stderr

    @property
    def installed_into(self) -> list[str]:
        """The version of the environment at each installation of this package so far."""
        log = self.folder / "pip.log"
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_versions_claimed_are_the_versions_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = [found[1] for line in project["classifiers"] if (found := re.fullmatch(r".*Python :: (3\.\d+)", line))]
    assert claimed == TESTED
    assert project["requires-python"] == f">={TESTED[0]}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {', '.join(TESTED[:-1])} or {TESTED[-1]}" in readme


@pytest.mark.parametrize("version", TESTED)
def test_a_version_that_is_tested_is_used_without_a_word(checkout: Checkout, version: str) -> None:
    status, printed = checkout.install(version)
    assert status == 0, printed
    assert printed.splitlines() == ["Installing agentenv-scheduler into .venv …"]
    assert checkout.installed_into == [version]


def test_an_older_version_is_refused_and_told_what_is_needed(checkout: Checkout) -> None:
    status, printed = checkout.install("3.10")
    assert status != 0
    assert "is Python 3.10; 3.11 or later is needed, tested are 3.11 3.12 3.13." in printed
    assert checkout.installed_into == []


def test_a_newer_version_is_told_that_nobody_tried_it_and_goes_on(checkout: Checkout) -> None:
    status, printed = checkout.install("3.14")
    assert status == 0, printed
    assert "Not tested with Python 3.14; the versions tested are 3.11 3.12 3.13. Going on with it." in printed
    assert checkout.installed_into == ["3.14"]


def test_what_is_no_python_is_told(checkout: Checkout) -> None:
    status, printed = checkout.make(["PYTHON=/nowhere/python3"])
    assert status != 0
    assert "/nowhere/python3 is no Python that runs here" in printed


def test_a_machine_without_python_is_told_so_and_nothing_else(checkout: Checkout) -> None:
    status, printed = checkout.make(["PYTHON="])  # what is left when none of the names is found
    assert status != 0
    said = [line for line in printed.splitlines() if not line.startswith("make:")]
    assert said == ["Python 3.11 or later is needed; none was found (make PYTHON=/path/to/python3)."]


def test_another_version_gets_another_environment_and_says_so(checkout: Checkout) -> None:
    checkout.install("3.11")
    status, printed = checkout.install("3.13")
    assert status == 0, printed
    assert ".venv is not of Python 3.13: making it anew." in printed
    assert checkout.installed_into == ["3.11", "3.13"]
    status, printed = checkout.install("3.11")
    assert status == 0, printed
    assert checkout.installed_into == ["3.11", "3.13", "3.11"]


def test_an_environment_is_kept_while_nobody_asks_for_another_version(checkout: Checkout) -> None:
    checkout.install("3.13")
    for version in (None, "3.13"):
        status, printed = checkout.install(version)
        assert status == 0
        assert "Installing" not in printed
    assert checkout.installed_into == ["3.13"]


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.install("3.12")
    (checkout.folder / ".venv/bin/python").unlink()
    status, printed = checkout.install("3.11")
    assert status == 0, printed
    assert checkout.installed_into == ["3.12", "3.11"]
