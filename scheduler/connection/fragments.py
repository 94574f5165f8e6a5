"""Checks that the files of a script fit together: what each of them may know, and that fragments say what they do.

A fragment (`lua/inline/x.lua`) begins with its name and says behind `Reads:` which names of its surroundings it uses,
and behind `Sets:` which names it leaves there, declared or assigned: nothing else, and nothing less.

    -- inline/decide.lua: which node, …
    -- Reads: settings, now, cursors, request
    -- Sets: context

What the libraries of `lua/include/` declare at their top level is known wherever they are included, and not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.connection.lua_names import Block, Local, Names, Use, read_names
from scheduler.connection.lua_tokens import LuaSyntaxError
from scheduler.connection.scripts import Piece, Script
from scheduler.errors import ConfigurationError

# What Redis and its Lua give a script, as far as the scripts use it.
_GIVEN = "redis KEYS ARGV math string struct table ipairs next pairs select tonumber tostring type unpack"
_GLOBALS = frozenset(re.findall(r"\w+", _GIVEN))
_TITLE = re.compile(r"^-- inline/([a-z0-9_]+)\.lua:\s+\S")
_SECTION = re.compile(r"^-- (Reads|Sets):\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Head:
    """What a fragment says of itself."""

    reads: frozenset[str]
    sets: frozenset[str]


def read_head(text: str, shown: str) -> Head:
    """The head of a fragment; `shown` names the file in a ConfigurationError."""
    lines = text.splitlines()
    title = _TITLE.match(lines[0]) if lines else None
    if not title or title[1] != Path(shown).stem:
        raise ConfigurationError(f"{shown}:1: a fragment begins with -- inline/{Path(shown).stem}.lua: what it does")
    sections: dict[str, str] = {}
    current = ""
    for number, line in enumerate(lines[1:], start=2):
        if not line.startswith("--") or re.match(r"--\s*@", line):
            break
        if section := _SECTION.match(line):
            if section[1] in sections:
                raise ConfigurationError(f"{shown}:{number}: {section[1]} appears twice")
            current, sections[section[1]] = section[1], section[2]
        elif current and line.startswith("--  "):
            sections[current] += " " + line[2:].strip()
        else:
            current = ""
    for name in ("Reads", "Sets"):
        if not sections.get(name):
            raise ConfigurationError(f"{shown}: the head lacks {name}; nothing is written: nothing")
    return Head(_names_in(sections["Reads"]), _names_in(sections["Sets"]))


def _names_in(words: str) -> frozenset[str]:
    return frozenset() if words == "nothing" else frozenset(re.split(r"\s*,\s*", words))


def check_script(script: Script) -> None:
    """Raises ConfigurationError for the first thing that does not fit together, with the file and line of it."""
    for fault in faults_of(script):
        raise ConfigurationError(fault)


def faults_of(script: Script) -> Iterator[str]:
    """All that does not fit together in a script, in words."""
    try:
        names = read_names(script.text)
    except LuaSyntaxError as error:
        yield f"{script.origin(error.line) or script.name}: {error}"
        return
    checker = _Checker(script, names)
    yield from checker.undeclared()
    yield from checker.misplaced()
    for piece in script.pieces:
        if piece.first <= piece.last:
            yield from checker.fragment(piece) if piece.is_fragment else checker.library(piece)


class _Checker:
    def __init__(self, script: Script, names: Names) -> None:
        self.script = script
        self.names = names
        self.folder = script.source.parent
        # Of each line the innermost piece that it belongs to: pieces are in the order in which they ended.
        self.piece_at: dict[int, Piece] = {}
        for piece in script.pieces:
            for line in range(piece.first, piece.last + 1):
                self.piece_at.setdefault(line, piece)
        self.uses_in: dict[Piece | None, list[Use]] = {}
        for use in names.uses:
            self.uses_in.setdefault(self.piece_at.get(use.line), []).append(use)
        self.locals_in: dict[Piece | None, list[Local]] = {}
        for local in names.locals:
            self.locals_in.setdefault(self.piece_at.get(local.line), []).append(local)

    def at(self, line: int) -> str:
        return str(self.script.origin(line))

    def block_of(self, piece: Piece) -> Block | None:
        """The block that a piece stands in."""
        lines = range(piece.first, piece.last + 1)
        return next((self.names.statements[line] for line in lines if line in self.names.statements), None)

    def undeclared(self) -> Iterator[str]:
        for use in self.names.uses:
            if use.local is None and (use.assigned or use.name not in _GLOBALS):
                yield f"{self.at(use.line)}: {use.name} is declared nowhere: an include is missing, or `local`"

    def misplaced(self) -> Iterator[str]:
        """An @include anywhere but at the top level of its file; a library twice where one of both would do."""
        standing: dict[Path, list[Block]] = {}
        for piece in sorted(self.script.pieces, key=lambda each: each.first):
            block = self.block_of(piece)
            if block is None:
                continue
            if not piece.inline and block is not self.block_around(piece):
                yield f"{piece.at}: @include stands at the top level of a file, in a function or branch it is @inline"
            if not piece.is_fragment:
                if any(_is_within(block, each) for each in standing.get(piece.path, ())):
                    shown = piece.path.relative_to(self.folder).as_posix()
                    yield f"{piece.at}: {shown} is put in twice: include it where both places see it"
                standing.setdefault(piece.path, []).append(block)

    def block_around(self, piece: Piece) -> Block | None:
        """The block that the file stands in which brings a piece."""
        outer = [each for each in self.script.pieces if each.first <= piece.first and piece.last <= each.last]
        around = outer[outer.index(piece) + 1 :]
        if around:
            return self.block_of(around[0])
        return self.names.statements[min(self.names.statements)]

    def surroundings(self, piece: Piece) -> Iterator[Use]:
        """What a file uses of what stands around it, but for what libraries declare at their top level."""
        for use in self.uses_in.get(piece, ()):
            if use.local is None or piece.first <= use.local.line <= piece.last:
                continue
            other = self.piece_at.get(use.local.line)
            if other is None or other.is_fragment or use.local.hidden or use.local.block is not self.block_of(other):
                yield use

    def library(self, piece: Piece) -> Iterator[str]:
        for use in self.surroundings(piece):
            yield (
                f"{self.at(use.line)}: a library knows nothing of what stands around it, but uses {use.name} of "
                f"{self.at(use.local.line if use.local else use.line)}: hand it over, or move the file to inline/"
            )

    def fragment(self, piece: Piece) -> Iterator[str]:
        shown = f"lua/{piece.path.relative_to(self.folder).as_posix()}"
        head = read_head(piece.path.read_text(encoding="utf-8"), shown)
        around = list(self.surroundings(piece))
        reads = {use.name for use in around if not use.assigned}
        block = self.block_of(piece)
        sets = {use.name for use in around if use.assigned}
        sets |= {each.name for each in self.locals_in.get(piece, ()) if each.block is block and not each.hidden}
        for word, said, found in (("Reads", head.reads, reads), ("Sets", head.sets, sets)):
            if said != found:
                told, true = _listed(said), _listed(found)
                yield f"{shown}, put in at {piece.at}: the head says {word}: {told}; true is: {true}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _is_within(block: Block, outer: Block) -> bool:
    inside: Block | None = block
    while inside is not None and inside is not outer:
        inside = inside.parent
    return inside is outer
