"""Collects raw values from options, environment, file and an image's defaults, each as `path → Given`.

A blank value in the environment or a file counts as not given, as in AgentENV; a blank option is a mistake (most
likely an unset shell variable) and is checked like any value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scheduler.config.keys import KEYS, TOP_LEVEL
from scheduler.config.kinds import Unacceptable
from scheduler.config.members import load_json, member
from scheduler.errors import ConfigurationError, FieldError

SECTION = "scheduler"
_OTHER_SECTIONS = frozenset({"gateway"})  # AgentENV's gateway reads the same file

_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets `<SERVICE>_PORT=tcp://…` in every pod for each Service. One called `scheduler-http` would collide
with our `SCHEDULER_HTTP_PORT`; such a value is ignored."""

_SERVICE_VARIABLE = re.compile(r"_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")
"""And these, for a Service whose name begins with `scheduler-`."""

_PREFIX = "SCHEDULER_"
# Beside those of keys: which file to read, and what the commands that ask a replica read.
OTHER_VARIABLES = frozenset(
    _PREFIX + name for name in ("CONFIG", "URL", "API_KEY", "API_KEY_FILE", "CA_FILE", "CERT_FILE", "KEY_FILE")
)


@dataclass(frozen=True, slots=True)
class Given:
    """A raw value and its source. `is_text`: it must still be converted to its type."""

    raw: object
    source: str
    is_text: bool


def from_options(options: Mapping[str, object]) -> dict[str, Given]:
    """`options` is keyed by path; None is an option that was not used."""
    return {
        path: Given(value, "option", isinstance(value, str)) for path, value in options.items() if value is not None
    }


def from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for path, key in KEYS.items():
        for variable in key.environment:
            value = environment.get(variable, "")
            if value.strip() and not (path.endswith(".port") and _SERVICE_LINK.match(value)):
                given[path] = Given(value, variable, is_text=True)
                break
    return given


def from_image(environment: Mapping[str, str]) -> dict[str, Given]:
    """`SCHEDULER_DEFAULT_…`: defaults set by an image, which the operator's file may still change."""
    return {
        path: Given(environment[key.default_variable], key.default_variable, is_text=True)
        for path, key in KEYS.items()
        if environment.get(key.default_variable, "").strip()
    }


def suspicious_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each `SCHEDULER_…` that nothing reads and that looks like a misspelt variable of a key."""
    read = {name: name for key in KEYS.values() for name in (*key.environment, key.default_variable)}
    by_path = {_PREFIX + path.upper().replace(".", "_"): key.environment[0] for path, key in KEYS.items()}
    meant = {name.removeprefix(_PREFIX): variable for name, variable in (by_path | read).items()}
    for name, value in sorted(environment.items()):
        if not name.startswith(_PREFIX) or not value.strip() or name in read or name in OTHER_VARIABLES:
            continue
        if _SERVICE_VARIABLE.search(name) or _SERVICE_LINK.match(value):
            continue
        if near := get_close_matches(name.removeprefix(_PREFIX), meant, n=1, cutoff=0.8):
            yield f"the variable `{name}` is not read; did you mean `{meant[near[0]]}`?"


def load_toml(content: str) -> Any:
    import tomllib  # not for commands without a file

    return tomllib.loads(content)


def read_file(path: Path) -> Mapping[str, Any]:
    """A TOML file by its suffix, else JSON."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"the configuration file {path} cannot be read: {reason}") from error
    form = "TOML" if path.suffix.lower() == ".toml" else "JSON"
    try:
        document = load_toml(content) if form == "TOML" else load_json(content)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the configuration file {path} is not {form}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"the configuration file {path} must hold an object, not {type(document).__name__}")
    return document


def from_document(document: Mapping[str, Any], source: str) -> tuple[dict[str, Given], list[FieldError]]:
    """What the file gives, and what cannot be read of it. Member names match in any case, as in Go's JSON reader; null
    and blank count as not given."""
    given: dict[str, Given] = {}
    faults: dict[str, FieldError] = {}
    for path in KEYS:
        names = [path] if path in TOP_LEVEL else [SECTION, *path.split(".")]
        try:
            value = _walked(document, names)
        except Unacceptable as refused:
            faults[refused.at] = FieldError(refused.at, refused.found, refused.allowed)
            continue
        if value is not None and not (isinstance(value, str) and not value.strip()):
            given[path] = Given(value, source, is_text=False)
    return given, list(faults.values())


def _walked(document: Mapping[str, Any], names: Sequence[str]) -> Any:
    value: Any = document
    for position, name in enumerate(names):
        if value is None:
            break
        at = ".".join(names[:position])
        if not isinstance(value, Mapping):
            raise Unacceptable("a table of keys", at, value)
        try:
            value = member(value, name)
        except Unacceptable as refused:
            raise Unacceptable(refused.allowed, f"{at}{refused.at}".removeprefix("."), refused.found) from None
    return value


def nearest_key(path: str) -> str | None:
    """The key that was most likely meant by `path`."""
    near = get_close_matches(path, KEYS, n=1, cutoff=0.8)
    return near[0] if near else None


def suspicious_members(document: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each unknown member that looks like a misspelt or misplaced key.

    Other unknown members are ignored: AgentENV's file may contain what only AgentENV reads."""
    tree = _tree()
    inside = member(document, SECTION)
    yield from _suspicious(inside if isinstance(inside, Mapping) else {}, tree, "")
    beside = {SECTION, *TOP_LEVEL, *_OTHER_SECTIONS}
    for name in document:
        if name.casefold() in beside:
            continue
        if name.casefold() in tree:
            yield f"`{name}` stands beside the section `{SECTION}`, where it is not read; it belongs inside"
        elif near := get_close_matches(name.casefold(), beside, n=1, cutoff=0.8):
            yield f"`{name}` is not read; did you mean `{near[0]}`?"


def _suspicious(table: Mapping[str, Any], known: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for written, value in table.items():
        name = written.casefold()
        if name in known:
            if known[name] and isinstance(value, Mapping):
                yield from _suspicious(value, known[name], f"{prefix}{name}.")
        elif name in TOP_LEVEL and not prefix:
            yield f"`{SECTION}.{written}` is not read; it belongs beside the section, at the top of the file"
        elif near := get_close_matches(name, known, n=1, cutoff=0.8):
            yield f"`{SECTION}.{prefix}{written}` is not read; did you mean `{prefix}{near[0]}`?"


def _tree() -> dict[str, Any]:
    """The keys of the section as nested tables; a leaf is an empty one."""
    tree: dict[str, Any] = {}
    for path in KEYS.keys() - TOP_LEVEL:
        branch = tree
        for name in path.split("."):
            branch = branch.setdefault(name, {})
    return tree
