"""`agentenv-scheduler inspect …`: straight from Redis, with no replica needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from scheduler.api.http.views import group_view, node_view, reservation_view
from scheduler.config import kinds
from scheduler.domain.reservation import Reservation, ReservationState
from scheduler.domain.sandbox import PlacementGroup
from scheduler.errors import ConfigurationError, SchedulerError
from scheduler.inspection import pages, tables
from scheduler.inspection.one_node import Capacity, capacities, look_at_node
from scheduler.inspection.recount import check as check_ledger
from scheduler.inspection.repair import Repair
from scheduler.inspection.repair import repair as repair_ledger
from scheduler.inspection.shapes import look_at_shapes
from scheduler.inspection.story import tell_story
from scheduler.inspection.upgrade import upgrading
from scheduler.inspection.where import Where, server_now_ms, with_ledger
from scheduler.store.ledger import Ledger

PAGE = 1000
INSPECTED_AT_MOST = 100_000

inspect_app = typer.Typer(no_args_is_help=True, help="Look into the ledger, straight from Redis.")


def _state(text: str) -> ReservationState:
    if text not in list(ReservationState):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(ReservationState)}", param_hint="--state")
    return ReservationState(text)


RedisAddress = Annotated[
    str | None,
    typer.Option("--redis-addr", metavar="ADDRESS", help="host:port, redis[s]://, unix://, sentinel://, cluster://"),
]
Domain = Annotated[str | None, typer.Option("--domain", help="Which ledger of that server.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="As for serve: the address is taken from it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Limit = Annotated[int, typer.Option(min=1, max=INSPECTED_AT_MOST, help="Show at most this many.")]


@inspect_app.command()
def nodes(
    redis_addr: RedisAddress = None, domain: Domain = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Every discovered node: status, load, what is pending on it, why it is not chosen."""

    async def look(ledger: Ledger) -> None:
        found = await ledger.nodes.list()
        held = await capacities(ledger, [node.node_id for node in found])
        now_ms = await server_now_ms(ledger)
        plain = {"nodes": [node_view(node) | _capacity(held[node.node_id]) for node in found]}
        _show(tables.nodes_table(found, held, now_ms) if found else ["no nodes"], plain, as_json)

    with_ledger(Where(redis_addr, domain, config), look)


