"""The client is a distribution of its own: httpx and nothing else, one source for both flavours, complete by itself."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

import agentenv_scheduler_client
import scheduler
from tests.docs.commands import ROOT

PROJECT = ROOT / "clients/python"
PACKAGE = PROJECT / "agentenv_scheduler_client"


def test_the_blocking_client_is_what_its_source_says() -> None:
    spec = importlib.util.spec_from_file_location("generate_sync", PROJECT / "generate_sync.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    written = generator.written()
    assert {path.name for path in written} == {
        path.name for path in (PACKAGE / "_async").glob("*.py") if path.name not in generator.BY_HAND
    }
    for path, content in written.items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name}: `make client` writes it anew"


def test_it_imports_httpx_and_nothing_else_that_is_not_pythons_own() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                names = [node.module]
            tops = {name.partition(".")[0] for name in names}
            assert tops <= sys.stdlib_module_names | {"httpx", "agentenv_scheduler_client"}, f"{path}: {tops}"


def test_client_and_server_have_one_version_and_everything_public_has_a_name() -> None:
    assert agentenv_scheduler_client.__version__ == scheduler.__version__
    for name in agentenv_scheduler_client.__all__:
        assert hasattr(agentenv_scheduler_client, name)


PROGRAM = """
import asyncio, sys
sys.path.append(sys.argv[1])
import httpx
from agentenv_scheduler_client import AsyncSchedulerClient, SchedulerClient

answer = {"node": {"node_id": "a", "endpoint": "http://a:1"}, "strategy": "new"}
transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer))

async def main():
    async with AsyncSchedulerClient("http://s", transport=transport) as client:
        return await client.schedule()

with SchedulerClient("http://s", transport=transport) as client:
    assert client.schedule() == asyncio.run(main())
assert "scheduler" not in sys.modules
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_its_wheel_works_alone(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(PROJECT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    environment, dependencies = tmp_path / "environment", tmp_path / "dependencies"
    dependencies.mkdir()
    for folder in _folders_of(_needed(wheel)):
        (dependencies / folder.name).symlink_to(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        assert "agentenv_scheduler_client/py.typed" in archive.namelist()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    told = subprocess.run(
        [environment / "bin/python", "-I", "-W", "error", "-c", PROGRAM, str(dependencies)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert not set(told.stdout.split()) & {"scheduler", "pydantic", "redis", "grpc", "fastapi", "structlog"}


def _needed(wheel: str) -> set[str]:
    """The distributions that the wheel asks for, and what those ask for."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = [line for line in archive.read(path).decode().splitlines() if line.startswith("Requires-Dist")]
    assert asked == ["Requires-Dist: httpx>=0.28"]
    needed, open_ends = set[str](), ["httpx"]
    while open_ends:
        name = open_ends.pop()
        needed.add(name)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in needed:
                open_ends.append(requirement.name)
    return needed


def _folders_of(names: set[str]) -> Iterator[Path]:
    for name in names:
        tops = {file.parts[0] for file in metadata.files(name) or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            yield Path(str(metadata.distribution(name).locate_file(top)))
