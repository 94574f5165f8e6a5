"""`nodes list`, `show`, `drain`, `undrain`, `cordon`, `uncordon`, `remove`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from scheduler.errors import Conflict
from scheduler.operating.cli.command import ListByDefault, Opening, asking, examples, identifier, seconds
from scheduler.operating.cli.display import Display, View
from scheduler.operating.draining import Patience, occupancy, wait_until_empty
from scheduler.operating.lists import NODES
from scheduler.operating.source import Source

NOT_EMPTY_IN_TIME = 3

NodeId = Annotated[
    str, typer.Argument(parser=identifier, metavar="NODE", help="The node's id, as `nodes list` shows it.")
]


def nodes_app(opening: Opening, prefix: str = "") -> typer.Typer:
    app = typer.Typer(cls=ListByDefault, help="The nodes: list, show, drain, undrain, cordon, uncordon, remove.")

    def add(name: str, command: Any, *lines: str) -> None:
        app.command(name, epilog=examples(f"{prefix}nodes {name} ", *lines))(command)

    add("list", asking(opening, lists=NODES)(list_nodes), "", "--sort -pressure --watch", "--json")
    add("show", asking(opening, views=True)(show_node), "node-a", "node-a --watch --interval 5s")
    add("drain", asking(opening)(drain_node), "node-a", "node-a --wait --deadline 2h")
    add("undrain", asking(opening)(undrain_node), "node-a")
    add("cordon", asking(opening)(cordon_node), "node-a", "node-a --instance i-7f3a")
    add("uncordon", asking(opening)(uncordon_node), "node-a")
    add("remove", asking(opening)(remove_node), "node-a")
    return app


async def list_nodes(source: Source, display: Display) -> None:
    """Every discovered node: status, load, what is pending on it, why it is not chosen."""

    async def look() -> View:
        rows = NODES.sorted(await source.nodes(), display.sort)
        return View(NODES.table(rows, await source.now_ms()), {"nodes": rows})

    await display.show(look)


async def show_node(source: Source, node_id: NodeId, display: Display) -> None:
    """One node: how full it is, of what, and what is pending on it."""

    async def look() -> View:
        page = await source.node_page(node_id)
        return View(page.lines, page.plain)

    await display.show(look)


async def drain_node(
    source: Source,
    node_id: NodeId,
    wait: Annotated[bool, typer.Option("--wait", help="Until nothing runs, is paused or is reserved there.")] = False,
    deadline: Annotated[str, typer.Option(metavar="DURATION", help="How long --wait waits at most.")] = "1h",
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Between two looks of --wait.")] = "2s",
) -> None:
    """Let a node drain: it keeps its sandboxes and gets no new ones, until `nodes undrain`.

    With --wait: exit status 0 when the node is empty, 3 when it is not at the deadline. It goes on draining then."""
    patience = Patience(seconds("--deadline", deadline), seconds("--interval", interval))
    node = await source.node(node_id)
    if node["discovery"] == "lingering":
        typer.echo(f"node {node_id} was draining already", err=True)
        node = {**node, "generation": 0}  # its last report may well be from after that
    else:
        await source.set_node(node_id, node["endpoint"], "lingering")
        typer.echo(f"node {node_id} drains", err=True)
        node = await source.node(node_id)
    if not wait:
        return
    if await wait_until_empty(source, node, patience, lambda state: typer.echo(f"{node_id}: {state}", err=True)):
        typer.echo(f"node {node_id} is empty")
        return
    typer.echo(f"agentenv-scheduler: node {node_id} was not empty within {deadline}; it goes on draining", err=True)
    raise typer.Exit(NOT_EMPTY_IN_TIME)


async def undrain_node(source: Source, node_id: NodeId) -> None:
    """Put a draining node to use again. What else keeps it out is said."""
    node = await source.node(node_id)
    drained = node["discovery"] == "lingering"
    if drained:
        await source.set_node(node_id, node["endpoint"], "active")
    told = f"node {node_id} drains no longer" if drained else f"node {node_id} was not drained"
    if node["cordoned"]:
        instance = node["service_instance_id"]
        told += f"; it is cordoned while instance {instance} reports: `nodes uncordon {node_id}` takes that back"
    typer.echo(told, err=True)


InstanceId = Annotated[
    str | None,
    typer.Option(
        "--instance", parser=identifier, metavar="ID", help="The process that is meant: refused when another reports."
    ),
]


async def cordon_node(source: Source, node_id: NodeId, instance: InstanceId = None) -> None:
    """Place nothing new on a node for as long as its present process runs, or until `nodes uncordon`."""
    meant, cordoned = await _cordon(source, node_id, instance, cordoned=True)
    told = "was cordoned already," if cordoned else "is cordoned"
    typer.echo(f"node {node_id} {told} while instance {meant} reports", err=True)


async def uncordon_node(source: Source, node_id: NodeId, instance: InstanceId = None) -> None:
    """Take a cordon back."""
    _, cordoned = await _cordon(source, node_id, instance, cordoned=False)
    typer.echo(f"node {node_id} is {'no longer' if cordoned else 'not'} cordoned", err=True)


async def _cordon(source: Source, node_id: str, instance: str | None, *, cordoned: bool) -> tuple[str, bool]:
    """The instance that was meant, and whether it was cordoned before."""
    node = await source.node(node_id)
    instance = instance or str(node["service_instance_id"])
    if not instance:
        raise Conflict(f"node {node_id} has not reported, so there is no process to cordon; `nodes drain` stays")
    await source.cordon(node_id, instance, cordoned=cordoned)
    return instance, node["cordoned"]


async def remove_node(
    source: Source,
    node_id: NodeId,
    force: Annotated[
        bool, typer.Option("--force", help="Also when sandboxes run there: they are no longer found.")
    ] = False,
) -> None:
    """Take a node off the list. One that is not empty is refused; drain it first.

    What lists it elsewhere brings it back: a configuration file, Kubernetes, or its own heartbeats."""
    node = await source.node(node_id)
    found = occupancy(node, generation_before=-1)
    if not found.empty and not force:
        raise Conflict(f"node {node_id} is not empty ({found}): drain it first, or say --force")
    await source.remove_node(node_id)
    typer.echo(f"node {node_id} is off the list", err=True)
