"""How the value of one configuration key is read and checked, from any source.

A value comes from a file (JSON or TOML types) or as text (an environment variable, an option). `Kind.from_text`
converts text, and `Kind.read` checks the typed value; an invalid one raises `Unacceptable`, which says what is
allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from scheduler.domain.duration import DURATION_FORM, format_duration, parse_duration_ms
from scheduler.domain.labels import LABEL_FORM, LABELS_MAX, is_label

T = TypeVar("T")


class Unacceptable(ValueError):
    """`allowed` says what is valid; `at` and `found` point inside a structured value. `more`: what else is wrong
    there."""

    def __init__(self, allowed: str, at: str = "", found: object = None) -> None:
        super().__init__(allowed)
        self.allowed = allowed
        self.at = at
        self.found = found
        self.more: tuple[Unacceptable, ...] = ()


class Faults:
    """What is wrong with the entries of a list or a table, collected so that all of it is told at once."""

    def __init__(self) -> None:
        self._found: list[Unacceptable] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a fault of the block instead of raising it."""
        try:
            yield
        except Unacceptable as fault:
            self.note(fault)

    def note(self, fault: Unacceptable) -> None:
        self._found += [fault, *fault.more]

    def raise_all(self) -> None:
        """Raise the first fault with all others, if there are any."""
        if self._found:
            first, *more = self._found
            first.more = tuple(more)
            raise first


def _as_it_is(text: str) -> object:
    return text


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """`allowed` completes "must be …"; `show` converts a value to the form of a file."""

    allowed: str
    read: Callable[[object], T]
    from_text: Callable[[str], object] = _as_it_is
    show: Callable[[T], Any] = lambda value: value


def text(allowed: str = "a text that is not blank", pattern: str = r".*\S.*") -> Kind[str]:
    form = re.compile(pattern, re.DOTALL)

    def read(raw: object) -> str:
        if not isinstance(raw, str) or not form.fullmatch(raw.strip()):
            raise Unacceptable(allowed)
        return raw.strip()

    return Kind(allowed, read)


def names() -> Kind[tuple[str, ...]]:
    """Host names; as text they are separated by commas."""
    allowed = "a list of host names"
    form = re.compile(r"[A-Za-z0-9.-]{1,253}")

    def read(raw: object) -> tuple[str, ...]:
        if not isinstance(raw, list | tuple) or not all(isinstance(each, str) for each in raw):
            raise Unacceptable(allowed)
        cleaned = tuple(each.strip().lower() for each in raw)
        if not all(form.fullmatch(each) for each in cleaned):
            raise Unacceptable(allowed)
        return cleaned

    return Kind(allowed, read, lambda text: [each for each in text.split(",") if each.strip()], list)


def label_names(most: int = LABELS_MAX, taken: tuple[str, ...] = ()) -> Kind[tuple[str, ...]]:
    """Names as labels have them, each once and none that is `taken`; as text they are separated by commas."""
    allowed = f"a list of at most {most} names, each of {LABEL_FORM}"
    if taken:
        allowed += f", and none of {', '.join(taken)}"

    def read(raw: object) -> tuple[str, ...]:
        if not isinstance(raw, list | tuple) or not all(isinstance(each, str) for each in raw):
            raise Unacceptable(allowed)
        cleaned = tuple(dict.fromkeys(each.strip() for each in raw))
        if len(cleaned) > most or not all(is_label(each) and each not in taken for each in cleaned):
            raise Unacceptable(allowed)
        return cleaned

    return Kind(allowed, read, lambda text: [each for each in text.split(",") if each.strip()], list)


E = TypeVar("E", bound=StrEnum)


def choice(names: type[E], aliases: Mapping[str, E] | None = None) -> Kind[E]:
    """One of the names, trimmed and in any case; `aliases`, and further spellings that the enum itself knows, are
    accepted but not advertised."""
    allowed = "one of " + ", ".join(member.value for member in names)
    known = dict(aliases or {})

    def read(raw: object) -> E:
        if not isinstance(raw, str):
            raise Unacceptable(allowed)
        name = raw.strip().lower()
        try:
            return known.get(name) or names(name)
        except ValueError:
            raise Unacceptable(allowed) from None

    return Kind(allowed, read, show=lambda member: member.value)


def _boolean_from_text(raw: str) -> object:
    word = raw.strip().lower()
    if word in {"true", "1", "yes", "on"}:
        return True
    return False if word in {"false", "0", "no", "off"} else raw


