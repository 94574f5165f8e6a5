"""What a trace may say beside sizes: labels and resources of nodes, and what requests require, take and spread.

    nodes      labels      zone=east gpu_model=h100         resources   gpu=8 disk=4000
    requests   require     zone=east+west gpu_model=h100    resources   gpu=1
               spread      web max=1, or: web zone skew=2

Cells may be empty, and columns missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from scheduler.domain.labels import LABELS_MAX, is_label
from scheduler.domain.placement import OVER_NODES, Spread
from scheduler.domain.resources import RESOURCES_MAX, TAKEN_NAMES
from scheduler.lab.trace_file import Row

NODE_TERMS = ("labels", "resources")
REQUEST_TERMS = ("require", "resources", "spread")

_SPREAD = re.compile(r"(\S+)(?:\s+([^\s=]+))?\s+(max|skew)=([1-9]\d{0,8})")
_AMOUNT = re.compile(r"\d{1,15}")
_APART = "a space apart, names and values up to 63 of A-Z a-z 0-9 . _ / -, no name twice"


def labels(row: Row) -> Mapping[str, str]:
    found = _pairs(row, "labels")
    if len(found) > LABELS_MAX or not all(is_label(name) and is_label(value) for name, value in found.items()):
        row.broken("labels", f"at most {LABELS_MAX} of name=value, {_APART}, as in: zone=east gpu_model=h100")
        return {}
    return found


def require(row: Row) -> Mapping[str, tuple[str, ...]]:
    found = {name: tuple(value.split("+")) for name, value in _pairs(row, "require").items()}
    if len(found) > LABELS_MAX or not all(
        is_label(name) and all(is_label(value) for value in values) for name, values in found.items()
    ):
        row.broken(
            "require", f"at most {LABELS_MAX} of name=value or name=value+value, {_APART}, as in: zone=east+west"
        )
        return {}
    return found


def resources(row: Row) -> Mapping[str, int]:
    found = _pairs(row, "resources")
    if len(found) > RESOURCES_MAX or not all(
        is_label(name) and name not in TAKEN_NAMES and _AMOUNT.fullmatch(amount) for name, amount in found.items()
    ):
        row.broken("resources", f"at most {RESOURCES_MAX} of name=integer, a space apart, as in: gpu=1 disk=4000")
        return {}
    return {name: int(amount) for name, amount in found.items()}


def spread(row: Row) -> Spread | None:
    text = row.cells.get("spread", "")
    found = _SPREAD.fullmatch(text)
    over = (found and found[2]) or OVER_NODES
    if text and (found is None or not is_label(over)):
        row.broken("spread", "a key, maybe a label, and max or skew, as in: web zone max=1")
    return Spread(found[1], over, **{found[3]: int(found[4])}) if found else None


def _pairs(row: Row, column: str) -> dict[str, str]:
    """A name that stands twice has no value."""
    parts = [part.partition("=") for part in row.cells.get(column, "").split()]
    names = [name for name, _, _ in parts]
    return {name: "" if names.count(name) > 1 else value for name, _, value in parts}
