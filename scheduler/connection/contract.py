"""Parses the contract at the head of every script.

    -- schedule_sandbox.lua: one sentence that says what it does.
    -- Guarantee: what holds afterwards, whatever else happens at the same time.
    -- KEYS[1]: settings  the ledger's settings key; every other key shares its tag
    -- ARGV[1]: now_ms    milliseconds, or empty for the server's own time
    -- ARGV[2]: node_id
    -- ARGV[3..]: sandbox_ids  one per sandbox
    -- Reply: {status, …}
    -- Cost: O(log n) …

A section continues on comment lines that start with two spaces or more, and ends with the comment block. A script
raises no errors of its own: whatever it refuses is a reply, whose first word says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scheduler.errors import ConfigurationError

SECTIONS = ("Guarantee", "Reply", "Cost")

_SECTION = re.compile(r"^-- (Guarantee|KEYS\[(\d+)(\.\.)?\]|ARGV\[(\d+)(\.\.)?\]|Reply|Cost):\s*(.*)$")
_TITLE = re.compile(r"^-- ([a-z0-9_]+)\.lua:\s+(\S.*)$")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One KEYS or ARGV entry. `meaning` may be empty; `tail`: this entry and all that follow."""

    index: int
    name: str
    meaning: str
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Contract:
    """What a script guarantees and takes."""

    name: str
    summary: str
    guarantee: str
    keys: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]
    reply: str
    cost: str


def read_contract(text: str, shown: str) -> Contract:
    """Read the leading comment block of `text`; `shown` names the file in a ConfigurationError."""
    title: re.Match[str] | None = None
    summary: list[str] = []
    sections: dict[str, list[str]] = {}
    parameters: dict[str, list[tuple[int, bool, list[str]]]] = {"KEYS": [], "ARGV": []}
    open_text = summary
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("--") or re.match(r"--\s*@include", line):
            break
        if number == 1:
            title = _TITLE.match(line)
            if not title:
                raise ConfigurationError(f"{shown}:1: a script begins with -- name.lua: what it does")
            summary.append(title[2])
            continue
        section = _SECTION.match(line)
        if section:
            open_text = [section[6]]
            kind = section[1][:4]
            if kind in parameters:
                parameters[kind].append((int(section[2] or section[4]), bool(section[3] or section[5]), open_text))
            elif section[1] in sections:
                raise ConfigurationError(f"{shown}:{number}: {section[1]} appears twice")
            else:
                sections[section[1]] = open_text
        else:
            open_text.append(line[2:].strip())
    if title is None:
        raise ConfigurationError(f"{shown}:1: a script begins with -- name.lua: what it does")
    for name in SECTIONS:
        if not " ".join(sections.get(name, [])).strip():
            raise ConfigurationError(f"{shown}: the contract lacks {name}")
    return Contract(
        name=title[1],
        summary=_joined(summary),
        guarantee=_joined(sections["Guarantee"]),
        keys=_parameters(parameters["KEYS"], "KEYS", shown),
        arguments=_parameters(parameters["ARGV"], "ARGV", shown),
        reply=_joined(sections["Reply"]),
        cost=_joined(sections["Cost"]),
    )


def _parameters(found: list[tuple[int, bool, list[str]]], kind: str, shown: str) -> tuple[Parameter, ...]:
    parameters = []
    for expected, (index, tail, words) in enumerate(found, start=1):
        if index != expected:
            raise ConfigurationError(f"{shown}: {kind}[{index}] stands where {kind}[{expected}] is due")
        if tail and expected != len(found):
            raise ConfigurationError(f"{shown}: {kind}[{index}..] is not the last")
        name, _, meaning = _joined(words).partition(" ")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ConfigurationError(f"{shown}: {kind}[{index}] needs a name in small letters")
        parameters.append(Parameter(index, name, meaning.strip(), tail))
    return tuple(parameters)


def _joined(words: list[str]) -> str:
    return " ".join(part for part in words if part).strip()
