"""The exact versions in requirements/ are whole: whoever installs one of these files needs nothing beside it."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
DIRECT: dict[str, list[str]] = {
    "build": PROJECT["dependency-groups"]["build"],
    "run": PROJECT["project"]["dependencies"],
    "image": PROJECT["project"]["dependencies"] + EXTRAS["kubernetes"] + EXTRAS["otel"],
    "dev": PROJECT["project"]["dependencies"] + [line for extra in EXTRAS.values() for line in extra],
    "tools": PROJECT["dependency-groups"]["tools"],
}
SYSTEMS = [
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "aarch64"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix", "platform_machine": "arm64"},
]
VERSIONS = [
    line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
]
# The newest of each is meant; libraries that look at the third number look for early releases.
ENVIRONMENTS = [
    {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": version,
        "python_full_version": f"{version}.9",
        **system,
    }
    for version in VERSIONS
    for system in SYSTEMS
]


@dataclass(frozen=True)
class Pin:
    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def version(self) -> str:
        [specifier] = self.requirement.specifier
        assert specifier.operator == "=="
        return specifier.version

    def applies(self, environment: dict[str, str]) -> bool:
        return self.requirement.marker is None or self.requirement.marker.evaluate(environment)


@functools.cache
def pins(name: str) -> list[Pin]:
    """Every line is a package with its hashes, or a comment."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    found = []
    for line in re.sub(r"\\\n", "", text).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=", line.strip())
            found.append(Pin(Requirement(requirement), tuple(hashes)))
    return found


def locked(name: str, environment: dict[str, str]) -> dict[str, str]:
    """Package → version, as pip chooses in that environment."""
    chosen: dict[str, str] = {}
    for pin in pins(name):
        if pin.applies(environment):
            package = canonicalize_name(pin.requirement.name)
            assert package not in chosen, f"{package} twice in {name}.txt on Python {environment['python_version']}"
            chosen[package] = pin.version
    return chosen


def needed(lines: list[str], environment: dict[str, str], extra: str = "") -> Iterator[Requirement]:
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == PROJECT["project"]["name"]:
            continue  # extras of our own, which stand in the list themselves
        if requirement.marker is None or requirement.marker.evaluate(environment | {"extra": extra}):
            yield requirement


@pytest.mark.parametrize("name", DIRECT)
def test_every_dependency_of_the_project_is_locked_at_a_version_it_allows(name: str) -> None:
    for environment in ENVIRONMENTS:
        versions = locked(name, environment)
        for requirement in needed(DIRECT[name], environment):
            version = versions.get(canonicalize_name(requirement.name))
            assert version, f"{requirement} is not in requirements/{name}.txt: make lock"
            assert requirement.specifier.contains(version), f"{requirement}, but {version} is locked: make lock"


@pytest.mark.parametrize("name", ["run", "image", "dev"])
def test_what_the_dependencies_depend_on_is_locked_too(name: str) -> None:
    """As far as it is installed here, in the locked version or another."""
    environment = {key: str(value) for key, value in default_environment().items()}
    versions = locked(name, environment)
    waiting = list(needed(DIRECT[name], environment))
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        package = canonicalize_name(requirement.name)
        assert package in versions, f"{requirement} is not in requirements/{name}.txt: make lock"
        for extra in {"", *requirement.extras}:
            if (package, extra) not in seen:
                seen.add((package, extra))
                waiting += needed(metadata.requires(package) or [], environment, extra)
    assert len({package for package, _ in seen}) > len(DIRECT[name]) // 2


@pytest.mark.parametrize("name", DIRECT)
def test_each_line_is_one_version_with_the_hashes_of_its_files_and_no_place(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|^\s*-", re.sub(r"^    --hash=", "", text, flags=re.MULTILINE), re.MULTILINE)
    for pin in pins(name):
        assert pin.version
        assert pin.hashes, pin.requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in pin.hashes), pin.requirement


def test_the_files_agree_about_every_version() -> None:
    for environment in ENVIRONMENTS:
        everywhere: dict[str, str] = {}
        for name in DIRECT:
            for package, version in locked(name, environment).items():
                assert everywhere.setdefault(package, version) == version, package


def test_what_builds_the_package_is_locked() -> None:
    groups = {Requirement(line).name for line in PROJECT["dependency-groups"]["build"]}
    assert {Requirement(line).name for line in PROJECT["build-system"]["requires"]} <= groups


def test_whoever_installs_for_others_installs_what_is_locked() -> None:
    """An install of the Makefile, the image or CI takes a locked file, or takes nothing from an index."""
    for name in ("Makefile", "Dockerfile", ".ci/run"):
        text = re.sub(r"\\\n", " ", (ROOT / name).read_text(encoding="utf-8"))
        parts = [part for line in text.splitlines() for part in line.split("&&")]
        installs = [part for part in parts if re.search(r"(\bpip|\$pip|PIP\))( -\S+)* (install|wheel) ", part)]
        assert installs, name
        for part in installs:
            assert "--no-deps" in part, f"{name}: {part}"
            assert ("--require-hashes" in part) != ("--no-index" in part), f"{name}: {part}"
