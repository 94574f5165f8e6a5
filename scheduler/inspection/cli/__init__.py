"""`agentenv-scheduler inspect …`: straight from Redis, with no replica needed.

__init__.py   the operator's words, and the names they had before
options.py    where the ledger is
indexes.py    `groups` and `index`
whole.py      `check`, `repair`, `upgrade`, `clock`
"""

from __future__ import annotations

import typer

from scheduler.inspection.cli.indexes import groups, index
from scheduler.inspection.cli.options import opened
from scheduler.inspection.cli.whole import check, clock, repair, upgrade
from scheduler.operating.cli import add_words
from scheduler.operating.cli.command import asking, examples
from scheduler.operating.cli.nodes import show_node
from scheduler.operating.cli.reservations import show_reservation

inspect_app = typer.Typer(no_args_is_help=True, help="Look into the ledger, straight from Redis.")
add_words(inspect_app, opened, "inspect ")

# What `nodes show` and `reservations show` were called first.
inspect_app.command("node", epilog=examples("inspect ", "node node-a"))(asking(opened, views=True)(show_node))
inspect_app.command("reservation", epilog=examples("inspect ", "reservation c6c11c9e6af8b94e469e7250a85136d7"))(
    asking(opened, views=True)(show_reservation)
)

inspect_app.command("groups", epilog=examples("inspect ", "groups", "groups --limit 20 --sort -cpus"))(groups)
inspect_app.command("index", epilog=examples("inspect ", "index", "index --watch"))(index)

inspect_app.command("check", epilog=examples("inspect ", "check --redis-addr 127.0.0.1:6379", "check --json"))(check)
inspect_app.command("repair", epilog=examples("inspect ", "repair", "repair --apply"))(repair)
inspect_app.command("upgrade", epilog=examples("inspect ", "upgrade", "upgrade --apply"))(upgrade)
inspect_app.command("clock", epilog=examples("inspect ", "clock", "clock --reset"))(clock)
