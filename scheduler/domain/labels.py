"""Labels of nodes, and what a request requires of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LABELS_MAX = 16
LABEL_VALUES_MAX = 16
LABEL_PATTERN = r"[A-Za-z0-9._/-]{1,63}"
LABEL_FORM = "1 to 63 of the characters A-Z a-z 0-9 . _ / -"
_LABEL = re.compile(LABEL_PATTERN)


def is_label(text: object) -> bool:
    """Whether a text may be the name or the value of a label."""
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def written(labels: Mapping[str, str | Sequence[str]] | None) -> str:
    """Labels, or what is required of them, as the scripts take them: `name=value;name=value,value`, by name."""
    if not labels:
        return ""
    values = ((name, value if isinstance(value, str) else ",".join(value)) for name, value in labels.items())
    return ";".join(f"{name}={value}" for name, value in sorted(values))


def read(text: str) -> dict[str, str]:
    """The labels of such a text."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(";")) if name}


def fit_labels(found: Mapping[str, str]) -> dict[str, str]:
    """Of labels that others have made (Kubernetes), those that a node may have: at most 16, the first by name."""
    fit = [(name, value) for name, value in sorted(found.items()) if is_label(name) and is_label(value)]
    return dict(fit[:LABELS_MAX])
