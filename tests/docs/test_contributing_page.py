"""The checklists of CONTRIBUTING.md name files that exist, and no kind of change is left without its list."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable

import pytest

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
        ("scheduler/ledger/format.py", "FORMAT"),
        ("lua/include/settings.lua", "read_settings"),
        ("lua/include/strategies.lua", "strategy_traits"),
    ):
        assert name in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


# What a section says of a commit: that it changed no more than the numbered files, or that these are among its own.
ONLY, AMONG = "only", "among"
COMMITS: dict[str, tuple[str, str, Iterable[int]]] = {
    "2550ed2": ("A strategy", ONLY, range(1, 6)),
    "11d0154": ("A resource dimension", ONLY, ()),
    "7f66fe5": ("A route", AMONG, range(1, 5)),
    "34b9169": ("A configuration key", AMONG, range(1, 4)),
}


def files_of(commit: str) -> set[str]:
    asked = ["git", "-C", str(ROOT), "show", "--name-only", "--format=", commit]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("there is no history here that has the commit")
    return set(told.stdout.split())


@pytest.mark.parametrize("commit", COMMITS)
def test_a_commit_that_a_list_names_changed_what_the_list_says(commit: str) -> None:
    title, how, points = COMMITS[commit]
    section = PAGE.partition(f"### {title}\n")[2].partition("\n### ")[0]
    assert f"commit `{commit}`" in section or f"Commit `{commit}`" in section
    found = files_of(commit)
    if how == ONLY:
        assert all(f"`{file}`" in section for file in found)
        assert len(found) <= 7
    for point in points:
        text = re.search(rf"^{point}\. .*?(?=^\d+\. |^$)", section, re.MULTILINE | re.DOTALL)
        assert text
        assert {name for name in re.findall(r"`([\w./-]+\.\w+)`", text[0]) if (ROOT / name).is_file()} & found


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
