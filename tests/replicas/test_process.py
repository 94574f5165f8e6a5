"""The life of one replica process: start, trouble with the ledger, agreement with others, stop."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler.replica.process import new_replica_id
from tests.support.replica_process import ReplicaProcess
from tests.support.servers import RedisServer, free_port

NODE = {"id": "node-a", "endpoint": "http://10.0.0.7:8000"}
NODES = '[{"id": "node-a", "endpoint": "http://10.0.0.7:8000"}]'


def grpc_health(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        return int(answer.status)


def nodes_of(replica: ReplicaProcess) -> list[dict[str, Any]]:
    response = httpx.get(f"{replica.url}/v1/nodes")
    response.raise_for_status()
    nodes: list[dict[str, Any]] = response.json()["nodes"]
    return nodes


def wait_for_nodes(replica: ReplicaProcess, node_ids: list[str], seconds: float = 60.0) -> list[dict[str, Any]]:
    deadline = time.monotonic() + seconds
    while True:
        response = httpx.get(f"{replica.url}/v1/nodes")
        nodes: list[dict[str, Any]] = response.json().get("nodes", []) if response.is_success else []
        if [node["node_id"] for node in nodes] == node_ids:
            return nodes
        assert time.monotonic() < deadline, f"{response.status_code} {response.text}\n{replica.output()}"
        time.sleep(0.05)


def wait_until_in_flight(replica: ReplicaProcess, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while "agentenv_scheduler_http_in_flight 1.0" not in httpx.get(replica.metrics_url).text:
        assert time.monotonic() < deadline, "the request never arrived"
        time.sleep(0.01)


def test_it_logs_where_it_listens_and_answers_there() -> None:
    with ReplicaProcess(anew=True) as replica:
        assert httpx.get(f"{replica.url}/healthz").status_code == 200
        assert httpx.get(f"{replica.url}/readyz").status_code == 200
        assert grpc_health(replica.grpc_address) == health_pb2.HealthCheckResponse.SERVING
        for path in ("/metrics", "/", "/whatever"):
            page = httpx.get(replica.metrics_url + path)
            assert page.status_code == 200
            assert "agentenv_scheduler_observed_nodes" in page.text
        said = replica.listening
        assert said["ledger"] == "embedded"
        assert "network alone guards" in said["grpc_callers"]
        assert replica.stop() == 0
        assert replica.other_lines == []


def test_listeners_can_be_switched_off() -> None:
    with ReplicaProcess("--no-grpc", "--no-metrics-listener") as replica:
        replica.wait_until_ready()
        assert "grpc" not in replica.listening
        assert "metrics" not in replica.listening


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (("--port", "{port}"), "http.port"),
        (("--grpc-port", "{port}"), "grpc_listen_addr"),
        (("--metrics-port", "{port}"), "metrics_listen_addr"),
    ],
)
def test_a_port_in_use_is_reported_in_one_line(options: tuple[str, ...], key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        replica = ReplicaProcess(*(option.format(port=port) for option in options))
        replica.spawn()
        assert replica.wait() == 2
    [line] = replica.other_lines
    assert line.startswith(f"agentenv-scheduler: {key}")
    assert str(port) in line


def test_the_first_request_finds_the_configured_nodes() -> None:
    with ReplicaProcess("--set", f"nodes={NODES}") as replica:
        assert [node["node_id"] for node in nodes_of(replica)] == ["node-a"]


def test_redis_may_come_later() -> None:
    port = free_port()
    with ReplicaProcess("--redis-addr", f"127.0.0.1:{port}", "--set", f"nodes={NODES}") as replica:
        assert httpx.get(f"{replica.url}/healthz").status_code == 200
        answer = httpx.get(f"{replica.url}/readyz")
        assert answer.status_code == 503
        assert answer.json()["code"] == "store_unavailable"
        with RedisServer(port=port):
            replica.wait_until_ready()
            wait_for_nodes(replica, ["node-a"])
            assert replica.stop() == 0


def test_a_node_that_is_drained_stays_so_when_a_replica_starts(private_server: RedisServer) -> None:
    arguments = ("--redis-addr", private_server.address, "--set", f"nodes={NODES}")
    with ReplicaProcess(*arguments) as replica:
        body = {"endpoint": NODE["endpoint"], "state": "lingering"}
        httpx.put(f"{replica.url}/v1/nodes/node-a", json=body).raise_for_status()
    with ReplicaProcess(*arguments) as replica:
        assert [node["status"] for node in nodes_of(replica)] == ["lingering"]


def test_replicas_that_disagree_say_so_and_the_later_one_waits(private_server: RedisServer) -> None:
    address = ("--redis-addr", private_server.address)
    with ReplicaProcess(*address, "--strategy", "random") as first:
        first.wait_until_ready()
        with ReplicaProcess(*address, "--strategy", "least_loaded", "--set", "report_ttl=20s") as second:
            answer = second.wait_for_status("/readyz", 503)
            assert answer["settings"]["differing"] == ["report_ttl_ms", "strategy"]
            first.stop()
            second.wait_until_ready()
            assert second.wait_for_status("/readyz", 200)["settings"]["strategy"] == "least_loaded"


def test_a_higher_revision_wins_and_the_others_run_on_it(private_server: RedisServer) -> None:
    address = ("--redis-addr", private_server.address)
    with ReplicaProcess(*address, "--strategy", "random") as old:
        old.wait_until_ready()
        with ReplicaProcess(*address, "--strategy", "least_loaded", "--set", "settings.revision=2") as new:
            new.wait_until_ready()
            deadline = time.monotonic() + 60
            while (settings := old.wait_for_status("/readyz", 200)["settings"])["strategy"] != "least_loaded":
                assert time.monotonic() < deadline, settings
                time.sleep(0.05)
            assert settings["status"] == "adopted"
            assert settings["revision"] == 2
            assert settings["differing"] == ["strategy"]


def test_its_metrics_count_the_calls_of_its_grpc_port() -> None:
    with ReplicaProcess() as replica, grpc.insecure_channel(replica.grpc_address) as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/scheduler.v1.Scheduler/LookupNode")(b"", timeout=30)
        page = httpx.get(replica.metrics_url).text
    assert 'agentenv_scheduler_rpc_duration_seconds_count{rpc="LookupNode",status="invalid_argument"} 1.0' in page
    assert "\nagentenv_scheduler_grpc_shed_total 0.0\n" in page


def test_a_ledger_that_was_emptied_is_put_back_with_what_was_not_configured(private_server: RedisServer) -> None:
    arguments = ("--redis-addr", private_server.address, "--set", f"nodes={NODES}", "--log-level", "debug")
    with ReplicaProcess(*arguments) as replica:
        for node_id, state in (("node-b", "active"), ("node-c", "lingering")):
            body = {"endpoint": f"http://{node_id}:8000", "state": state}
            httpx.put(f"{replica.url}/v1/nodes/{node_id}", json=body).raise_for_status()
        replica.wait_for_event("discovery remembered", nodes=3)
        private_server.flush()
        replica.wait_for_event("the ledger is not the one it was; putting back what this replica knows")
        nodes = wait_for_nodes(replica, ["node-a", "node-b", "node-c"])
        assert nodes[2]["status"] == "lingering"
        settings = replica.wait_for_status("/readyz", 200)["settings"]
        assert settings["rebuilding"]
        missing = httpx.get(f"{replica.url}/v1/bindings/some-sandbox")
        assert (missing.status_code, missing.json()["code"]) == (503, "not_rebuilt")


def test_a_server_that_came_back_without_its_data_is_put_back(private_server: RedisServer) -> None:
    with ReplicaProcess("--redis-addr", private_server.address, "--set", f"nodes={NODES}") as replica:
        replica.wait_until_ready()
        private_server.kill()
        replica.wait_for_status("/readyz", 503)
        assert httpx.get(f"{replica.url}/healthz").status_code == 200
        private_server.restart()
        replica.wait_until_ready()
        wait_for_nodes(replica, ["node-a"])


def test_a_stopping_replica_first_says_so_and_still_answers() -> None:
    with ReplicaProcess("--set", "shutdown.drain=10m", "--set", f"nodes={NODES}") as replica:
        replica.wait_until_ready()
        url, grpc_address = replica.url, replica.grpc_address
        replica.send(signal.SIGTERM)
        replica.wait_for_event("stopping")
        replica.wait_for_status("/readyz", 503)
        assert grpc_health(grpc_address) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/v1/nodes").status_code == 200
        replica.send(signal.SIGTERM)  # has seen enough; that a drain ends by itself, the next test sees
        assert replica.wait() == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/healthz")


def test_a_drain_ends_by_itself() -> None:
    with ReplicaProcess("--set", "shutdown.drain=100ms") as replica:
        assert replica.stop() == 0


def test_what_is_in_flight_is_finished(private_server: RedisServer) -> None:
    arguments = ("--redis-addr", private_server.address, "--set", f"nodes={NODES}", "--set", "shutdown.drain=0s")
    arguments += ("--set", "store.operation_timeout=60s", "--set", "store.attempt_timeout=60s")
    with ReplicaProcess(*arguments) as replica:
        replica.wait_until_ready()
        url, answers = replica.url, []
        httpx.get(replica.metrics_url)  # read from the ledger now, the page needs none of it for a while
        private_server.pause()
        asking = threading.Thread(target=lambda: answers.append(httpx.get(f"{url}/v1/nodes", timeout=60)))
        asking.start()
        wait_until_in_flight(replica)
        replica.send(signal.SIGTERM)
        replica.wait_for_event("stopping")
        private_server.resume()
        asking.join(60)
        assert [answer.status_code for answer in answers] == [200]
        assert replica.wait() == 0


def test_a_second_signal_waits_for_nothing() -> None:
    with ReplicaProcess("--set", "shutdown.drain=10m", anew=True) as replica:
        replica.send(signal.SIGINT)
        replica.wait_for_event("stopping")
        replica.send(signal.SIGINT)
        assert replica.wait() == 0


def test_a_replica_that_leaves_is_forgotten_at_once(private_server: RedisServer) -> None:
    with ReplicaProcess("--redis-addr", private_server.address, "--set", "replica_id=the-first") as replica:
        replica.wait_until_ready()
        with private_server.client() as client:
            [known] = client.zrange("aenv:{default}:replicas", 0, -1)
            assert known == replica.listening["replica_id"]
            assert re.fullmatch(r"the-first-[0-9a-f]{8}", known)
            replica.stop()
            assert client.zrange("aenv:{default}:replicas", 0, -1) == []


def test_replicas_of_one_configured_name_wait_for_each_other_after_a_loss(private_server: RedisServer) -> None:
    address = ("--redis-addr", private_server.address)
    arguments = (*address, "--strategy", "least_loaded", "--set", f"nodes={NODES}", "--set", "replica_id=same")
    with ReplicaProcess(*arguments) as one, ReplicaProcess(*arguments) as other:
        for replica in (one, other):
            replica.wait_until_ready()
        ids = [each["replica_id"] for each in httpx.get(f"{one.url}/v1/replicas").json()["replicas"]]
        assert sorted(ids) == sorted(replica.listening["replica_id"] for replica in (one, other))
        assert len(set(ids)) == 2
        assert all(replica_id.startswith("same-") for replica_id in ids)
        time.sleep(1.2)  # real time: the next keepalive tells each of the other
        assert report(one) == 200
        assert (schedule(other), schedule(other)) == (200, 503)
        other.send(signal.SIGSTOP)
        with private_server.client() as client:
            client.flushall()
        answered = set()
        until = time.monotonic() + 4  # a keepalive, and the wait for replicas that no list names
        while time.monotonic() < until:
            report(one)
            answered.add(schedule(one))
            time.sleep(0.1)
        assert answered == {503}, "only the other knows what it granted"
        other.send(signal.SIGCONT)
        deadline = time.monotonic() + 60
        while report(one) != 200:
            assert time.monotonic() < deadline, one.output()
            time.sleep(0.05)
        assert schedule(one) == 503, "the node is full"
        assert [node["pending"]["cpu_count"] for node in nodes_of(one)] == [4]


def report(replica: ReplicaProcess) -> int:
    """The node has room for one sandbox of `schedule`."""
    snapshot = {"status": "ready", "cpu_count": 4, "memory_total_bytes": 2**36}
    body = {"service_instance_id": "instance-1", "snapshot": snapshot}
    return httpx.post(f"{replica.url}/v1/nodes/node-a/heartbeat", json=body, timeout=30).status_code


def schedule(replica: ReplicaProcess) -> int:
    hint = {"kind": "cold_sandbox", "cpu_count": 4, "memory_mb": 512}
    return httpx.post(f"{replica.url}/v1/schedule", json={"hint": hint}, timeout=30).status_code


def test_a_generated_replica_id_is_unique_too() -> None:
    assert len({new_replica_id() for _ in range(3)} | {new_replica_id("same") for _ in range(3)}) == 6


def test_query_only_looks_up_and_nothing_else(private_server: RedisServer) -> None:
    address = ("--redis-addr", private_server.address)
    with ReplicaProcess(*address, "--set", f"nodes={NODES}") as full:
        full.wait_until_ready()
        binding = {"node_id": "node-a", "endpoint": NODE["endpoint"]}
        httpx.put(f"{full.url}/v1/bindings/sandbox-1", json=binding).raise_for_status()
        with ReplicaProcess(*address, "--query-only") as query:
            assert "http" not in query.listening
            assert grpc_health(query.grpc_address) == health_pb2.HealthCheckResponse.SERVING
            with grpc.insecure_channel(query.grpc_address) as channel:
                assert b"node-a" in _call(channel, "LookupNode", b"\x0a\x09sandbox-1")
                with pytest.raises(grpc.RpcError) as refused:
                    _call(channel, "Schedule", b"")
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert query.stop() == 0


def _call(channel: grpc.Channel, method: str, request: bytes) -> bytes:
    """A raw call: what a client of any origin puts on the wire."""
    answer: bytes = channel.unary_unary(f"/scheduler.v1.Scheduler/{method}")(request, timeout=30)
    return answer


def test_kubernetes_discovery_outside_of_a_cluster_is_logged_and_survived() -> None:
    kubernetes = {"namespace": "agentenv", "service_name": "nodes", "port": "8000"}
    settings = [
        word for name, value in kubernetes.items() for word in ("--set", f"discovery.kubernetes.{name}={value}")
    ]
    with ReplicaProcess("--set", "discovery.mode=kubernetes", *settings) as replica:
        assert "this is no pod" in replica.wait_for_event("no discovery")["detail"]
        replica.wait_until_ready()
        assert replica.stop() == 0


def test_a_label_selector_that_is_none_is_a_fault_at_start() -> None:
    broken = "discovery.kubernetes.ignore_pod_selector=a in (b"
    kubernetes = {
        "mode": "kubernetes",
        "kubernetes.namespace": "a",
        "kubernetes.service_name": "b",
        "kubernetes.port": "1",
    }
    settings = [word for name, value in kubernetes.items() for word in ("--set", f"discovery.{name}={value}")]
    replica = ReplicaProcess(*settings, "--set", broken)
    replica.spawn()
    assert replica.wait() == 2
    assert "ignore_pod_selector" in replica.output()


def test_without_keys_it_listens_beyond_loopback_only_if_insecure() -> None:
    refused = ReplicaProcess("--host", "0.0.0.0")
    refused.spawn()
    assert refused.wait() == 2
    assert "give http.api_keys, or --insecure" in refused.output()
    with ReplicaProcess("--host", "0.0.0.0", "--insecure") as replica:
        replica.wait_for_event("HTTP listens beyond loopback without API keys")


def test_the_password_of_the_ledger_is_in_no_log(tmp_path: Path) -> None:
    with (
        RedisServer(password="hunter2-of-this-test") as server,
        ReplicaProcess("--redis-addr", server.url, "--log-level", "debug") as replica,
    ):
        replica.wait_until_ready()
        server.kill()
        replica.wait_for_status("/readyz", 503)
        replica.stop()
        assert replica.listening["ledger"] == f"redis://:***@{server.address}"
        assert "hunter2" not in replica.output()
