"""`sandbox where`, `replicas`, `settings`, `summary`."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.operating.cli.command import Opening, asking, examples, identifier
from scheduler.operating.cli.display import Display, View
from scheduler.operating.lists import REPLICAS
from scheduler.operating.pages import settings_page, summary_page
from scheduler.operating.source import Source


def sandbox_app(opening: Opening, prefix: str = "") -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, help="Where a sandbox runs.")
    app.callback()(lambda: None)  # one command, and still a group
    app.command("where", epilog=examples(prefix, "sandbox where sb-1", "sandbox where sb-1 --json"))(
        asking(opening, views=True)(where_sandbox)
    )
    return app


def add_cluster(app: typer.Typer, opening: Opening, prefix: str = "") -> None:
    app.command("replicas", epilog=examples(prefix, "replicas", "replicas --watch"))(
        asking(opening, lists=REPLICAS)(list_replicas)
    )
    app.command("settings", epilog=examples(prefix, "settings", "settings --json"))(
        asking(opening, views=True)(show_settings)
    )
    app.command("summary", epilog=examples(prefix, "summary", "summary --watch --interval 10s"))(
        asking(opening, views=True)(show_summary)
    )


async def where_sandbox(
    source: Source,
    sandbox_id: Annotated[str, typer.Argument(parser=identifier, metavar="SANDBOX", help="The sandbox's id.")],
    display: Display,
) -> None:
    """The node that a sandbox is bound to."""

    async def look() -> View:
        found = await source.where(sandbox_id)
        node = found["node"]
        return View([f"sandbox {sandbox_id} is on node {node['node_id']}, {node['endpoint']}"], found)

    await display.show(look)


async def list_replicas(source: Source, display: Display) -> None:
    """The replicas that are alive, as the ledger has heard of them."""

    async def look() -> View:
        rows = REPLICAS.sorted(await source.replicas(), display.sort)
        return View(REPLICAS.table(rows, await source.now_ms()), {"replicas": rows})

    await display.show(look)


async def show_settings(source: Source, display: Display) -> None:
    """What all replicas go by now: the settings in force, their revision, and the ledger's epoch."""

    async def look() -> View:
        found = await source.settings()
        return View(settings_page(found), found)

    await display.show(look)


async def show_summary(source: Source, display: Display) -> None:
    """The cluster on one page: replicas, nodes by status, how full it is, what is open."""

    async def look() -> View:
        found = await source.summary()
        return View(summary_page(found), found)

    await display.show(look)
