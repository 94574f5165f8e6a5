"""`reservations list`, `show`, `cancel`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from scheduler.domain.reservation import ReservationState
from scheduler.operating.cli.command import ListByDefault, Opening, asking, examples, identifier, seconds
from scheduler.operating.cli.display import Display, View
from scheduler.operating.lists import RESERVATIONS
from scheduler.operating.source import Row, Source, Wanted

PAGE = 1000
SHOWN_AT_MOST = 100_000

ReservationId = Annotated[
    str,
    typer.Argument(
        parser=identifier,
        metavar="RESERVATION",
        help="Its id, as `reservations list` and the schedule's answer have it.",
    ),
]


def _state(text: str) -> ReservationState:
    if text not in list(ReservationState):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(ReservationState)}", param_hint="--state")
    return ReservationState(text)


State = Annotated[
    ReservationState | None,
    typer.Option(parser=_state, metavar="|".join(ReservationState), help="Only those in this state."),
]


def reservations_app(opening: Opening, prefix: str = "") -> typer.Typer:
    app = typer.Typer(cls=ListByDefault, help="The reservations: list, show, cancel.")
    lines = (
        "reservations list --state pending --older-than 2m",
        "reservations list --node node-a --sort -cpus",
        "reservations list --watch",
    )
    app.command("list", epilog=examples(prefix, *lines))(asking(opening, lists=RESERVATIONS)(list_reservations))
    line = "reservations show c6c11c9e6af8b94e469e7250a85136d7"
    app.command("show", epilog=examples(prefix, line))(asking(opening, views=True)(show_reservation))
    line = "reservations cancel c6c11c9e6af8b94e469e7250a85136d7 --reason 'its caller crashed'"
    app.command("cancel", epilog=examples(prefix, line))(asking(opening)(cancel_reservation))
    return app


async def list_reservations(
    source: Source,
    display: Display,
    node_id: Annotated[
        str | None, typer.Option("--node", parser=identifier, metavar="NODE", help="Only those on this node.")
    ] = None,
    state: State = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only those placed at least this long ago: 90s, 5m.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=SHOWN_AT_MOST, help="Show at most this many, the oldest.")] = 100,
) -> None:
    """Reservations, oldest first."""
    minimum_age_ms = 0 if older_than is None else 1000 * seconds("--older-than", older_than)
    wanted = Wanted(node_id, None if state is None else state.value)

    async def look() -> View:
        now_ms = await source.now_ms()
        found, more = await _oldest(source, wanted, now_ms - minimum_age_ms, limit)
        rows = RESERVATIONS.sorted(found, display.sort)
        nothing = "no reservations like that" if node_id or state or older_than else "no reservations"
        note = f"… and more; --limit {limit} was reached" if more else ""
        table: Any = RESERVATIONS.table(rows, now_ms) if rows else [nothing]
        return View(table, {"reservations": rows, "more": more}, note)

    await display.show(look)


async def _oldest(source: Source, wanted: Wanted, created_until_ms: float, limit: int) -> tuple[list[Row], bool]:
    """At most `limit`, and whether there are more. They come in the order they were placed, so age ends the walk."""
    found: list[Row] = []
    cursor: str | None = None
    while True:
        page, cursor = await source.reservations(wanted, min(PAGE, limit + 1), cursor)
        old_enough = [row for row in page if row["created_at_ms"] <= created_until_ms]
        found += old_enough
        if len(found) > limit:
            return found[:limit], True
        if cursor is None or len(old_enough) < len(page):
            return found, False


async def show_reservation(source: Source, reservation_id: ReservationId, display: Display) -> None:
    """One reservation: what was asked, where it went, what became of it."""

    async def look() -> View:
        page = await source.reservation_page(reservation_id)
        return View(page.lines, page.plain)

    await display.show(look)


async def cancel_reservation(
    source: Source,
    reservation_id: ReservationId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Kept with the reservation.")] = "cancelled by hand",
) -> None:
    """Give a pending reservation back: its capacity is free at once.

    Only when nothing was created of it: a sandbox that is coming up would then be counted nowhere."""
    result = await source.cancel(reservation_id, reason)
    reservation = result["reservation"]
    again = ", as before" if result["replayed"] else ""
    typer.echo(
        f"reservation {reservation_id} on node {reservation['node_id']}: {reservation['state']}{again}", err=True
    )
