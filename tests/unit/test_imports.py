"""Imports run one way; see `docs/architecture.md`. This walks the sources, it imports nothing."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "scheduler"
LAYERS = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__"}

# A layer may import itself and the layers named here. Modules directly under `scheduler/` count
# as a layer of their own name. The command line may import every layer.
ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "cancellation": set(),
    # Run as a file of its own, without the package.
    "health_probe": set(),
    "domain": {"errors"},
    "deadline": {"errors"},
    "config": {"domain", "errors"},
    "observability": {"domain", "errors"},
    "connection": {"errors", "deadline", "cancellation"},
    "ledger": {"connection", "domain", "errors", "deadline"},
    "service": {"ledger", "domain", "errors", "observability"},
    "access": {"domain", "errors", "observability"},
    "api": {"service", "ledger", "access", "domain", "errors", "deadline", "observability"},
    "configured_store": {"config", "connection"},
    # The operator's commands, over whatever answers them.
    "operating": {"domain", "errors", "cancellation"},
    # What a process is made of, and the tools beside it.
    "discovery": {"config", "service", "ledger", "domain", "errors", "observability", "cancellation"},
    "replica": {
        "config",
        "configured_store",
        "discovery",
        "api",
        "access",
        "service",
        "connection",
        "ledger",
        "domain",
        "errors",
        "observability",
        "cancellation",
    },
    "lab": {
        "config",
        "inspection",
        "replica",
        "service",
        "connection",
        "ledger",
        "domain",
        "errors",
        "observability",
        "cancellation",
    },
    "inspection": {
        "config",
        "configured_store",
        "api",
        "connection",
        "ledger",
        "domain",
        "errors",
        "cancellation",
        "operating",
    },
    "cli": LAYERS,
    "__main__": LAYERS,
}

# What only these layers may import.
OWNED_LIBRARIES: dict[str, set[str]] = {
    "redis": {"connection"},
    "fakeredis": {"connection"},
    "fastapi": {"api"},
    "starlette": {"api"},
    "grpc": {"api"},
    "typer": {"cli", "__main__"},
    "opentelemetry": {"observability"},
    # What serves does not need the client. The operator's commands do, and the lab, which plays gateways and nodes.
    "agentenv_scheduler_client": {"lab", "operating"},
    "httpx": {"lab"},
}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides its layer"
            assert node.module is not None
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def own_layer(module: str) -> str | None:
    """The layer of this package that `module` names; None for everything else."""
    package, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return name if package == "scheduler" and name in LAYERS else None


def source_files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "generated" not in path.parts)


def test_no_two_modules_know_each_other() -> None:
    """Neither directly nor through others, in a function or for types alone."""
    files = {".".join(("scheduler", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in source_files()}
    known = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        named = (module for _, module in imported_modules(path))
        graph[name] = {each if each in known else each.rpartition(".")[0] for each in named} & set(known) - {name}
    assert len(graph) > 150
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        pytest.fail(f"in a circle: {circle.args[1]}")


def test_the_walk_sees_the_package() -> None:
    assert {"errors", "domain", "ledger"} <= {layer_of(path) for path in source_files()}


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_layer_imports_only_what_lies_below_it(path: Path) -> None:
    layer = layer_of(path)
    assert layer in ALLOWED, f"{layer} is a new layer: say in ALLOWED what it may import"
    for line, module in imported_modules(path):
        target = own_layer(module)
        assert target in {None, layer} | ALLOWED[layer], f"{path}:{line}: {layer} must not import {module}"


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_library_is_imported_only_by_the_layer_that_translates_it(path: Path) -> None:
    for line, module in imported_modules(path):
        owners = OWNED_LIBRARIES.get(module.split(".")[0])
        # A package may bring its own commands, in a module or a package of that name.
        here = {layer_of(path), "cli"} if "cli" in (path.stem, path.parent.name) else {layer_of(path)}
        assert owners is None or here & owners, f"{path}:{line}: {module} belongs to {sorted(owners or ())}"
