"""Finds the Lua scripts, assembles them from their includes, and provides them by name.

A script is one file `verb_noun.lua`. A line `-- @include "include/x"` is replaced by the file `include/x.lua` the
first time it occurs, and dropped after that. An indented one belongs to the function or branch around it: its
definitions exist only there and cost nothing until it runs. Comments and empty lines are not sent; every sent line
remembers its file and number, so an error of the Lua interpreter is reported as `lua/include/x.lua:12`.
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

_INCLUDE = re.compile(r"^\s*--\s*@include\b\s*(.*?)\s*$")
_INCLUDE_NAME = re.compile(r'^"([A-Za-z0-9_/]+?)(?:\.lua)?"$')
_COMMENT = re.compile(r"^\s*--")
SHEBANG = "#!lua"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a sent line was written. `file` is relative, with forward slashes: `lua/x.lua`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Script:
    """One script as it is sent to Redis. `sha` is its EVALSHA digest; `origins[n - 1]` is where line n was written."""

    name: str
    text: str
    origins: tuple[Origin, ...]
    source: Path

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
class _Include:
    """`inside` a function: what it brings is known there alone."""

    here: Origin
    target: Path
    inside: bool


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
        self._parts: dict[Path, list[tuple[str, Origin] | _Include]] = {}

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
        lines: list[tuple[str, Origin]] = []
        if self.shebang:
            lines.append((SHEBANG, Origin(f"lua/{name}.lua", 1)))
        self._append(source, (), set(), lines)
        return Script(
            name=name,
            text="".join(f"{line}\n" for line, _ in lines),
            origins=tuple(origin for _, origin in lines),
            source=source,
        )

    def _append(self, path: Path, above: tuple[Path, ...], seen: set[Path], lines: list[tuple[str, Origin]]) -> None:
        """Append the lines of `path` with its includes in place. `above` is the chain of files that led here."""
        seen.add(path)
        for part in self._parts_of(path):
            if isinstance(part, tuple):
                lines.append(part)
                continue
            if part.target == path or part.target in above:
                chain = [*above, path, part.target]
                circle = " → ".join(self._shown(each) for each in chain[chain.index(part.target) :])
                raise ConfigurationError(f"{part.here}: circular include: {circle}")
            if part.target not in seen:
                self._append(part.target, (*above, path), set(seen) if part.inside else seen, lines)

    def _parts_of(self, path: Path) -> list[tuple[str, Origin] | _Include]:
        """The file without its comments; most are included by many scripts and read once."""
        if path in self._parts:
            return self._parts[path]
        shown, parts = self._shown(path), list[tuple[str, Origin] | _Include]()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if include := _INCLUDE.match(line):
                here = Origin(shown, number)
                parts.append(_Include(here, self._target(include[1], here), inside=line[0].isspace()))
            elif line.strip() and not _COMMENT.match(line):
                parts.append((line.rstrip(), Origin(shown, number)))
        self._parts[path] = parts
        return parts

    def _target(self, argument: str, here: Origin) -> Path:
        name = _INCLUDE_NAME.match(argument)
        if not name:
            raise ConfigurationError(f'{here}: an include is written -- @include "include/name", found: {argument}')
        target = self.folder / f"{name[1]}.lua"
        if not target.is_file():
            raise ConfigurationError(f"{here}: included file {self._shown(target)} does not exist")
        return target

    def _shown(self, path: Path) -> str:
        return f"lua/{path.relative_to(self.folder).as_posix()}"


@cache
def _loaded(folder: Path, shebang: bool) -> ScriptLibrary:
    library = ScriptLibrary(folder, shebang=shebang)
    for _ in library:
        pass
    return library
