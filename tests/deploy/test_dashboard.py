"""The dashboard and the alerts ask for metrics that exist, by labels that these have."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.commands import ROOT
from tests.docs.test_metrics_page import Family, in_code

DASHBOARD = ROOT / "deploy/grafana/dashboards/scheduler.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
SELECTION = re.compile(r"\b((?:agentenv_scheduler|process)_\w+)(?:\{([^}]*)\})?")


def scraped() -> dict[str, Family]:
    """Every name that can stand in a query; a histogram is asked for by its parts."""
    names: dict[str, Family] = {}
    for family in in_code():
        parts = ("_bucket", "_count", "_sum") if family.type == "histogram" else ("",)
        names |= {family.name + part: family for part in parts}
    return names


def expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("text", [*expressions(), ALERTS.read_text(encoding="utf-8")])
def test_every_metric_and_label_that_is_asked_for_exists(text: str) -> None:
    names = scraped()
    for name, matchers in SELECTION.findall(text):
        assert name in names, f"{name} is no metric"
        asked = set(re.findall(r"(\w+)\s*[=!]~?", matchers)) - {"job", "instance"}
        assert asked <= set(names[name].labels), f"{name} has no label {asked}"


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
