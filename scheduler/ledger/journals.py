"""The ledger's journals: the last decisions, and who did what. Bounded, and nothing is decided by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from scheduler.domain.journal import Entry
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

READ_A_STEP = 200
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Journal(StrEnum):
    DECISIONS = "decisions"
    AUDIT = "audit"


class JournalStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def append(self, journal: Journal, entries: Sequence[tuple[int, Mapping[str, Any]]], dropped: int = 0) -> int:
        """Note entries, each with its age in milliseconds. Returns how many the journal keeps; 0: it is off."""
        arguments: list[str | int] = []
        for age_ms, facts in entries:
            arguments += [age_ms, _ENCODER.encode(facts)]
        _, reply = await self._runner.run("append_journal", journal.value, dropped, *arguments)
        return int(reply[0])

    async def page(
        self, journal: Journal, limit: int, cursor: str | None, wanted: Callable[[Entry], bool]
    ) -> tuple[tuple[Entry, ...], str | None]:
        """At most `limit` entries that are wanted, newest first, and the cursor of the next page (None at the end)."""
        key, newest = self._runner.keys.named(journal.value), f"({cursor}" if cursor else "+inf"
        found: list[Entry] = []
        while True:
            page = await self._runner.client.command("ZREVRANGEBYSCORE", key, newest, "-inf", "LIMIT", 0, READ_A_STEP)
            for entry in map(_entry, page):
                newest = f"({entry.number}"
                if wanted(entry):
                    found.append(entry)
                    if len(found) == limit:
                        return tuple(found), str(entry.number)
            if len(page) < READ_A_STEP:
                return tuple(found), None


def _entry(member: bytes) -> Entry:
    number, at_ms, strategy, facts = codec.text(member).split(" ", 3)
    return Entry(int(number), int(at_ms), strategy, json.loads(facts))
