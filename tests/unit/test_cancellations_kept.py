"""Nothing in the package swallows a cancellation by its form. This walks the sources, it imports nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_imports import PACKAGE, source_files

WAIT_FOR = "asyncio.wait_for loses a cancellation before Python 3.12; use asyncio.timeout"


def lost_cancellations(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and reason of everything that may lose a cancellation."""
    return [(node.lineno, reason) for node in ast.walk(tree) for reason in _reasons(node)]


def _reasons(node: Any) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="wait_for")):
            yield WAIT_FOR
        case ast.ImportFrom(module="asyncio", names=names) if any(alias.name == "wait_for" for alias in names):
            yield WAIT_FOR
        case ast.Call(func=function, args=caught) if _name(function) == "suppress" and any(map(_catches, caught)):
            yield "suppresses a cancellation, one's own as well; use end_tasks"
        case ast.ExceptHandler(type=caught) if caught is None or _catches(caught):
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                yield "catches a cancellation and raises nothing"


def _catches(node: ast.expr) -> bool:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(_name(name) in {"CancelledError", "BaseException"} for name in names)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_cancellation_is_lost(path: Path) -> None:
    assert lost_cancellations(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "await asyncio.wait_for(x, 1)",
        "from asyncio import wait_for",
        "with suppress(asyncio.CancelledError): pass",
        "try: pass\nexcept asyncio.CancelledError: pass",
        "try: pass\nexcept (OSError, CancelledError): return_it()",
        "try: pass\nexcept BaseException: pass",
        "try: pass\nexcept: pass",
    ],
)
def test_the_walk_finds(text: str) -> None:
    assert len(lost_cancellations(ast.parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "async with asyncio.timeout(1): pass",
        "condition.wait_for(x)",
        "try: pass\nexcept asyncio.CancelledError:\n  clean()\n  raise",
        "with suppress(TimeoutError): pass",
    ],
)
def test_the_walk_passes(text: str) -> None:
    assert lost_cancellations(ast.parse(text)) == []
