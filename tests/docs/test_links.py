"""Links between the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, documents

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")


def anchors_of(path: Path) -> set[str]:
    """Headings as GitHub turns them into fragments."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    for target, fragment in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        linked = (path.parent / target).resolve()
        assert linked.exists(), f"{path.name} links to {target}, which does not exist"
        if fragment and linked.suffix == ".md":
            assert fragment[1:] in anchors_of(linked), f"{path.name}: {target} has no heading {fragment}"
