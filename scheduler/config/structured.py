"""The keys that contain a list or a table: nodes and templates. As text they are JSON.

Ids and endpoints are checked as by the API, and member names match in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.config.kinds import Faults, Kind, Unacceptable, integer
from scheduler.config.members import load_json, member, repeated_names
from scheduler.domain.address import ENDPOINT_FORM, clean_endpoint
from scheduler.domain.labels import LABEL_FORM, LABELS_MAX, is_label
from scheduler.domain.limits import MEMORY_MB_MAX, UINT32_MAX
from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import Template
from scheduler.domain.text import ID_FORM, clean_id


def _json_from_text(raw: str) -> object:
    try:
        return load_json(raw)
    except (ValueError, RecursionError):
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


def _labels(raw: object, at: str) -> dict[str, str] | None:
    """None when the entry has none."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping) or len(raw) > LABELS_MAX:
        raise Unacceptable(f"a table of at most {LABELS_MAX} labels, name → value", at, raw)
    for name, value in raw.items():
        if not is_label(name) or not is_label(value):
            raise Unacceptable(f"names and values of {LABEL_FORM}", f"{at}.{name}", value)
    return dict(sorted(raw.items()))


def nodes() -> Kind[tuple[NodeAddress, ...]]:
    allowed = 'a list of {"id": …, "endpoint": "http://host:port"}, with "labels": {name: value} where there are any'

    def read(raw: object) -> tuple[NodeAddress, ...]:
        if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
            raise Unacceptable(allowed)
        addresses: dict[str, NodeAddress] = {}
        faults = Faults()
        for position, entry in enumerate(raw):
            at, node_id, endpoint = f"[{position}]", "", ""
            if not isinstance(entry, Mapping):
                faults.note(Unacceptable(allowed, at, entry))
                continue
            with faults.noted():
                node_id = _identifier(member(entry, "id", at), f"{at}.id")
                if node_id in addresses:
                    raise Unacceptable("an id that the list names once", f"{at}.id", node_id)
            with faults.noted():
                endpoint = _endpoint(member(entry, "endpoint", at), f"{at}.endpoint")
            labels = None
            with faults.noted():
                labels = _labels(member(entry, "labels", at), f"{at}.labels")
            addresses[node_id] = NodeAddress(node_id, endpoint, labels)
        faults.raise_all()
        return tuple(addresses.values())

    def show(listed: tuple[NodeAddress, ...]) -> list[dict[str, object]]:
        return [
            {"id": node.node_id, "endpoint": node.endpoint} | ({"labels": dict(node.labels)} if node.labels else {})
            for node in listed
        ]

    return Kind(allowed, read, _json_from_text, show)


def templates() -> Kind[Mapping[str, Template]]:
    allowed = 'a table of template id → {"cpu_count": …, "memory_mb": …}'
    cpu_count, memory_mb = integer(1, UINT32_MAX), integer(1, MEMORY_MB_MAX)

    def read(raw: object) -> Mapping[str, Template]:
        if not isinstance(raw, Mapping):
            raise Unacceptable(allowed)
        declared: dict[str, Template] = {}
        faults = Faults()
        for template_id, size in raw.items():
            at, cleaned_id = f".{template_id}", ""
            with faults.noted():
                cleaned_id = _identifier(template_id, at)
                if cleaned_id in declared or template_id in repeated_names(raw):
                    raise Unacceptable("an id that the table names once", at, template_id)
            if not isinstance(size, Mapping):
                faults.note(Unacceptable(allowed, at, size))
                continue
            cpus = memory = 0
            with faults.noted():
                cpus = _size(size, "cpu_count", cpu_count, at)
            with faults.noted():
                memory = _size(size, "memory_mb", memory_mb, at)
            declared[cleaned_id] = Template(cleaned_id, cpus, memory)
        faults.raise_all()
        return declared

    def show(declared: Mapping[str, Template]) -> dict[str, dict[str, int]]:
        return {
            template.template_id: {"cpu_count": template.cpu_count, "memory_mb": template.memory_mb}
            for template in declared.values()
        }

    return Kind(allowed, read, _json_from_text, show)


def _size(size: Mapping[str, object], name: str, kind: Kind[int], at: str) -> int:
    raw = member(size, name, at)
    try:
        return kind.read(raw)
    except Unacceptable as refused:
        raise Unacceptable(refused.allowed, f"{at}.{name}", raw) from None
