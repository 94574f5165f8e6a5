"""Reads the open placement groups."""

from __future__ import annotations

import re

from scheduler.domain.sandbox import PlacementGroup
from scheduler.errors import InvalidRequest, StoreUnusable
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

ROW = re.compile(r"(\d+),(\d+),(\d+),(\d+),(\d+),(.*)", re.DOTALL)


class GroupStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def list(
        self, limit: int = 100, cursor: str | None = None
    ) -> tuple[int, tuple[PlacementGroup, ...], str | None]:
        """The number of open groups, a page of them (most recently used first), and the next page's cursor."""
        keys, client = self._runner.keys, self._runner.client
        if cursor is not None and not cursor.isdecimal():
            raise InvalidRequest.field("cursor", cursor, "a cursor of an earlier page")
        newest = f"({cursor}" if cursor else "+inf"
        recent = keys.groups_recent
        total, page, budgets = await client.pipeline(
            [
                ("ZCARD", recent),
                ("ZREVRANGEBYSCORE", recent, newest, "-inf", "WITHSCORES", "LIMIT", 0, limit),
                ("HMGET", keys.settings, "group_max_sandbox_count", "group_max_cpu_count", "group_max_memory_mb"),
            ]
        )
        if not page:
            return int(total), (), None
        names = page[0::2]
        rows = await client.command("HMGET", keys.groups, *names)
        limits = tuple(codec.number(value) for value in budgets)
        groups = [
            _group(codec.text(name), codec.text(row), limits) for name, row in zip(names, rows, strict=True) if row
        ]
        return int(total), tuple(groups), str(int(float(page[-1]))) if len(names) == limit else None


def _group(key: str, row: str, limits: tuple[int, ...]) -> PlacementGroup:
    found = ROW.fullmatch(row)
    if found is None:
        raise StoreUnusable(f"the ledger's group {key!r} has a row that this version does not know: {row!r}")
    sequence, count, cpu, memory_mb, opened_at_ms = (int(part) for part in found.groups()[:5])
    return PlacementGroup(key, found[6], count, cpu, memory_mb, limits[0], limits[1], limits[2], opened_at_ms, sequence)
