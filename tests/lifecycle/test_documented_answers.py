"""The table of answers in `docs/reservations.md` says what `test_answers.py` proves, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lifecycle import test_answers as proven

DOCUMENT = Path(__file__).parents[2] / "docs" / "reservations.md"
COLUMNS = {
    "confirm": proven.confirm_s1,
    "confirm, another id": proven.confirm_s2,
    "cancel": proven.cancel,
    "renew": proven.renew,
}
ROWS = {
    "pending": proven.pending,
    "pending, its sandbox told by RecordAssignment": proven.told,
    "confirmed": proven.confirmed,
    "settled, its sandbox told": proven.settled_told,
    "settled, no caller told its sandbox": proven.settled_named,
    "cancelled": proven.cancelled,
    "expired": proven.expired,
    "confirmed after it had expired": proven.orphaned,
}


def table() -> dict[tuple[str, str], str]:
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head = next(index for index, row in enumerate(rows) if row[0] == "the reservation is")
    columns = rows[head][1:]
    found: dict[tuple[str, str], str] = {}
    for row in rows[head + 2 : head + 2 + len(ROWS)]:
        found |= {(row[0], column): cell for column, cell in zip(columns, row[1:], strict=True)}
    return found


def documented(cell: str) -> tuple[str, str | None]:
    """The answer of a cell and, where it names one, the state after it."""
    words = [word.strip() for word in cell.split(",")]
    if words[0] == "409":
        return "conflict", None
    if words[0] == "replayed":
        return " ".join(words), None
    return "orphaned" if "orphaned" in words else "done", words[0]


@pytest.mark.parametrize(("row", "column"), [(row, column) for row in ROWS for column in COLUMNS], ids=str)
def test_a_cell_says_what_was_proven(row: str, column: str) -> None:
    answers = {(begin, call): (answer, after) for begin, call, answer, after in proven.ANSWERS}
    answer, after = documented(table()[row, column])
    proof = answers[ROWS[row], COLUMNS[column]]
    assert answer == proof[0]
    assert after in (None, proof[1])
