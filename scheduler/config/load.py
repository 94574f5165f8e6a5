"""Loads one frozen `Settings`; precedence: option, environment, file, image, default.

All faults are reported together: `ConfigurationError` lists every invalid key with its value, its source, and what
is allowed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from scheduler.config.addresses import redact_url
from scheduler.config.assemble import assemble
from scheduler.config.checks import contradictions, warnings_for
from scheduler.config.groups import Settings
from scheduler.config.key import Key
from scheduler.config.keys import KEYS
from scheduler.config.kinds import Unacceptable
from scheduler.config.sources import (
    Given,
    from_document,
    from_environment,
    from_image,
    from_options,
    nearest_key,
    read_file,
    suspicious_members,
    suspicious_variables,
)
from scheduler.errors import ConfigurationError, FieldError

CONFIG_FILE_VARIABLE = "SCHEDULER_CONFIG"
_FOUND_LENGTH_MAX = 200
_TOLD_MAX = 50
_LEDGER = "ledger."


@dataclass(frozen=True, slots=True)
class DescribedKey:
    """One key and its value in force: `value` contains no secret, `source` says where it came from."""

    key: Key
    value: Any
    source: str


def _not_loaded() -> NoReturn:
    raise ConfigurationError("these settings were not loaded from anywhere")


@dataclass(frozen=True, slots=True)
class Configuration:
    """`settings`, and where they came from. `warnings` are sentences for the start-up log; `reread` loads again from
    the same `file`, options and environment."""

    settings: Settings
    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    file: Path | None = None
    reread: Callable[[], Configuration] = field(default=_not_loaded, compare=False)

    def describe(self) -> Iterator[DescribedKey]:
        for path, key in KEYS.items():
            yield DescribedKey(key, key.shown(self.values[path]), self.sources.get(path, "default"))


def load_configuration(
    *,
    config_file: Path | str | None = None,
    options: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Read, check and assemble; raises ConfigurationError with every fault.

    `config_file` None takes the file named by SCHEDULER_CONFIG, if any."""
    variables = os.environ if environment is None else environment
    known = {path: value for path, value in (options or {}).items() if path in KEYS}
    file_name = config_file or variables.get(CONFIG_FILE_VARIABLE, "").strip()
    document = read_file(Path(file_name)) if file_name else {}
    in_file, faults = from_document(document, f"file {file_name}")
    given = from_image(variables) | in_file | from_environment(variables) | from_options(known)
    sources = {path: found.source for path, found in given.items()}
    problems = [_problem(fault, f"file {file_name}") for fault in faults]
    values, refused = _read(given)
    problems += refused
    problems += _contradictions(values, sources)
    problems += [_unknown(path) for path in options or () if path not in KEYS]
    if problems:
        raise _configuration_error(problems)
    return Configuration(
        replace(assemble(values), ledger_sources=_ledger_sources(sources)),
        values,
        sources,
        (*suspicious_members(document), *suspicious_variables(variables), *warnings_for(values, sources)),
        Path(file_name) if file_name else None,
        functools.partial(
            load_configuration, config_file=file_name or None, options=options, environment=dict(variables)
        ),
    )


def load_settings(
    *,
    config_file: Path | str | None = None,
    options: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """`load_configuration`, returning only the settings."""
    return load_configuration(config_file=config_file, options=options, environment=environment).settings


def _ledger_sources(sources: Mapping[str, str]) -> dict[str, str]:
    """As `Settings.ledger_sources` has them: of a file its name alone; who reads them need not know the machine."""
    found: dict[str, str] = {}
    for path, source in sources.items():
        key = KEYS[path]
        place = "ledger.self_registration" if path == "discovery.mode" else key.field
        if not isinstance(place, str) or not place.startswith(_LEDGER):
            continue
        kind, _, name = source.partition(" ")
        if kind == "file":
            shown = f"file {Path(name).name}"
        elif kind == "option":
            shown = "option"
        else:
            shown = f"{'image' if kind == key.default_variable else 'environment'} {kind}"
        found[place.removeprefix(_LEDGER)] = shown
    return found


@dataclass(frozen=True, slots=True)
class _Problem:
    """`sentence` replaces the usual text when the fault is not a value."""

    error: FieldError
    source: str
    sentence: str | None = None

    def __str__(self) -> str:
        if self.sentence is not None:
            return self.sentence
        found = "nothing" if self.error.found is None else repr(self.error.found)[:_FOUND_LENGTH_MAX]
        return f"{self.error.field}: found {found} ({self.source}); must be {self.error.allowed}"


def _read(given: Mapping[str, Given]) -> tuple[dict[str, Any], list[_Problem]]:
    values: dict[str, Any] = {path: key.default for path, key in KEYS.items()}
    problems: list[_Problem] = []
    for path, found in given.items():
        kind = KEYS[path].kind
        raw = kind.from_text(found.raw) if found.is_text and isinstance(found.raw, str) else found.raw
        try:
            values[path] = kind.read(raw)
        except Unacceptable as refused:
            for fault in (refused, *refused.more):
                shown = fault.found if fault.at else raw
                problems.append(_problem(FieldError(path + fault.at, shown, fault.allowed), found.source))
    return values, problems


def _problem(fault: FieldError, source: str) -> _Problem:
    """Without the passwords of an address."""
    found = fault.found
    return _Problem(replace(fault, found=redact_url(found)) if isinstance(found, str) else fault, source)


def _contradictions(values: Mapping[str, Any], sources: Mapping[str, str]) -> list[_Problem]:
    return [
        _Problem(FieldError(path, KEYS[path].shown(values[path]), allowed), sources.get(path, "default"))
        for path, allowed in contradictions(values)
    ]


def _unknown(path: str) -> _Problem:
    """The value is not shown: a misspelt redis_addr may contain a password."""
    near = nearest_key(path)
    sentence = f"there is no configuration key named {path}" + (f"; did you mean `{near}`?" if near else "")
    return _Problem(FieldError(path, path, "the name of a configuration key"), "option", sentence)


def _configuration_error(problems: Sequence[_Problem]) -> ConfigurationError:
    lines = [str(problem) for problem in problems[:_TOLD_MAX]]
    if more := len(problems) - len(lines):
        lines.append(f"and {more} more")
    detail = lines[0] if len(lines) == 1 else "\n".join([f"{len(problems)} faults", *(f"  - {line}" for line in lines)])
    return ConfigurationError(f"configuration: {detail}", errors=[problem.error.as_dict() for problem in problems])
