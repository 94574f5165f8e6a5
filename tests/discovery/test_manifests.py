"""The manifests in `docs/kubernetes.md` say what the code needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import DiscoveryMode, load_configuration
from scheduler.discovery.selectors import checked_selector

yaml = pytest.importorskip("yaml", reason="comes with the kubernetes extra")

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"


@pytest.fixture
def manifests() -> dict[str, Any]:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


def container_of(manifests: dict[str, Any]) -> Any:
    [container] = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def test_the_configuration_is_one_that_starts(manifests: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(manifests["ConfigMap"]["data"]["config.json"])
    settings = load_configuration(config_file=file, environment={}).settings
    assert settings.discovery.mode is DiscoveryMode.KUBERNETES
    assert settings.discovery.kubernetes is not None
    assert settings.discovery.kubernetes.port == 8000
    assert checked_selector("k", settings.discovery.kubernetes.no_schedule_pod_selector)


def test_the_container_is_started_as_the_image_expects(manifests: dict[str, Any]) -> None:
    container = container_of(manifests)
    assert container["args"] == ["-config", "/etc/scheduler/config.json"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"grpc": 9090, "metrics": 9101}
    names = {variable["name"] for variable in container["env"]}
    assert names == {"SCHEDULER_REDIS_ADDR", "SCHEDULER_REPLICA_ID", "SCHEDULER_SHUTDOWN_DRAIN"}


def test_the_role_allows_what_discovery_asks_for_and_no_more(manifests: dict[str, Any]) -> None:
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in manifests["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert allowed == {("discovery.k8s.io", "endpointslices"): {"list", "watch"}, ("", "pods"): {"list", "watch"}}


def test_a_pod_has_time_to_drain(manifests: dict[str, Any]) -> None:
    settings = load_configuration(options={"shutdown.drain": "5s"}, environment={}).settings
    seconds = manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert 1000 * seconds > settings.replica.drain_ms + settings.replica.grace_ms
