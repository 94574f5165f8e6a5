"""Answers that are taken apart before a caller sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentenv_scheduler_client.nodes import Node
from agentenv_scheduler_client.reading import Unreadable, read


@dataclass(frozen=True, slots=True)
class NodePage:
    """Servers that do not page answer all nodes without a cursor."""

    nodes: tuple[Node, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class _Counted:
    counted: int


@dataclass(frozen=True, slots=True)
class _Document:
    info: Mapping[str, Any] = field(default_factory=dict)


def events_counted(answer: Any) -> int:
    return read(_Counted, answer).counted


def answered_object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise Unreadable("no object")
    return answer


def version_in(document: Any) -> str:
    """The version that an OpenAPI document names."""
    return str(read(_Document, document).info.get("version", ""))
