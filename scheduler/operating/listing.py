"""Lists for people and programs: one set of columns, by each of which the list can be sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scheduler.errors import ConfigurationError
from scheduler.operating.words import visible

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """`shown` takes a row and the present; `order` is what rows are sorted by, None last. `name` is the column's in
    `--sort`, `title` above it where that is another."""

    name: str
    shown: Callable[[T, int], str]
    order: Callable[[T], Any]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """`empty` is said instead of a table without rows."""

    empty: str
    columns: tuple[Column[T], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def sorted(self, rows: Iterable[T], by: str | None) -> list[T]:
        """The rows in the given order when `by` is None; `-name` sorts the other way round. Raises
        ConfigurationError."""
        rows = list(rows)
        if by is None:
            return rows
        descending, wanted = by.startswith("-"), by.removeprefix("-").lower()
        column = next((column for column in self.columns if column.name == wanted), None)
        if column is None:
            raise ConfigurationError(
                f"--sort must be one of {', '.join(self.names)}, or one of them after -, not {by!r}"
            )
        known = [row for row in rows if column.order(row) is not None]
        known.sort(key=column.order, reverse=descending)
        return known + [row for row in rows if column.order(row) is None]

    def table(self, rows: Sequence[T], now_ms: int) -> Table | list[str]:
        if not rows:
            return [self.empty]
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in self.columns:
            table.add_column(column.title or column.name, overflow="fold")
        for row in rows:
            table.add_row(*(visible(column.shown(row, now_ms)) for column in self.columns))
        return table
