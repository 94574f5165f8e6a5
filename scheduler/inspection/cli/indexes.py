"""`inspect groups` and `inspect shapes`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from scheduler.api.views import group_view
from scheduler.domain.sandbox import PlacementGroup
from scheduler.inspection.cli.options import opened
from scheduler.inspection.ledger_source import LedgerSource
from scheduler.inspection.shapes import look_at_shapes
from scheduler.inspection.tables import GROUPS, SHAPES
from scheduler.operating.cli.command import asking
from scheduler.operating.cli.display import Display, View
from scheduler.store.ledger import Ledger

PAGE = 1000
SHOWN_AT_MOST = 100_000


@asking(opened, lists=GROUPS)
async def groups(
    source: LedgerSource,
    display: Display,
    limit: Annotated[int, typer.Option(min=1, max=SHOWN_AT_MOST, help="Show at most this many.")] = 100,
) -> None:
    """Open placement groups, most recently used first: key, node, how full each budget is, age."""

    async def look() -> View:
        total, found = await _groups(source.ledger, limit)
        rows = GROUPS.sorted(found, display.sort)
        plain = {"total": total, "groups": [group_view(group) for group in rows]}
        note = f"… {total - len(found):,} more are open" if len(found) < total else ""
        return View(GROUPS.table(rows, await source.now_ms()), plain, note)

    await display.show(look)


@asking(opened, lists=SHAPES)
async def shapes(source: LedgerSource, display: Display) -> None:
    """The ranking indexes: size, how far behind the journal, last use, complete or being built."""

    async def look() -> View:
        rows = SHAPES.sorted(await look_at_shapes(source.ledger), display.sort)
        return View(SHAPES.table(rows, await source.now_ms()), {"shapes": [asdict(shape) for shape in rows]})

    await display.show(look)


async def _groups(ledger: Ledger, limit: int) -> tuple[int, list[PlacementGroup]]:
    found: list[PlacementGroup] = []
    cursor: str | None = None
    while True:
        total, page, cursor = await ledger.groups.list(min(PAGE, limit - len(found)), cursor)
        found += page
        if cursor is None or len(found) >= limit:
            return total, found
