"""Alerts fire when they should and only then, as Prometheus' own promtool judges; each has its runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.commands import ROOT

FOLDER = ROOT / "deploy/prometheus"
RUNBOOKS = ROOT / "docs/alerts.md"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian's package prometheus)"
)


def rules() -> dict[str, Mapping[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@dataclass(frozen=True)
class Story:
    """What is scraped every 15 s (as promtool writes series), and whether the alert fires then. `labels`: those of
    the alert beside its severity; `value`: what its summary says."""

    alert: str
    series: Mapping[str, str]
    fires: bool
    at: str = "20m"
    labels: Mapping[str, str] = field(default_factory=dict)
    value: str = ""

    def expected(self) -> list[Mapping[str, Any]]:
        if not self.fires:
            return []
        rule = rules()[self.alert]
        summary = rule["annotations"]["summary"].replace("{{ $value }}", self.value)
        for name, value in self.labels.items():
            summary = summary.replace(f"{{{{ $labels.{name} }}}}", value)
        return [
            {
                "exp_labels": {**rule["labels"], **self.labels},
                "exp_annotations": {**rule["annotations"], "summary": summary},
            }
        ]


UP_A, UP_B = 'up{job="scheduler", instance="a"}', 'up{job="scheduler", instance="b"}'
LEDGER_A, LEDGER_B = 'agentenv_scheduler_ledger_up{instance="a"}', 'agentenv_scheduler_ledger_up{instance="b"}'
READY_A = 'agentenv_scheduler_ready{instance="a"}'
ONLINE_A = 'agentenv_scheduler_redis_replicas{instance="a"}'
WANTED_A = 'agentenv_scheduler_redis_replicas_wanted{instance="a"}'
READY_NODES = 'agentenv_scheduler_observed_nodes{status="ready"}'
UNHEALTHY_NODES = 'agentenv_scheduler_observed_nodes{status="unhealthy"}'
REFUSALS = 'agentenv_scheduler_refusals_total{reason="insufficient_cpu"}'
PLACEMENTS = 'agentenv_scheduler_schedule_duration_seconds_count{status="ok"}'
NOT_REBUILT = 'agentenv_scheduler_store_errors_total{code="not_rebuilt"}'
FREE_CPU, ALL_CPU = "agentenv_scheduler_fleet_free_cpu_count", "agentenv_scheduler_fleet_capacity_cpu_count"
FREE_MEMORY, ALL_MEMORY = (
    "agentenv_scheduler_fleet_free_memory_bytes",
    "agentenv_scheduler_fleet_capacity_memory_bytes",
)
CPUS_FREE = {FREE_CPU: "50x100", ALL_CPU: "100x100"}
SCHEDULE_SECONDS = 'agentenv_scheduler_ledger_duration_seconds_bucket{operation="schedule", le="%s"}'
SLOW = {SCHEDULE_SECONDS % bound: f"0+{each}x100" for bound, each in (("0.1", 5), ("0.25", 9), ("+Inf", 9))}
QUICK = {SCHEDULE_SECONDS % bound: "0+9x100" for bound in ("0.1", "0.25", "+Inf")}
HTTP_SHED, GRPC_SHED = "agentenv_scheduler_http_shed_total", "agentenv_scheduler_grpc_shed_total"
ALWAYS_1, ALWAYS_0 = "1x100", "0x100"
RELOADS = 'agentenv_scheduler_reloads_total{what="api_keys", result="%s"}'
DOWN_AFTER_10M = "1x40 0x100"

STORIES = [
    Story("NoReplica", {UP_A: DOWN_AFTER_10M, UP_B: DOWN_AFTER_10M}, True),
    Story("NoReplica", {'up{job="balancer"}': ALWAYS_1}, True),
    Story("NoReplica", {UP_A: DOWN_AFTER_10M, UP_B: ALWAYS_1}, False),
    Story("ReplicaDown", {UP_A: DOWN_AFTER_10M, UP_B: ALWAYS_1}, True, labels={"job": "scheduler", "instance": "a"}),
    Story("ReplicaDown", {UP_A: "1x40 0x2 1x100"}, False),
    # Nobody calls: not one error is counted, and the outage is seen all the same.
    Story("LedgerUnavailable", {LEDGER_A: DOWN_AFTER_10M, LEDGER_B: DOWN_AFTER_10M}, True, at="11m"),
    Story("LedgerUnavailable", {LEDGER_A: DOWN_AFTER_10M, LEDGER_B: ALWAYS_1}, False),
    Story("TooFewRedisReplicas", {ONLINE_A: "2x40 1x100", WANTED_A: "1x140"}, False),
    Story("TooFewRedisReplicas", {ONLINE_A: DOWN_AFTER_10M, WANTED_A: ALWAYS_1}, True, at="11m"),
    # A failover: the promoted server has nobody for a moment.
    Story("TooFewRedisReplicas", {ONLINE_A: "1x40 0x1 1x100", WANTED_A: ALWAYS_1}, False, at="10m15s"),
    Story("ReplicaWithoutLedger", {LEDGER_A: DOWN_AFTER_10M, LEDGER_B: ALWAYS_1}, True, labels={"instance": "a"}),
    Story("ReplicaWithoutLedger", {LEDGER_A: DOWN_AFTER_10M, LEDGER_B: DOWN_AFTER_10M}, False),
    Story("ReplicaNotReady", {READY_A: DOWN_AFTER_10M, LEDGER_A: ALWAYS_1}, True, labels={"instance": "a"}),
    Story("ReplicaNotReady", {READY_A: DOWN_AFTER_10M, LEDGER_A: DOWN_AFTER_10M}, False),
    Story("LedgerRebuilding", {NOT_REBUILT: "0+1x100"}, True),
    Story("LedgerRebuilding", {NOT_REBUILT: "0+1x20 20x100"}, False),
    Story("SettingsDiffer", {"agentenv_scheduler_settings_mismatch": ALWAYS_1}, True),
    Story("SettingsDiffer", {"agentenv_scheduler_settings_mismatch": "0x60 1x100"}, False),
    Story("ClockSteppedBack", {"agentenv_scheduler_clock_skew_seconds": "3x100"}, True, value="3"),
    Story("ClockSteppedBack", {"agentenv_scheduler_clock_skew_seconds": "0.5x100"}, False),
    Story("NoNodeReady", {READY_NODES: "5x40 0x100"}, True),
    Story("NoNodeReady", {READY_NODES: "1x100"}, False),
    # While the ledger is away nobody knows of nodes; that is another alert.
    Story("NoNodeReady", {READY_NODES: "5x40 stale", LEDGER_A: DOWN_AFTER_10M}, False),
    Story("NodesSilent", {UNHEALTHY_NODES: "0x40 3x100"}, True, value="3"),
    Story("NodesSilent", {UNHEALTHY_NODES: ALWAYS_0}, False),
    Story("FleetNearlyFull", {FREE_CPU: "9x100", ALL_CPU: "100x100"}, True),
    Story("FleetNearlyFull", {**CPUS_FREE, FREE_MEMORY: "9x100", ALL_MEMORY: "99x100"}, True),
    Story("FleetNearlyFull", {**CPUS_FREE, FREE_MEMORY: "9x100", ALL_MEMORY: "9x100"}, False),
    Story("PlacementsRefused", {REFUSALS: "0+2x100", PLACEMENTS: "0+8x100"}, True),
    Story("PlacementsRefused", {REFUSALS: "0+1x100", PLACEMENTS: "0+20x100"}, False),
    Story("PlacementsDegraded", {"agentenv_scheduler_degraded_placements_total": "0x60 0+1x100"}, True),
    Story("PlacementsDegraded", {"agentenv_scheduler_degraded_placements_total": "7x100"}, False),
    Story("PlacementSlow", SLOW, True),
    Story("PlacementSlow", QUICK, False),
    Story("ConfirmationsLate", {"agentenv_scheduler_orphaned_confirmations_total": "0x60 1x100"}, True),
    Story("ConfirmationsLate", {"agentenv_scheduler_orphaned_confirmations_total": "1x200"}, False),
    Story("LoadShed", {HTTP_SHED: "0+5x100", GRPC_SHED: "5x100"}, True),
    Story("LoadShed", {HTTP_SHED: "5x100", GRPC_SHED: "0+5x100"}, True),
    Story("LoadShed", {HTTP_SHED: "5x100", GRPC_SHED: "5x100"}, False),
    Story("ReloadFailed", {RELOADS % "failed": "0x60 1x100"}, True, labels={"what": "api_keys"}),
    Story("ReloadFailed", {RELOADS % "failed": "1x100", RELOADS % "done": "0+1x100"}, False),
]


def test_every_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    for fires in (True, False):
        assert {story.alert for story in STORIES if story.fires is fires} == set(rules())


def test_every_alert_has_a_runbook_and_every_runbook_its_alert() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(rules())
    for alert, rule in rules().items():
        assert rule["annotations"]["runbook"] == f"docs/{RUNBOOKS.name}#{alert.lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}


@needs_promtool
def test_promtool_finds_no_fault_in_rules_and_configuration() -> None:
    for check in (["check", "rules", "--lint-fatal", "alerts.yml"], ["check", "config", "prometheus.yml"]):
        done = subprocess.run(["promtool", *check], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    tests = [
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in story.series.items()],
            "alert_rule_test": [{"eval_time": story.at, "alertname": story.alert, "exp_alerts": story.expected()}],
        }
        for story in STORIES
    ]
    document = {"rule_files": [str(FOLDER / "alerts.yml")], "evaluation_interval": "15s", "tests": tests}
    file = tmp_path / "stories.yml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
