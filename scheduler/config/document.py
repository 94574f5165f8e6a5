"""Generates the tables of `docs/configuration.md` from the keys; a test compares the page with them.

`python -m scheduler.config.document docs/configuration.md` writes them below the page's mark; without a page they are
printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from scheduler.config.key import Key
from scheduler.config.keys import SECTIONS, TOP_LEVEL

_MARK = "a test holds it to the keys -->\n\n"
# Kinds that the default shows well enough; the error message says it in full.
_PLAIN = ("true or false", "a whole number", "the path of", "a duration", "a text")


def markdown() -> str:
    """One table per section: key, environment variable, default, meaning and allowed values."""
    return "\n".join(line for title, keys in SECTIONS.items() for line in _table(title, keys)).rstrip() + "\n"


def _table(title: str, keys: tuple[Key, ...]) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield "| key | environment | default | |"
    yield "|---|---|---|---|"
    for key in keys:
        variables = "<br>".join(f"`{variable}`" for variable in key.environment)
        option = f" Option `{key.option}`." if key.option else ""
        allowed = "" if key.kind.allowed.startswith(_PLAIN) else f" _{key.kind.allowed}_"
        name = f"`{key.path}`" + (" (at the top)" if key.path in TOP_LEVEL else "")
        yield f"| {name} | {variables} | {_default(key)} | {key.summary}{option}{allowed} |"
    yield ""


def _default(key: Key) -> str:
    shown = key.shown(key.default)
    if shown is None or shown in ("", [], {}):
        return ""
    return f"`{shown if isinstance(shown, str) else json.dumps(shown)}`"


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.stdout.write(markdown())
    for page in map(Path, arguments):
        above, mark, _ = page.read_text(encoding="utf-8").partition(_MARK)
        if not mark:
            raise SystemExit(f"{page} has no line that ends with {_MARK.strip()!r}")
        page.write_text(above + mark + markdown(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
