"""The path below which a proxy shows this scheduler: `/scheduler` in https://ops.example/scheduler/."""

from __future__ import annotations

import re

# No empty, `.` or `..` segment: put before a path, it stays a path of the same host.
PATH_PREFIX_PATTERN = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*"
PATH_PREFIX_FORM = "a path such as /scheduler, of letters, digits and . _ ~ -, without a slash at its end"
_PATH_PREFIX_MAX = 256
_FORM = re.compile(PATH_PREFIX_PATTERN)


def clean_path_prefix(text: str) -> str | None:
    """The prefix without slashes at its end, "" for none; None when it is not one."""
    prefix = text.strip().rstrip("/")
    return prefix if len(prefix) <= _PATH_PREFIX_MAX and _FORM.fullmatch(prefix) else None


def without_prefix(path: str, prefix: str) -> str:
    """The path below the prefix; a path that is not below it stays as it is."""
    if path == prefix:
        return "/"
    return path[len(prefix) :] if path.startswith(f"{prefix}/") else path
