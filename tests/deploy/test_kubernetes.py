"""What deploy/kubernetes builds is what Kubernetes takes, what the code needs, and no more than that may do."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.api.grpc.health import READINESS
from scheduler.config import DiscoveryMode, Settings, load_configuration
from scheduler.discovery.selectors import checked_selector
from tests.support.image import read_image
from tests.support.kubernetes_types import faults_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
BUILT = ["base", "overlays/production"]
OLDEST = "1.27"  # what docs/kubernetes.md says
Manifest = dict[str, Any]


@functools.cache
def build(name: str) -> str:
    """As kustomize, which kubectl brings along, puts it together."""
    if (kubectl := shutil.which("kubectl")) is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(FOLDER / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def built(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all(build(name)))


def one(manifests: list[Manifest], kind: str) -> Manifest:
    [found] = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def written() -> Iterator[tuple[str, Manifest]]:
    """Every whole object in the folder, as it is written."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        if path.name != "kustomization.yaml" and (path.parent.name == "base" or path.name == "servicemonitor.yaml"):
            for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(FOLDER)} {manifest['kind']}", manifest


BASE = dict(written())
POD: Any = BASE["base/deployment.yaml Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]


# -- what Kubernetes takes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in BASE if "ServiceMonitor" not in name])
def test_every_field_is_one_that_kubernetes_has(name: str) -> None:
    assert faults_of(BASE[name]) == []


@pytest.mark.parametrize("name", BUILT)
def test_what_kustomize_builds_is_what_kubernetes_takes(name: str) -> None:
    for manifest in built(name):
        if manifest["kind"] != "ServiceMonitor":
            assert faults_of(manifest) == []
        assert manifest["metadata"]["namespace"] == "agentenv"


@pytest.mark.parametrize("name", BUILT)
def test_a_validator_of_others_finds_nothing_either(name: str) -> None:
    """Strictly, against the schemas of the oldest Kubernetes that will do and of the newest that is known."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("kubernetes-validate is not installed; make manifests")
    import kubernetes_validate

    manifests = [manifest for manifest in built(name) if manifest["kind"] != "ServiceMonitor"]
    for version in (OLDEST, kubernetes_validate.latest_version()):
        for manifest in manifests:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_page_says_which_kubernetes_is_needed() -> None:
    assert f"Kubernetes {OLDEST} or later" in (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")


def test_what_kubernetes_does_not_know_is_found_out() -> None:
    deployment = json.loads(json.dumps(BASE["base/deployment.yaml Deployment"]))
    deployment["spec"]["replicas"] = "3"
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["readinessprobe"] = container.pop("readinessProbe")
    del container["ports"][0]["containerPort"]
    text = "\n".join(faults_of(deployment))
    assert "spec.replicas is of type int" in text
    assert "no field readinessprobe" in text
    assert "container_port" in text


def test_the_service_monitor_scrapes_the_service() -> None:
    """Its type is the Prometheus operator's; these are the fields that are used of it."""
    monitor = BASE["components/monitoring/servicemonitor.yaml ServiceMonitor"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    service = BASE["base/service.yaml Service"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert set(endpoint) == {"port", "interval", "scrapeTimeout"}
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    # The operator calls the job after the Service; the alerts name it.
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'job="(\w+)"', alerts)) == {service["metadata"]["name"]}


# -- what the pod may do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["written", *BUILT])
def test_the_pod_keeps_to_the_restricted_standard(name: str) -> None:
    pod = POD if name == "written" else one(built(name), "Deployment")["spec"]["template"]["spec"]
    own = pod["securityContext"]
    assert own["runAsNonRoot"] is True
    assert own["runAsUser"] > 0
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert {kind for volume in pod["volumes"] for kind in volume} <= {"name", "configMap", "secret"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all("hostPort" not in port for port in container["ports"])
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_no_secret_is_in_the_environment() -> None:
    for variable in CONTAINER["env"]:
        assert "secretKeyRef" not in str(variable)


def test_the_role_allows_what_discovery_asks_for_and_no_more() -> None:
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in BASE["base/access.yaml Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert allowed == {("discovery.k8s.io", "endpointslices"): {"list", "watch"}, ("", "pods"): {"list", "watch"}}


# -- what the code needs --------------------------------------------------------------------------------------------


def configured(folder: Path, place: str, variables: list[Manifest]) -> Settings:
    """As the container reads it, with secrets of this test."""
    text = (FOLDER / place / "config.json").read_text(encoding="utf-8")
    (folder / "secret").write_text('{"keys": []}')
    file = folder / "config.json"
    file.write_text(re.sub(r"/run/secrets/[\w/.-]+", str(folder / "secret"), text))
    given = {variable["name"]: variable.get("value", "a-pod") for variable in variables}
    given = {key: re.sub(r"/run/secrets/[\w/.-]+", str(folder / "secret"), value) for key, value in given.items()}
    configuration = load_configuration(config_file=file, environment=read_image().environment | given)
    assert configuration.warnings == ()
    return configuration.settings


@pytest.mark.parametrize("place", BUILT)
def test_the_configuration_is_one_that_starts(place: str, tmp_path: Path) -> None:
    settings = configured(tmp_path, place, CONTAINER["env"])
    assert settings.discovery.mode is DiscoveryMode.KUBERNETES
    assert settings.discovery.kubernetes is not None
    assert settings.discovery.kubernetes.port == 8000
    assert checked_selector("k", settings.discovery.kubernetes.no_schedule_pod_selector)
    assert settings.store.password_file is not None
    listening = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert listening == {"grpc": settings.grpc.listen.port, "metrics": settings.metrics.listen.port}
    assert 1000 * POD["terminationGracePeriodSeconds"] > settings.replica.drain_ms + settings.replica.grace_ms


def test_http_is_open_beyond_loopback_with_keys_alone(tmp_path: Path) -> None:
    patch = yaml.safe_load((FOLDER / "components/http/deployment.yaml").read_text(encoding="utf-8"))
    [container] = patch["spec"]["template"]["spec"]["containers"]
    settings = configured(tmp_path, "base", CONTAINER["env"] + container["env"])
    assert settings.http.api_keys_file is not None
    assert not settings.http.listen.is_loopback
    assert [port["containerPort"] for port in container["ports"]] == [settings.http.listen.port]


def test_files_are_mounted_where_the_configuration_looks_for_them() -> None:
    mounted = {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    for place in BUILT:
        text = (FOLDER / place / "config.json").read_text(encoding="utf-8")
        named = {path.rpartition("/")[0] for path in re.findall(r"/run/secrets/[\w/.-]+", text)}
        assert named <= mounted
    assert CONTAINER["args"][0] == "-config"
    assert CONTAINER["args"][1].rpartition("/")[0] in mounted
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


def test_probes_ask_what_the_port_answers() -> None:
    port = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}["grpc"]
    assert CONTAINER["readinessProbe"]["grpc"] == {"port": port, "service": READINESS}
    for probe in ("livenessProbe", "startupProbe"):
        assert CONTAINER[probe]["grpc"] == {"port": port}


@pytest.mark.parametrize("name", BUILT)
def test_selectors_meet_the_pods(name: str) -> None:
    manifests = built(name)
    deployment = one(manifests, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    assert one(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
    policy = one(manifests, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports
    service = one(manifests, "Service")["spec"]
    assert service["selector"].items() <= labels
    assert {port["targetPort"] for port in service["ports"]} == ports
    configuration = one(manifests, "ConfigMap")["metadata"]["name"]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert [volume["configMap"]["name"] for volume in volumes if "configMap" in volume] == [configuration]
