"""What is done to a ledger as a whole: `inspect check`, `repair`, `upgrade`, `clock`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from scheduler.errors import SchedulerError
from scheduler.inspection.cli.options import ConfigFile, Domain, RedisAddress, opened, opened_as_it_is
from scheduler.inspection.ledger_source import LedgerSource
from scheduler.inspection.where import Where, with_ledger
from scheduler.operating.cli.command import asking


def check(
    redis_addr: RedisAddress = None,
    domain: Domain = None,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Count the whole ledger anew. Right under load, writes nothing.

    Exit status: 0 all of it adds up, 1 something does not, 2 it could not be looked at."""
    from scheduler.inspection.pages import check_page
    from scheduler.inspection.recount import check as check_ledger

    try:
        report = with_ledger(Where(redis_addr, domain, config), check_ledger)
    except SchedulerError as error:
        typer.echo(f"agentenv-scheduler: {error.full_detail}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        plain = {
            "ok": report.ok,
            "violations": [str(violation) for violation in report.violations],
            "looked_at": report.looked_at,
            "notes": report.notes,
        }
        typer.echo(json.dumps(plain, ensure_ascii=False, indent=2))
    else:
        for line in check_page(report):
            typer.echo(line)
    if not report.ok:
        raise typer.Exit(1)


@asking(opened_as_it_is)
async def upgrade(
    source: LedgerSource,
    apply: Annotated[
        bool, typer.Option("--apply", help="Convert. Stop all replicas of the older version first.")
    ] = False,
) -> None:
    """Bring the ledger of an older version to this one's format. Without --apply: say what there is, write nothing."""
    from scheduler.inspection.upgrade import upgrading

    for line in await upgrading(source.ledger, apply=apply):
        typer.echo(line)


@asking(opened)
async def repair(
    source: LedgerSource, apply: Annotated[bool, typer.Option("--apply", help="Write. Right under load.")] = False
) -> None:
    """Make anew what `check` finds wrong, from reservations and reports. Without --apply: say what, write nothing.

    Exit status: 0 all of it adds up now, 1 something does not."""
    from scheduler.inspection.repair import repair as repair_ledger

    done = await repair_ledger(source.ledger, apply=apply)
    for finding in done.found:
        typer.echo(f"{'left' if finding in done.left else 'repaired'}: {finding}")
    for finding in set(done.left) - set(done.found):
        typer.echo(f"left: {finding}")
    if not done.found:
        typer.echo("all of it adds up")
    elif not apply:
        repairable = not all(finding.is_unexplained for finding in done.found)
        typer.echo("nothing was written" + ("; --apply repairs" if repairable else ""))
    if any(finding.is_unexplained for finding in done.left):
        typer.echo("keys that nothing explains are never removed: find out who wrote them, then UNLINK them")
    if done.left:
        raise typer.Exit(1)


@asking(opened)
async def clock(
    source: LedgerSource,
    reset: Annotated[bool, typer.Option("--reset", help="Go by the server's clock again.")] = False,
) -> None:
    """How far ledger time is ahead of the server's clock. Without --reset nothing is written."""

    def seconds(ms: int) -> str:
        return f"{ms / 1000:,.3f} s"

    skew = seconds(await source.ledger.time.skew_ms())
    if reset:
        taken_back = seconds(await source.ledger.time.reset())
        typer.echo(f"ledger time was {taken_back} ahead; it goes by the server's clock again")
    else:
        typer.echo(f"ledger time is {skew} ahead of the server's clock")
