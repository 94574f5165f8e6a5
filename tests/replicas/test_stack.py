"""The compose file, started as local processes and used through its balancer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.replicas.compose import FILE, ROOT, LocalStack, missing_program, read_services, substitute

NEEDED = ("redis", "balancer")
HINT = {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 512}


def needs_programs() -> pytest.MarkDecorator:
    services = read_services()
    missing = [why for name in NEEDED if (why := missing_program(services[name]))]
    return pytest.mark.skipif(bool(missing), reason="; ".join(missing))


class User:
    """Somebody with a key, talking to the balancer."""

    def __init__(self, stack: LocalStack, role: str | None) -> None:
        self._headers = {"Authorization": f"Bearer {stack.secret(f'{role}.key')}"} if role else {}
        address = stack.addresses["balancer"]
        self._url = f"http://{address}:8080"
        self.grpc_address = f"{address}:9090"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self._url + path, headers=self._headers, timeout=30, trust_env=False)

    def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        headers |= self._headers
        return httpx.post(self._url + path, json=body, headers=headers, timeout=30, trust_env=False)

    def place(self, key: str) -> httpx.Response:
        return self.post("/v1/schedule", {"hint": HINT}, **{"Idempotency-Key": key})


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.2)


def told(call: Callable[[], httpx.Response]) -> httpx.Response:
    """What a replica answers: on a busy machine the balancer may find none of them for a moment."""

    def answer() -> httpx.Response | None:
        found = call()
        return found if found.status_code != 503 else None

    answered: httpx.Response = until(answer, "an answer of a replica")
    return answered


def prometheus(stack: LocalStack, path: str, **parameters: str) -> Any:
    url = f"http://{stack.addresses['prometheus']}:9095/api/v1/{path}"
    answer = httpx.get(url, params=parameters, timeout=10, trust_env=False).json()
    assert answer["status"] == "success", answer
    return answer["data"]


def sooner(text: str) -> str:
    """Prometheus looks every second, and alerts wait no longer."""
    return re.sub(r"(scrape_interval|evaluation_interval|\bfor): \w+", r"\1: 1s", text)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    with LocalStack(tmp_path_factory.mktemp("stack"), edit=sooner) as running:
        yield running


# -- the file itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", read_services())
def test_every_service_is_contained(name: str) -> None:
    service = read_services()[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    user = service["user"].split(":")[0]
    assert user.isdigit()
    assert user != "0"
    assert service["cpus"] > 0
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["restart"] == "unless-stopped"


def test_only_loopback_ports_are_published() -> None:
    published = [port for service in read_services().values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_no_secret_stands_in_the_file_or_is_asked_of_the_environment() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert substitute(text, {}) == substitute(text, {"REDIS_PASSWORD": "x", "GRAFANA_PASSWORD": "x"})
    for name, service in read_services().items():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable or "AUTH" in variable:
                assert re.search(r"/run/secrets/\w+", value), f"{name}: {variable}"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {".env", "deploy/secrets/"} <= set(ignored)


def test_prepare_keeps_what_exists(tmp_path: Path) -> None:
    first = LocalStack(tmp_path / "a")
    names = ["node.key", "gateway.key", "admin.key", "redis.password", "grafana.password", "redis-auth.conf"]
    kept = {name: first.secret(name) for name in names}
    assert first.secret("redis.password") in first.secret("redis-auth.conf")
    (tmp_path / "a/containers").rename(tmp_path / "moved")
    second = LocalStack(tmp_path / "a")
    assert {name: second.secret(name) for name in names} == kept


# -- the running stack ----------------------------------------------------------------------------------------------


@needs_programs()
@pytest.mark.slow
def test_what_cannot_run_here_says_why(stack: LocalStack) -> None:
    assert set(stack.skipped) <= {"grafana", "prometheus"}
    for name, why in stack.skipped.items():
        print(f"{name} is skipped: {why}")


@needs_programs()
@pytest.mark.slow
def test_no_process_was_told_a_secret_by_its_arguments_or_its_environment(stack: LocalStack) -> None:
    secrets = [file.read_bytes() for pattern in ("*.password", "*.key") for file in stack.secrets.glob(pattern)]
    assert len(secrets) == 5
    for service in stack.services.values():
        assert service.process is not None
        for told in ("cmdline", "environ"):
            if (file := Path(f"/proc/{service.process.pid}/{told}")).exists():
                text = file.read_bytes()
                assert not [secret for secret in secrets if secret in text], f"{service.name}: {told}"


@needs_programs()
@pytest.mark.slow
def test_the_balancer_asks_for_keys_and_finds_the_fleet(stack: LocalStack) -> None:
    assert told(lambda: User(stack, None).get("/readyz")).status_code == 200
    assert told(lambda: User(stack, None).get("/v1/nodes")).status_code == 401
    assert told(lambda: User(stack, "node").place("not-mine")).status_code == 403
    admin = User(stack, "admin")
    until(
        lambda: [node["status"] for node in told(lambda: admin.get("/v1/nodes")).json()["nodes"]] == ["ready"] * 8,
        "eight nodes to report",
    )
    until(
        lambda: told(lambda: admin.get("/v1/reservations?state=settled")).json()["reservations"],
        "a sandbox of the fleet to be listed",
    )


@needs_programs()
@pytest.mark.slow
def test_a_sandbox_is_placed_confirmed_and_found_over_http_and_grpc(stack: LocalStack) -> None:
    gateway = User(stack, "gateway")
    placed = until(lambda: _placed(gateway, "smoke"), "a node that has reported")
    reservation_id = placed["reservation"]["reservation_id"]
    confirmed = told(lambda: gateway.post(f"/v1/reservations/{reservation_id}/confirm", {"sandbox_id": "smoke-1"}))
    assert confirmed.json()["reservation"]["state"] == "confirmed"
    assert told(lambda: gateway.get("/v1/bindings/smoke-1")).json()["node"] == placed["node"]
    with grpc.insecure_channel(gateway.grpc_address) as channel:
        until(lambda: _is_serving(channel), "a replica behind the balancer to serve gRPC")
        look_up = channel.unary_unary("/scheduler.v1.Scheduler/LookupNode")
        assert placed["node"]["node_id"].encode() in look_up(b"\x0a\x07smoke-1", timeout=30)


@needs_programs()
@pytest.mark.real_time
@pytest.mark.slow
def test_a_replica_may_die_and_come_back_without_a_caller_seeing_an_error(stack: LocalStack) -> None:
    gateway = User(stack, "gateway")
    until(lambda: _placed(gateway, "before"), "a node that has reported")
    stack["replica-2"].kill()
    # Until the balancer has noticed, it sends to another what did not reach the dead one.
    answers = [gateway.place(f"while-down-{number}").status_code for number in range(40)]
    assert set(answers) == {200}
    stack["replica-2"].start()
    stack["replica-2"].wait_until_healthy()


@needs_programs()
@pytest.mark.slow
def test_prometheus_sees_every_replica_and_every_expression_has_a_meaning(stack: LocalStack) -> None:
    if "prometheus" in stack.skipped:
        pytest.skip(stack.skipped["prometheus"])
    targets = until(
        lambda: (
            (found := prometheus(stack, "targets")["activeTargets"])
            and all(target["health"] == "up" for target in found)
            and found
        ),
        "every target to be scraped",
    )
    assert sorted(target["labels"]["job"] for target in targets) == ["balancer"] + ["scheduler"] * 3
    [group] = prometheus(stack, "rules")["groups"]
    assert all(rule["health"] in ("ok", "unknown") for rule in group["rules"])
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/scheduler.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            prometheus(stack, "query", query=target["expr"])
    observed = 'max(agentenv_scheduler_observed_nodes{status="ready"})'
    until(
        lambda: prometheus(stack, "query", query=observed)["result"][0]["value"][1] == "8", "eight nodes in Prometheus"
    )


@needs_programs()
@pytest.mark.faults
def test_the_sentinel_profile_survives_the_loss_of_redis(tmp_path: Path) -> None:
    address = "sentinel://sentinel-1:26379,sentinel-2:26379,sentinel-3:26379/aenv"
    with LocalStack(tmp_path, profiles=["sentinel"], environment={"SCHEDULER_REDIS_ADDR": address}) as stack:
        gateway = User(stack, "gateway")
        until(lambda: _placed(gateway, "before"), "a placement before the failover")
        time.sleep(12)  # real time: sentinels ask a primary for its replicas every ten seconds
        stack["redis"].kill()
        until(lambda: _placed(gateway, "after"), "a placement after the failover", 90)


@needs_programs()
@pytest.mark.faults
def test_the_cluster_profile_holds_the_ledger(tmp_path: Path) -> None:
    address = "cluster://cluster-1:6379,cluster-2:6379,cluster-3:6379"
    with LocalStack(tmp_path, profiles=["cluster"], environment={"SCHEDULER_REDIS_ADDR": address}) as stack:
        until(lambda: _placed(User(stack, "gateway"), "on-a-cluster"), "a placement", 90)


@needs_programs()
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_prometheus_sees_an_outage_of_redis_and_its_end(stack: LocalStack) -> None:
    if "prometheus" in stack.skipped:
        pytest.skip(stack.skipped["prometheus"])

    def ready_nodes() -> list[str]:
        found = prometheus(stack, "query", query='agentenv_scheduler_observed_nodes{status="ready"}')["result"]
        return [series["value"][1] for series in found]

    def firing() -> set[str]:
        alerts = prometheus(stack, "alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    until(lambda: ready_nodes() == ["8"] * 3, "eight ready nodes at three replicas")
    stack["redis"].kill()
    until(lambda: "LedgerUnavailable" in firing(), "the alert of the outage")
    until(lambda: ready_nodes() == [], "figures that nobody knows to go")
    until(lambda: "NoReplica" not in firing(), "replicas to be scraped all the same")
    stack["redis"].start()
    stack["redis"].wait_until_healthy()
    until(lambda: "LedgerUnavailable" not in firing(), "the end of the alert")
    until(lambda: len(ready_nodes()) == 3, "figures at three replicas")


def _is_serving(channel: grpc.Channel) -> bool:
    try:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _placed(user: User, key: str) -> dict[str, Any] | None:
    """The answer once there is a node for it."""
    try:
        answer = user.place(key)
    except httpx.TransportError:
        return None
    assert answer.status_code in (200, 503, 504), answer.text
    body: dict[str, Any] = answer.json()
    return body if answer.status_code == 200 else None


def test_the_file_is_what_docker_compose_reads() -> None:
    """No key that compose does not know: the file has no other reader here."""
    known = {
        *("build", "cap_drop", "command", "cpus", "entrypoint", "environment", "healthcheck", "image", "logging"),
        *("mem_limit", "pids_limit", "ports", "profiles", "read_only", "restart", "secrets", "security_opt"),
        *("stop_grace_period", "tmpfs", "user", "volumes"),
    }
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert {key for key in document if not key.startswith("x-")} == {"name", "services", "volumes", "secrets"}
    for name, service in document["services"].items():
        assert set(service) <= known, name
        named = {volume.split(":")[0] for volume in service.get("volumes", ()) if not volume.startswith("./")}
        assert named <= set(document["volumes"])
        assert set(service.get("secrets", ())) <= set(document["secrets"])