def boolean() -> Kind[bool]:
    allowed = "true or false"

    def read(raw: object) -> bool:
        if not isinstance(raw, bool):
            raise Unacceptable(allowed)
        return raw

    return Kind(allowed, read, _boolean_from_text)


def _integer_from_text(raw: str) -> object:
    return int(raw) if re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", raw) else raw


def integer(least: int, most: int) -> Kind[int]:
    allowed = f"a whole number from {least} to {most}"

    def read(raw: object) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not least <= raw <= most:
            raise Unacceptable(allowed)
        return raw

    return Kind(allowed, read, _integer_from_text)


def optional(kind: Kind[T]) -> Kind[T | None]:
    """The kind of a key that has no value by default, which a file can only leave out."""
    return Kind(kind.allowed, kind.read, kind.from_text, lambda value: None if value is None else kind.show(value))


def duration(least_ms: int = 1, default_instead_of_none_ms: int | None = None) -> Kind[int]:
    """Milliseconds of a Go duration. Zero and less become `default_instead_of_none_ms` when that is given, as in
    AgentENV; otherwise less than `least_ms` is refused."""
    allowed = DURATION_FORM + (", greater than zero" if least_ms > 0 and default_instead_of_none_ms is None else "")

    def read(raw: object) -> int:
        if not isinstance(raw, str):
            raise Unacceptable(f"{allowed}, as a text")
        try:
            value_ms = parse_duration_ms(raw)
        except ValueError:
            raise Unacceptable(allowed) from None
        if value_ms <= 0 and default_instead_of_none_ms is not None:
            return default_instead_of_none_ms
        if value_ms < least_ms:
            raise Unacceptable(allowed)
        return value_ms

    return Kind(allowed, read, show=format_duration)


def _per_mille(raw: object, allowed: str, within: range) -> int:
    """A number as its thousandths, which must be whole."""
    from decimal import Decimal  # seldom needed, and slow to import

    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise Unacceptable(allowed)
    try:
        per_mille = Decimal(str(raw).strip()) * 1000
    except ArithmeticError:  # what is no number, and what is too large for one
        raise Unacceptable(allowed) from None
    if not per_mille.is_finite() or per_mille != per_mille.to_integral_value() or int(per_mille) not in within:
        raise Unacceptable(allowed)
    return int(per_mille)


def overcommit() -> Kind[int | None]:
    """Whole per-mille of the advertised capacity; None is `unlimited`."""
    allowed = "a number above 0, at most 1000, with at most three decimals, or `unlimited`"

    def read(raw: object) -> int | None:
        if isinstance(raw, str) and raw.strip().lower() == "unlimited":
            return None
        return _per_mille(raw, allowed, range(1, 1_000_001))

    def show(per_mille: int | None) -> float | str:
        return "unlimited" if per_mille is None else per_mille / 1000

    return Kind(allowed, read, show=show)


def share() -> Kind[int]:
    """Whole per-mille of something."""
    allowed = "a number from 0 to 1 with at most three decimals"

    def read(raw: object) -> int:
        return _per_mille(raw, allowed, range(1001))

    return Kind(allowed, read, show=lambda per_mille: per_mille / 1000)


def share_or_off() -> Kind[int | None]:
    """Whole per-mille of something; None is `off`."""
    number = share()
    allowed = f"{number.allowed}, or `off`"

    def read(raw: object) -> int | None:
        # TOML and JSON have a word of their own for it.
        if raw is False or (isinstance(raw, str) and raw.strip().lower() == "off"):
            return None
        try:
            return number.read(raw)
        except Unacceptable:
            raise Unacceptable(allowed) from None

    return Kind(allowed, read, show=lambda per_mille: "off" if per_mille is None else number.show(per_mille))


def file() -> Kind[Path]:
    """A file that exists now, so that a wrong path fails the start, not the first request."""
    allowed = "the path of a file that can be read"

    def read(raw: object) -> Path:
        if not isinstance(raw, str) or not raw.strip():
            raise Unacceptable(allowed)
        path = Path(raw.strip()).expanduser()
        if not path.is_file() or not os.access(path, os.R_OK):
            raise Unacceptable(allowed)
        return path

    return Kind(allowed, read, show=str)


def password_file() -> Kind[Path]:
    """A file that contains a password now, so that an empty one fails the start."""
    allowed = "the path of a file that can be read and holds a password, on one line"

    def read(raw: object) -> Path:
        try:
            path = file().read(raw)
            password = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (Unacceptable, OSError, UnicodeDecodeError):
            raise Unacceptable(allowed) from None
        if not password or "\n" in password:
            raise Unacceptable(allowed)
        return path

    return Kind(allowed, read, show=str)
