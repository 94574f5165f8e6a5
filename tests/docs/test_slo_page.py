"""The objectives of docs/slo.md are measured by metrics that exist, in expressions that Prometheus understands, and are
told by alerts that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.commands import ROOT

PAGE = (ROOT / "docs/slo.md").read_text(encoding="utf-8")
EXPRESSIONS = re.findall(r"```promql\n(.*?)\n```", PAGE, re.DOTALL)


def test_every_metric_and_label_is_on_the_page_of_the_metrics() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| \w+ \| ([^|]*)\|", (ROOT / "docs/metrics.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    labels = {name: set(re.findall(r"`(\w+)`", text)) | {"le"} for name, text in rows}
    assert len(EXPRESSIONS) > 5
    for expression in EXPRESSIONS:
        used = re.findall(r"(agentenv_scheduler_\w+)(?:\{([^}]*)\})?", expression)
        assert used
        for name, selected in used:
            known = labels.get(re.sub(r"_(count|sum|bucket)$", "", name)) or labels.get(name)
            assert known is not None, f"no metric {name}"
            assert set(re.findall(r"(\w+)=", selected)) <= known, expression


def test_every_alert_that_is_named_exists() -> None:
    [group] = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for rule in group["rules"]}
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and "](#" in row]
    assert len(rows) == 5
    for row in rows:
        named = re.findall(r"\b([A-Z][a-z]+[A-Z]\w+)", row)
        assert named, row
        assert set(named) <= alerts, row


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus)")
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"slo:{number}", "expr": expression} for number, expression in enumerate(EXPRESSIONS)]
    file = tmp_path / "slo.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "slo", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
