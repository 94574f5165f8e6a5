"""`decisions`, `audit`, `warm-keys`."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.operating.cli.command import Opening, asking, examples, identifier
from scheduler.operating.cli.display import Display, View
from scheduler.operating.lists import ACTS, DECISIONS, WARM_KEYS
from scheduler.operating.source import Source

SHOWN_AT_MOST = 100_000

Limit = Annotated[int, typer.Option(min=1, max=SHOWN_AT_MOST, help="Show at most this many.")]
OfNode = Annotated[str | None, typer.Option("--node", parser=identifier, metavar="NODE", help="Only of this node.")]


def add_journals(app: typer.Typer, opening: Opening, prefix: str = "") -> None:
    lines = ("decisions --reason too_large", "decisions --node node-a --watch")
    app.command("decisions", epilog=examples(prefix, *lines))(asking(opening, lists=DECISIONS)(list_decisions))
    app.command("audit", epilog=examples(prefix, "audit", "audit --limit 20 --json"))(
        asking(opening, lists=ACTS)(list_acts)
    )
    lines = ("warm-keys --node node-a", "warm-keys --key image:registry/app:1")
    app.command("warm-keys", epilog=examples(prefix, *lines))(asking(opening, lists=WARM_KEYS)(list_warm_keys))


async def list_decisions(
    source: Source,
    display: Display,
    reason: Annotated[str, typer.Option(metavar="REASON", help="Only refusals for which a node gave it.")] = "",
    node_id: OfNode = None,
    caller: Annotated[str, typer.Option(metavar="NAME", help="Only of this caller: the name of its key.")] = "",
    limit: Limit = 100,
) -> None:
    """The last decisions, newest first: what was asked, where it was placed, or why nowhere."""
    from scheduler.domain.journal import DecisionQuery

    query = DecisionQuery(reason.strip(), node_id or "", caller.strip())

    async def look() -> View:
        rows = DECISIONS.sorted(await source.decisions(query, limit), display.sort)
        return View(DECISIONS.table(rows, await source.now_ms()), {"decisions": rows})

    await display.show(look)


async def list_acts(source: Source, display: Display, limit: Limit = 100) -> None:
    """Who listed, drained, cordoned, removed or cancelled what, newest first."""

    async def look() -> View:
        rows = ACTS.sorted(await source.acts(limit), display.sort)
        return View(ACTS.table(rows, await source.now_ms()), {"acts": rows})

    await display.show(look)


async def list_warm_keys(
    source: Source,
    display: Display,
    key: Annotated[str, typer.Option(metavar="KEY", help="Only nodes with it: image:… or template:….")] = "",
    node_id: OfNode = None,
    limit: Limit = 100,
) -> None:
    """Which images and templates are warm on which nodes: what each was given last."""

    async def look() -> View:
        rows = WARM_KEYS.sorted(await source.warm_keys(key.strip(), node_id or "", limit), display.sort)
        return View(WARM_KEYS.table(rows, await source.now_ms()), {"nodes": rows})

    await display.show(look)
