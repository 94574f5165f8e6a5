"""Whether an object is one that Kubernetes' API takes, by the types of its client library, which are made from the API
itself: every field is known, has its type, and none that is needed is missing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object, "datetime": str}


def faults_of(manifest: Mapping[str, Any]) -> list[str]:
    version = manifest["apiVersion"].rpartition("/")[2]
    return list(_of(manifest, f"{version.capitalize()}{manifest['kind']}", manifest["kind"]))


def _models() -> Any:
    """Hundreds of modules: imported by the test process that needs them."""
    return importlib.import_module("kubernetes_asyncio.client")


def _of(value: Any, kind: str, where: str) -> Iterator[str]:
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            yield f"{where} is a list, not {value!r}"
            return
        for number, inside in enumerate(value):
            yield from _of(inside, listed[1], f"{where}[{number}]")
    elif mapped := re.fullmatch(r"dict\((\w+), (.+)\)", kind):
        if not isinstance(value, dict):
            yield f"{where} is a table, not {value!r}"
            return
        for key, inside in value.items():
            yield from _of(inside, mapped[2], f"{where}.{key}")
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{where} is of type {kind}, not {value!r}"
    else:
        yield from _of_model(value, getattr(_models(), kind), where)


def _of_model(value: Any, model: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where} is an object, not {value!r}"
        return
    names = {outside: inside for inside, outside in model.attribute_map.items()}
    for name, content in value.items():
        if name in names:
            yield from _of(content, model.openapi_types[names[name]], f"{where}.{name}")
        else:
            yield f"{where} has no field {name}"
    given = {names[name]: content for name, content in value.items() if name in names}
    try:
        model(**given)
    except ValueError as error:  # a field that is needed, or a value that is none of those allowed
        yield f"{where}: {error}"
