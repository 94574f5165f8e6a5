"""The keys that contain a list or a table: nodes and templates. As text they are JSON.

Ids and endpoints are checked as by the API, and member names match in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from scheduler.config.kinds import Kind, Unacceptable, integer, member
from scheduler.domain.address import ENDPOINT_FORM, clean_endpoint
from scheduler.domain.limits import MEMORY_MB_MAX, UINT32_MAX
from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import Template
from scheduler.domain.text import ID_FORM, clean_id


def _json_from_text(raw: str) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _identifier(raw: object, at: str) -> str:
    cleaned = clean_id(raw) if isinstance(raw, str) else None
    if cleaned is None:
        raise Unacceptable(ID_FORM, at, raw)
    return cleaned


def _endpoint(raw: object, at: str) -> str:
    """The URL that a gateway proxies to."""
    cleaned = clean_endpoint(raw) if isinstance(raw, str) else None
    if cleaned is None:
        raise Unacceptable(ENDPOINT_FORM, at, raw)
    return cleaned


def nodes() -> Kind[tuple[NodeAddress, ...]]:
    allowed = 'a list of {"id": …, "endpoint": "http://host:port"}'

    def read(raw: object) -> tuple[NodeAddress, ...]:
        if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
            raise Unacceptable(allowed)
        addresses: dict[str, NodeAddress] = {}
        for position, entry in enumerate(raw):
            at = f"[{position}]"
            if not isinstance(entry, Mapping):
                raise Unacceptable(allowed, at, entry)
            node_id = _identifier(member(entry, "id"), f"{at}.id")
            if node_id in addresses:
                raise Unacceptable("an id that the list names once", f"{at}.id", node_id)
            addresses[node_id] = NodeAddress(node_id, _endpoint(member(entry, "endpoint"), f"{at}.endpoint"))
        return tuple(addresses.values())

    def show(listed: tuple[NodeAddress, ...]) -> list[dict[str, str]]:
        return [{"id": node.node_id, "endpoint": node.endpoint} for node in listed]

    return Kind(allowed, read, _json_from_text, show)


def templates() -> Kind[Mapping[str, Template]]:
    allowed = 'a table of template id → {"cpu_count": …, "memory_mb": …}'
    cpu_count, memory_mb = integer(1, UINT32_MAX), integer(1, MEMORY_MB_MAX)

    def read(raw: object) -> Mapping[str, Template]:
        if not isinstance(raw, Mapping):
            raise Unacceptable(allowed)
        declared: dict[str, Template] = {}
        for template_id, size in raw.items():
            at = f".{template_id}"
            if not isinstance(size, Mapping):
                raise Unacceptable(allowed, at, size)
            cleaned_id = _identifier(template_id, at)
            if cleaned_id in declared:
                raise Unacceptable("an id that the table names once", at, template_id)
            declared[cleaned_id] = Template(
                cleaned_id,
                _size(member(size, "cpu_count"), cpu_count, f"{at}.cpu_count"),
                _size(member(size, "memory_mb"), memory_mb, f"{at}.memory_mb"),
            )
        return declared

    def show(declared: Mapping[str, Template]) -> dict[str, dict[str, int]]:
        return {
            template.template_id: {"cpu_count": template.cpu_count, "memory_mb": template.memory_mb}
            for template in declared.values()
        }

    return Kind(allowed, read, _json_from_text, show)


def _size(raw: object, kind: Kind[int], at: str) -> int:
    try:
        return kind.read(raw)
    except Unacceptable as refused:
        raise Unacceptable(refused.allowed, at, raw) from None
