"""The checklists of CONTRIBUTING.md name files that exist, and no kind of change is left without its list."""

from __future__ import annotations

import re

from tests.docs.commands import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TOP = {path.name for path in ROOT.iterdir()}


def test_every_file_that_is_named_exists() -> None:
    named = {text for text in re.findall(r"`([\w./-]+)`", PAGE) if text.partition("/")[0] in TOP}
    assert len(named) > 100
    assert not [text for text in sorted(named) if not (ROOT / text).exists()]


def test_names_inside_files_are_there() -> None:
    """A name in brackets, or called by its list, is one of the file before it."""
    for file, name in re.findall(r"`([\w./-]+\.(?:py|lua))`:? \(`(\w+)`\)", PAGE):
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8")), f"{file} has no {name}"
    for file, name in (
        ("scheduler/domain/placement.py", "class Strategy"),
        ("scheduler/domain/node.py", "class NodeSnapshot"),
        ("lua/include/format.lua", "FORMAT"),
        ("scheduler/ledger/runner.py", "FORMAT"),
        ("lua/include/settings.lua", "read_settings"),
        ("lua/include/strategies.lua", "strategy_traits"),
    ):
        assert name in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


def test_every_kind_of_change_has_its_list() -> None:
    lists = re.findall(r"^### (.+)$", PAGE.partition("## Checklists")[2], re.MULTILINE)
    assert lists == [
        "A strategy",
        "A resource dimension",
        "A route",
        "A configuration key",
        "A metric",
        "A figure of the node snapshot",
        "A dependency",
    ]


def test_readme_leads_to_both_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(CONTRIBUTING.md)" in readme
    assert "(SECURITY.md)" in readme
