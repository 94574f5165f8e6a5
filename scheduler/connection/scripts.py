"""Finds the Lua scripts, assembles them from their includes, and provides them by name.

A script is one file `verb_noun.lua`. Two lines put another file in their place:

    -- @include "include/x"   at the top level of a file: once, for all that follows
    -- @inline "inline/x"     anywhere: exactly here, so it sees and sets what stands around it
    -- @inline "include/x"    the same of a library that only this function or branch needs, unless it is known there

`include/` has libraries, which know each other and nothing of a script. `inline/` has fragments, whose heads say what
they read and set; `fragments.py` checks both. Other comments and empty lines are not sent. A comment tells where each
stretch of a file begins, and every sent line remembers its file and number, so an error of the Lua interpreter is
reported as `lua/include/x.lua:12`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from scheduler.connection.contract import Contract, read_contract
from scheduler.errors import ConfigurationError

_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel the scripts lie inside the package; in a source tree or editable install, beside it.
_FOLDERS = (_PACKAGE / "lua", _PACKAGE.parent / "lua")

_DIRECTIVE = re.compile(r"^\s*--\s*@(\w+)\b\s*(.*?)\s*$")
_TARGET = re.compile(r'^"((include|inline)/[A-Za-z0-9_]+?)(?:\.lua)?"$')
_COMMENT = re.compile(r"^\s*--")
SHEBANG = "#!lua"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a sent line was written. `file` is relative, with forward slashes: `lua/x.lua`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Piece:
    """One file put in place: it fills the sent lines `first` to `last`, with all that it brings.

    `inline`: the directive was @inline; `at` is where that stands."""

    path: Path
    first: int
    last: int
    inline: bool
    at: Origin

    @property
    def is_fragment(self) -> bool:
        return self.path.parent.name == "inline"


@dataclass(frozen=True)
class Script:
    """One script as it is sent to Redis. `sha` is its EVALSHA digest; `origins[n - 1]` is where line n was written;
    `pieces` are the files that were put in, outer ones behind those that they bring."""

    name: str
    text: str
    origins: tuple[Origin, ...]
    source: Path
    pieces: tuple[Piece, ...] = ()

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def contract(self) -> Contract:
        """The parsed header of the file. Raises ConfigurationError when it is malformed."""
        return read_contract(self.source.read_text(encoding="utf-8"), f"lua/{self.source.name}")

    def origin(self, line: int) -> Origin | None:
        """Where line `line` (from 1, as Lua counts) of the sent text was written."""
        return self.origins[line - 1] if 0 < line <= len(self.origins) else None


@dataclass(frozen=True, slots=True)
class _Directive:
    """A line that names another file, and which."""

    here: Origin
    target: Path
    inline: bool


class _Assembly:
    """The lines of a script so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.origins: list[Origin] = []
        self.pieces: list[Piece] = []
        self._file = ""

    def add(self, line: str, origin: Origin) -> None:
        if origin.file != self._file:
            self._append(f"-- {origin}", origin)
        self._file = origin.file
        self._append(line, origin)

    def _append(self, line: str, origin: Origin) -> None:
        self.lines.append(line)
        self.origins.append(origin)


def find_folder() -> Path:
    """The `lua` folder of this installation."""
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    looked = " and ".join(str(folder) for folder in _FOLDERS)
    raise ConfigurationError(f"the Lua scripts are missing: looked in {looked}; reinstall the package")


