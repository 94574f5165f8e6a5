"""The commands. `add_words` puts them on a command line, over whatever `opening` opens."""

from __future__ import annotations

import typer

from scheduler.operating.cli.cluster import add_cluster, sandbox_app
from scheduler.operating.cli.command import Opening
from scheduler.operating.cli.journals import add_journals
from scheduler.operating.cli.nodes import nodes_app
from scheduler.operating.cli.reservations import reservations_app

WORDS = ("nodes", "reservations", "sandbox", "replicas", "settings", "summary", "decisions", "audit", "warm-keys")


def add_words(app: typer.Typer, opening: Opening, prefix: str = "") -> None:
    """`prefix` stands before the words in examples: `inspect `."""
    app.add_typer(nodes_app(opening, prefix), name="nodes")
    app.add_typer(reservations_app(opening, prefix), name="reservations")
    app.add_typer(sandbox_app(opening, prefix), name="sandbox")
    add_cluster(app, opening, prefix)
    add_journals(app, opening, prefix)
