"""A table in a file as people have it: CSV with commas, semicolons or tabs, with or without a byte order mark, spaces
around names and values, names in any case, gzipped, or from standard input.

What cannot be read is told with its line and what would be allowed, all of it at once, so that one correction will do.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from scheduler.domain.text import ID_FORM, clean_id
from scheduler.errors import ConfigurationError

STANDARD_INPUT = Path("-")
FAULTS_SHOWN_MAX = 20

_DELIMITERS = ",;\t|"
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"[0-9]+,[0-9]+")


class TraceFile:
    """One file, and what was found wrong in it."""

    def __init__(self, file: Path) -> None:
        self.name = "standard input" if file == STANDARD_INPUT else str(file)
        self._file = file
        self._faults: list[str] = []
        self._fault_count = 0
        self._width = 0
        self.unread: tuple[str, ...] = ()
        """Columns of the file that nobody asked for."""

    def rows(
        self, columns: Sequence[str], instead: Mapping[str, str] | None = None, may: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Every line that holds something, its cells by column. `instead`: column → another that says the same in its
        own way; a file has one of the two, and a row the cells of the one it has. `may`: what it may have besides."""
        instead = instead or {}
        known = (*columns, *instead.values(), *may)
        text = self._text()
        content = io.StringIO(text, newline="")
        lines = csv.reader(content, delimiter=_delimiter(text, known), skipinitialspace=True, strict=True)
        try:
            filled = ((lines.line_num, cells) for cells in lines if any(cell.strip() for cell in cells))
            places = self._places(next(filled, (0, []))[1], (columns, may), instead)
            for line, cells in filled if places else ():
                if any(cell.strip() for cell in cells[self._width :]):
                    self.fault(f"line {line}: {len(cells)} cells, but the header names {self._width} columns")
                yield Row(self, line, {name: cells[at].strip() if at < len(cells) else "" for name, at in places})
        except csv.Error as error:
            self.fault(f"line {lines.line_num}: cannot be read as CSV: {error}")

    def fault(self, text: str) -> None:
        self._fault_count += 1
        if len(self._faults) < FAULTS_SHOWN_MAX:
            self._faults.append(text)

    def finish(self) -> None:
        """Raises ConfigurationError with everything that is wrong, if something is."""
        if self._fault_count == 1:
            [fault] = self._faults
            raise ConfigurationError(f"{self.name}{', ' if fault.startswith('line ') else ': '}{fault}")
        if self._fault_count:
            more = self._fault_count - len(self._faults)
            listed = [*self._faults, f"and {more:,} more"] if more else self._faults
            raise ConfigurationError("\n  - ".join([f"{self.name}: {self._fault_count:,} faults", *listed]))

    def _places(
        self, header: Sequence[str], wanted: tuple[Sequence[str], Sequence[str]], instead: Mapping[str, str]
    ) -> list[tuple[str, int]]:
        """(column, position) for those that the file has; none when it lacks one."""
        columns, may = wanted
        names = [_named(name) for name in header]
        self._width = len(names)
        known = (*columns, *instead.values(), *may)
        found = [name for name in known if name in names]
        self.unread = tuple(name for name in names if name and name not in known)
        twice = sorted({name for name in found if names.count(name) > 1})
        twice += [f"{name} and {instead[name]}" for name in instead if {name, instead[name]} <= set(names)]
        if twice:
            self.fault(f"the header names {', '.join(twice)} twice")
        missing = [name for name in columns if name not in names and instead.get(name) not in names]
        if missing:
            self.fault(f"the header lacks {', '.join(missing)}{_what_it_has(names, missing)}")
        return [] if twice or missing else [(name, names.index(name)) for name in found]

    def _text(self) -> str:
        try:
            content = sys.stdin.buffer.read() if self._file == STANDARD_INPUT else self._file.read_bytes()
            if content.startswith(_GZIP):
                content = gzip.decompress(content)
        except FileNotFoundError:
            raise ConfigurationError(f"there is no file {self.name}") from None
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"{self.name} cannot be read: {reason}") from error
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            where = "it is UTF-16" if content.startswith(_UTF_16) else f"line {1 + content.count(10, 0, error.start)}"
            raise ConfigurationError(f"{self.name} is not UTF-8 ({where}): save it as UTF-8") from None


@dataclass(frozen=True, slots=True)
class Row:
    """A value that is not as it must be is a fault of the file, and 0 or "" to who reads on."""

    file: TraceFile
    line: int
    cells: Mapping[str, str]

    def broken(self, column: str, allowed: str) -> None:
        found = self.cells[column]
        hint = ", with a point and not a comma" if _DECIMAL_COMMA.fullmatch(found) else ""
        self.file.fault(f"line {self.line}: {column} must be {allowed}{hint}, not {found!r}")

    def text(self, column: str) -> str:
        return self.cells[column]

    def identifier(self, column: str) -> str:
        cleaned = clean_id(self.text(column))
        if cleaned is None:
            self.broken(column, ID_FORM)
        return cleaned or ""

    def integer(self, column: str, highest: int) -> int:
        value = self._number(column)
        if value is None or not 0 <= value <= highest or not value.is_integer():
            self.broken(column, f"an integer from 0 to {highest}")
            return 0
        return int(value)

    def milliseconds(self, seconds: str, milliseconds: str) -> int | None:
        """By whichever of the two columns the file has; None when it cannot be read."""
        column, factor, unit = (
            (seconds, 1000, "seconds") if seconds in self.cells else (milliseconds, 1, "milliseconds")
        )
        value = self._number(column)
        if value is None:
            value = _instant(self.text(column))
        elif value < 0:
            value = None
        if value is None:
            self.broken(column, f"{unit}, 0 or more")
            return None
        return round(value * factor)

    def _number(self, column: str) -> float | None:
        text = self.text(column)
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        return value if math.isfinite(value) else None


def _instant(text: str) -> float | None:
    """Seconds since 1970 of a date and time as ISO 8601 has it; without a zone it is UTC."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _delimiter(text: str, columns: Sequence[str]) -> str:
    """The one by which the first line with something in it names the most of the columns."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    return max(
        _DELIMITERS, key=lambda mark: len({_named(name.strip('"')) for name in header.split(mark)} & set(columns))
    )


def _named(name: str) -> str:
    """A column's name as it is compared: `CPU Count` is cpu_count."""
    return re.sub(r"[ -]+", "_", name.strip().casefold())


def _what_it_has(names: Sequence[str], missing: Sequence[str]) -> str:
    near = {name: get_close_matches(name, names, n=1) for name in missing}
    guesses = "".join(f", perhaps {name} is what is called {found[0]}" for name, found in near.items() if found)
    return f"; the first line must name the columns, it holds {', '.join(names)[:100]!r}{guesses}" if names else ""