class ScriptLibrary:
    """All scripts of one folder, each assembled when it is first used.

    `shebang` prepends `#!lua`, with which Redis 7 and later turn an access outside of the declared slot into an
    error. Raises ConfigurationError, with file and line, for a missing file, a cycle, or a malformed include."""

    def __init__(self, folder: Path, *, shebang: bool = False) -> None:
        self.folder = folder
        self.shebang = shebang
        self._scripts: dict[str, Script] = {}
        self._parts: dict[Path, list[tuple[str, Origin] | _Directive]] = {}

    @classmethod
    def load(cls, *, shebang: bool = False) -> ScriptLibrary:
        """The product's own scripts, all assembled at once, so that a broken one fails the start. Shared by all
        ledgers of the process."""
        return _loaded(find_folder(), shebang)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in self.folder.glob("*.lua")))

    def __iter__(self) -> Iterator[Script]:
        return (self.get(name) for name in self.names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def get(self, name: str) -> Script:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._assemble(name)
        return script

    def render(self, name: str) -> str:
        """The exact text that is sent to Redis."""
        return self.get(name).text

    def _assemble(self, name: str) -> Script:
        source = self.folder / f"{name}.lua"
        if not re.fullmatch(r"[a-z0-9_]+", name) or not source.is_file():
            raise ConfigurationError(f"no script {name!r}; there are {', '.join(self.names) or 'none'}")
        assembly = _Assembly()
        if self.shebang:
            assembly.lines.append(SHEBANG)
            assembly.origins.append(Origin(f"lua/{name}.lua", 1))
        self._append(source, (), set(), assembly)
        return Script(
            name=name,
            text="".join(f"{line}\n" for line in assembly.lines),
            origins=tuple(assembly.origins),
            source=source,
            pieces=tuple(assembly.pieces),
        )

    def _append(self, path: Path, above: tuple[Path, ...], known: set[Path], assembly: _Assembly) -> None:
        """Append the lines of `path` with what it brings. `above` is the chain of files that led here, `known` what
        has been included where it stands."""
        known.add(path)
        for part in self._parts_of(path):
            if isinstance(part, tuple):
                assembly.add(*part)
                continue
            if part.target == path or part.target in above:
                chain = [*above, path, part.target]
                circle = " → ".join(self._shown(each) for each in chain[chain.index(part.target) :])
                raise ConfigurationError(f"{part.here}: circular include: {circle}")
            if part.target in known and part.target.parent.name == "include":
                continue
            first = len(assembly.lines) + 1
            # Where the block around an @inline ends is not asked here, so what it brings is known in it alone.
            self._append(part.target, (*above, path), set(known) if part.inline else known, assembly)
            assembly.pieces.append(Piece(part.target, first, len(assembly.lines), part.inline, part.here))

    def _parts_of(self, path: Path) -> list[tuple[str, Origin] | _Directive]:
        """The file without its comments; most are included by many scripts and read once."""
        if path in self._parts:
            return self._parts[path]
        shown, parts = self._shown(path), list[tuple[str, Origin] | _Directive]()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if found := _DIRECTIVE.match(line):
                parts.append(self._directive(found[1], found[2], Origin(shown, number)))
            elif line.strip() and not _COMMENT.match(line):
                parts.append((line.rstrip(), Origin(shown, number)))
        self._parts[path] = parts
        return parts

    def _directive(self, name: str, argument: str, here: Origin) -> _Directive:
        if name not in ("include", "inline"):
            raise ConfigurationError(f"{here}: there is @include and @inline, found: @{name}")
        target = _TARGET.match(argument)
        if not target:
            expected = f'-- @{name} "include/name"' + (' or "inline/name"' if name == "inline" else "")
            raise ConfigurationError(f"{here}: an include is written {expected}, found: {argument}")
        if name == "include" and target[2] == "inline":
            raise ConfigurationError(f"{here}: {target[1]} depends on where it stands: write @inline")
        path = self.folder / f"{target[1]}.lua"
        if not path.is_file():
            raise ConfigurationError(f"{here}: included file {self._shown(path)} does not exist")
        return _Directive(here, path, name == "inline")

    def _shown(self, path: Path) -> str:
        return f"lua/{path.relative_to(self.folder).as_posix()}"


@cache
def _loaded(folder: Path, shebang: bool) -> ScriptLibrary:
    library = ScriptLibrary(folder, shebang=shebang)
    for _ in library:
        pass
    return library