@inspect_app.command()
def node(
    node_id: Annotated[str, typer.Argument(metavar="ID")],
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """One node: how full it is, of what, and which reservations are counted as pending on it."""

    async def look(ledger: Ledger) -> None:
        found = await look_at_node(ledger, node_id)
        plain = {
            "node": node_view(found.node),
            **_capacity(found.capacity),
            "limit_exceeded": found.limit_exceeded,
            "sandboxes_listed": found.listed,
            "sandboxes_awaited": found.awaited,
            "acknowledged": found.acknowledged,
            "open_count": found.open_count,
            "open": [_reservation(reservation) for reservation in found.open],
        }
        _show(pages.node_page(found, await server_now_ms(ledger)), plain, as_json)

    with_ledger(Where(redis_addr, domain, config), look)


@inspect_app.command()
def reservations(
    node_id: Annotated[str | None, typer.Option("--node", metavar="ID", help="Only those on this node.")] = None,
    state: Annotated[
        ReservationState | None,
        typer.Option(parser=_state, metavar="|".join(ReservationState), help="Only those in this state."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only those placed at least this long ago: 90s, 5m.")
    ] = None,
    limit: Limit = 100,
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Reservations, oldest first."""
    minimum_age_ms = 0 if older_than is None else _duration_ms("--older-than", older_than)

    async def look(ledger: Ledger) -> None:
        now_ms = await server_now_ms(ledger)
        found, more = await _reservations(ledger, node_id, state, now_ms - minimum_age_ms, limit)
        filtered = node_id or state or older_than
        nothing = "no reservations like that" if filtered else "no reservations"
        plain = {"reservations": [_reservation(reservation) for reservation in found], "more": more}
        _show(tables.reservations_table(found, now_ms) if found else [nothing], plain, as_json)
        if more and not as_json:
            typer.echo(f"… and more; --limit {limit} was reached", err=True)

    with_ledger(Where(redis_addr, domain, config), look)


@inspect_app.command()
def reservation(
    reservation_id: Annotated[str, typer.Argument(metavar="ID")],
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """One reservation's whole story: who asked, where it went, what ended it and why."""

    async def look(ledger: Ledger) -> None:
        story = await tell_story(ledger, reservation_id)
        plain = {
            "reservation": _reservation(story.reservation),
            "strategy": story.fields.get("strategy"),
            "template_id": story.fields.get("template_id"),
            "degraded": story.fields.get("degraded") == "1",
            "report_generation": story.fields.get("report_generation"),
            "moments": [asdict(moment) for moment in story.moments],
            "group": None if story.group is None else asdict(story.group),
            "binding_node_id": story.binding_node_id,
        }
        _show(pages.story_page(story, await server_now_ms(ledger)), plain, as_json)

    with_ledger(Where(redis_addr, domain, config), look)


@inspect_app.command()
def shapes(
    redis_addr: RedisAddress = None, domain: Domain = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """The ranking indexes: size, how far behind the journal, last use, complete or being built."""

    async def look(ledger: Ledger) -> None:
        found = await look_at_shapes(ledger)
        plain = {"shapes": [asdict(shape) for shape in found]}
        _show(tables.shapes_table(found, await server_now_ms(ledger)) if found else ["no shapes"], plain, as_json)

    with_ledger(Where(redis_addr, domain, config), look)


@inspect_app.command()
def groups(
    limit: Limit = 100,
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Open placement groups, most recently used first: key, node, how full each budget is, age."""

    async def look(ledger: Ledger) -> None:
        total, found = await _groups(ledger, limit)
        plain = {"total": total, "groups": [group_view(group) for group in found]}
        _show(tables.groups_table(found, await server_now_ms(ledger)) if found else ["no open groups"], plain, as_json)
        if len(found) < total and not as_json:
            typer.echo(f"… {total - len(found):,} more are open", err=True)

    with_ledger(Where(redis_addr, domain, config), look)


@inspect_app.command()
def check(
    redis_addr: RedisAddress = None, domain: Domain = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Count the whole ledger anew. Right under load, writes nothing.

    Exit status: 0 all of it adds up, 1 something does not, 2 it could not be looked at."""
    try:
        report = with_ledger(Where(redis_addr, domain, config), check_ledger)
    except SchedulerError as error:
        typer.echo(f"agentenv-scheduler: {error.full_detail}", err=True)
        raise typer.Exit(2) from error
    plain = {
        "ok": report.ok,
        "violations": [str(violation) for violation in report.violations],
        "looked_at": report.looked_at,
    }
    _show(pages.check_page(report), plain, as_json)
    if not report.ok:
        raise typer.Exit(1)


@inspect_app.command()
def upgrade(
    apply: Annotated[bool, typer.Option("--apply", help="Convert. Stop all replicas of version 0.1 first.")] = False,
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
) -> None:
    """Bring the ledger of version 0.1 to this version's format. Without --apply: say what there is, write nothing."""

    async def convert(ledger: Ledger) -> None:
        for line in await upgrading(ledger, apply=apply):
            typer.echo(line)

    with_ledger(Where(redis_addr, domain, config), convert, settled=False)


@inspect_app.command()
def repair(
    apply: Annotated[bool, typer.Option("--apply", help="Write. Right under load.")] = False,
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
) -> None:
    """Make anew what `check` finds wrong, from reservations and reports. Without --apply: say what, write nothing.

    Exit status: 0 all of it adds up now, 1 something does not."""

    async def mend(ledger: Ledger) -> Repair:
        return await repair_ledger(ledger, apply=apply)

    done = with_ledger(Where(redis_addr, domain, config), mend)
    for finding in done.found:
        typer.echo(f"{'left' if finding in done.left else 'repaired'}: {finding}")
    for finding in set(done.left) - set(done.found):
        typer.echo(f"left: {finding}")
    if not done.found:
        typer.echo("all of it adds up")
    elif not apply:
        typer.echo("nothing was written; --apply repairs")
    if done.left:
        raise typer.Exit(1)


@inspect_app.command()
def clock(
    reset: Annotated[bool, typer.Option("--reset", help="Go by the server's clock again.")] = False,
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
) -> None:
    """How far ledger time is ahead of the server's clock. Without --reset nothing is written."""

    async def look(ledger: Ledger) -> None:
        skew = seconds(await ledger.time.skew_ms())
        if reset:
            taken_back = seconds(await ledger.time.reset())
            typer.echo(f"ledger time was {taken_back} ahead; it goes by the server's clock again")
        else:
            typer.echo(f"ledger time is {skew} ahead of the server's clock")

    def seconds(ms: int) -> str:
        return f"{ms / 1000:,.3f} s"

    with_ledger(Where(redis_addr, domain, config), look)


async def _reservations(
    ledger: Ledger, node_id: str | None, state: ReservationState | None, created_until_ms: int, limit: int
) -> tuple[list[Reservation], bool]:
    """At most `limit`, and whether there are more. They come in the order they were placed, so age ends the walk."""
    found: list[Reservation] = []
    cursor: str | None = None
    while True:
        page, cursor = await ledger.reservations.list(node_id, state, min(PAGE, limit + 1), cursor)
        old_enough = [reservation for reservation in page if reservation.created_at_ms <= created_until_ms]
        found += old_enough
        if len(found) > limit:
            return found[:limit], True
        if cursor is None or len(old_enough) < len(page):
            return found, False


async def _groups(ledger: Ledger, limit: int) -> tuple[int, list[PlacementGroup]]:
    found: list[PlacementGroup] = []
    cursor: str | None = None
    while True:
        total, page, cursor = await ledger.groups.list(min(PAGE, limit - len(found)), cursor)
        found += page
        if cursor is None or len(found) >= limit:
            return total, found


def _capacity(capacity: Capacity) -> dict[str, int | None]:
    return {"cpu_capacity": capacity.cpu_count, "memory_capacity_bytes": capacity.memory_bytes}


def _reservation(reservation: Reservation) -> dict[str, Any]:
    """As the HTTP API shows it, and what only an operator needs."""
    return reservation_view(reservation) | {
        "caller": reservation.caller,
        "request_id": reservation.request_id,
        "sandbox_told": reservation.sandbox_told,
        "orphaned": reservation.orphaned,
        "held": {
            "cpu_count": reservation.held_cpu_count,
            "memory_bytes": reservation.held_memory_bytes,
            "sandbox_count": reservation.held_sandbox_count,
        },
    }


def _duration_ms(option: str, text: str) -> int:
    kind = kinds.duration()
    try:
        return kind.read(kind.from_text(text))
    except kinds.Unacceptable as refused:
        raise ConfigurationError(f"{option} must be {refused.allowed}, not {text!r}") from None


def _show(people: Table | Iterable[str], plain: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(plain, ensure_ascii=False, indent=2))
    elif isinstance(people, Table):
        # Into a pipe nothing is folded for a terminal that is not there.
        Console(width=None if sys.stdout.isatty() else 250).print(people, markup=False)
    else:
        for line in people:
            typer.echo(line)
