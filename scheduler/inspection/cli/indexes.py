"""`inspect groups` and `inspect index`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from scheduler.api.views import group_view
from scheduler.domain.sandbox import PlacementGroup
from scheduler.inspection.cli.options import opened
from scheduler.inspection.index import look_at_index
from scheduler.inspection.ledger_source import LedgerSource
from scheduler.inspection.tables import GROUPS, INDEX
from scheduler.ledger.ledger import Ledger
from scheduler.operating.cli.command import asking
from scheduler.operating.cli.display import Display, View

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


@asking(opened, lists=INDEX)
async def index(source: LedgerSource, display: Display) -> None:
    """The index that least_loaded searches: classes of nodes, and how their nodes spread over rows."""

    async def look() -> View:
        rows = INDEX.sorted(await look_at_index(source.ledger), display.sort)
        return View(INDEX.table(rows, await source.now_ms()), {"classes": [asdict(each) for each in rows]})

    await display.show(look)


async def _groups(ledger: Ledger, limit: int) -> tuple[int, list[PlacementGroup]]:
    found: list[PlacementGroup] = []
    cursor: str | None = None
    while True:
        total, page, cursor = await ledger.groups.list(min(PAGE, limit - len(found)), cursor)
        found += page
        if cursor is None or len(found) >= limit:
            return total, found
