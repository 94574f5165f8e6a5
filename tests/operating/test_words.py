"""The operator's words, over the HTTP API and straight from Redis: the same story told through both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler import cli
from scheduler.access import generate_key, hash_key
from scheduler.operating.cli.over_http import api_key
from tests.redis.certificates import make_certificates
from tests.support.replica_process import ReplicaProcess
from tests.support.servers import RedisServer

DOMAIN = "words"
NODES = ("a", "b/1")


class Words:
    """Runs one command and keeps its exit status and standard error."""

    def __init__(self, words: list[str], options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        self._words, self._options, self._capsys = words, options, capsys
        self.status, self.errors = 0, ""
        self.is_over_http = not words

    def __call__(self, *arguments: str) -> str:
        self.status = 0
        try:
            cli.main([*self._words, *arguments, *self._options])
        except SystemExit as end:
            self.status = int(end.code or 0)
        told = self._capsys.readouterr()
        self.errors = told.err
        return told.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def replica(real_server: RedisServer) -> Iterator[httpx.Client]:
    """What nodes and gateways ask; every node of it has reported one running sandbox."""
    words = ["--redis-addr", real_server.address, "--domain", DOMAIN, "--strategy", "least_loaded", "--no-grpc"]
    with ReplicaProcess(*words) as process, httpx.Client(base_url=process.url) as client:
        for number, node_id in enumerate(NODES):
            at = node_id.replace("/", "%2F")
            listed = {"endpoint": f"http://10.0.0.{number}:80", "labels": {"zone": "east", "rack": "r1"}}
            client.put(f"/v1/nodes/{at}", json=listed).raise_for_status()
            report(client, at, running=1, sandbox_ids=[f"s-{node_id}"])
        yield client


def report(client: httpx.Client, node_id: str, *, running: int, sandbox_ids: list[str]) -> None:
    snapshot = {"status": "ready", "cpu_count": 16, "memory_total_bytes": 2**34, "sandbox_count": running}
    snapshot |= {"allocated_cpu": 2 * running, "allocated_memory_bytes": running * 2**30}
    snapshot["disks"] = [{"device": "d", "total_bytes": 2**40, "used_bytes": 2**30}]
    body = {"service_instance_id": "i", "snapshot": snapshot, "sandbox_ids": sandbox_ids}
    client.post(f"/v1/nodes/{node_id}/heartbeat", json=body).raise_for_status()


@pytest.fixture(params=["http", "redis"])
def words(
    request: pytest.FixtureRequest,
    replica: httpx.Client,
    real_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Words:
    if request.param == "http":
        monkeypatch.setenv("SCHEDULER_URL", str(replica.base_url))
        return Words([], [], capsys)
    return Words(["inspect"], ["--redis-addr", real_server.address, "--domain", DOMAIN], capsys)


def test_an_operator_looks_drains_and_removes(words: Words, replica: httpx.Client) -> None:
    hint = {"kind": "cold_sandbox", "cpu_count": 2, "memory_mb": 1024, "resources": {"disk": 2**31}}
    placed = replica.post("/v1/schedule", json={"hint": hint})
    reservation = placed.json()["reservation"]
    on, other = reservation["node_id"], next(node for node in NODES if node != reservation["node_id"])

    listed = words.json("nodes", "list", "--sort", "-node")["nodes"]
    assert [node["node_id"] for node in listed] == sorted(NODES, reverse=True)
    assert words.json("nodes", "--sort", "-pending")["nodes"][0]["node_id"] == on
    assert "2 of 16  1 GiB of 16 GiB  1: 2 CPUs, 1 GiB" in words("nodes")
    assert words("nodes", "list", "--sort", "colour") == ""
    assert (words.status, "--sort must be one of node, status," in words.errors) == (2, True)
    page = words("nodes", "show", on)
    assert "2 active + 0 paused + 2 pending = 4 of 16, 12 left" in page
    assert "\n  labels       rack=r1, zone=east\n" in page
    assert "\n  disk         1 GiB allocated + 2 GiB pending = 3 GiB of 1 TiB, 1021 GiB left\n" in page
    assert "2 CPUs, 1 GiB, 2 GiB disk, lifecycle explicit" in words(
        "reservations", "show", reservation["reservation_id"]
    )
    assert "1 GiB   2 GiB disk" in words("reservations", "--sort", "resources")
    words("nodes", "show", "nobody")
    assert (words.status, "nobody" in words.errors) == (1, True)

    summary = words.json("summary")
    assert (summary["domain"], summary["strategy"], summary["nodes"]) == (DOMAIN, "least_loaded", {"ready": 2})
    cpus = {part: figures["cpu_count"] for part, figures in summary.items() if part in CPU_PARTS}
    assert cpus == {"capacity": 32, "allocated": 4, "reserved": 2, "free": 26}
    assert summary["largest_free"] == {
        "16 CPUs, 16 GiB, rack=r1, zone=east": {"cpu_count": 14, "memory_bytes": 15 * 2**30}
    }
    assert (summary["reservations"], len(summary["replicas"])) == ({"pending": 1}, 1)
    told = words("summary")
    assert "4 allocated + 2 reserved of 32, 26 free; largest free on one node 14" in told
    assert words.json("replicas")["replicas"][0]["replica_id"] == summary["replicas"][0]
    settings = words.json("settings")
    assert (settings["settings"]["strategy"], settings["settings"]["overcommit_cpu"]) == ("least_loaded", 1.0)
    assert "  avoid.share_percent = 33" in words("settings")
    told = "option" if words.is_over_http else "configuration"
    assert f"  strategy = least_loaded  ({told})" in words("settings")
    assert words("sandbox", "where", f"s-{other}").startswith(f"sandbox s-{other} is on node {other}, http://10.0.0.")
    words("sandbox", "where", "s-nowhere")
    assert words.status == 1

    words("nodes", "remove", on)
    assert (words.status, "is not empty" in words.errors, "1 running" in words.errors) == (1, True, True)
    words("nodes", "drain", on, "--wait", "--deadline", "1ms")
    assert words.status == 3
    assert "1 running, 0 starting, 0 paused, 1 reservation pending" in words.errors
    assert f"node {on} was not empty within 1ms; it goes on draining" in words.errors
    assert "draining" in words("nodes", "list", "--sort", "status").splitlines()[1]
    found = words.json("reservations", "list", "--node", on, "--state", "pending", "--sort", "age")
    assert [row["reservation_id"] for row in found["reservations"]] == [reservation["reservation_id"]]
    words("reservations", "cancel", reservation["reservation_id"], "--reason", "its caller\x1b[2J\u202e\ncrashed")
    assert words.status == 0
    words("reservations", "cancel", reservation["reservation_id"])  # changes nothing, and is no act
    assert words.status == 0
    cancels = [act for act in words.json("audit")["acts"] if act["act"] == "reservation.cancel"]
    assert len(cancels) == (0 if words.is_over_http else 1), "without keys nobody tells an operator from a gateway"
    shown = r"its caller\x1b[2J\u202e\ncrashed"
    assert shown in words("reservations", "show", reservation["reservation_id"])
    assert shown in words("reservations"), "no caller's text commands the operator's terminal"
    asked = {"require": {"zone": ["east", "west"]}, "spread": {"key": "k", "over": "zone", "max": 3}}
    refused = replica.post("/v1/schedule", json={"hint": {"kind": "cold_sandbox", "cpu_count": 99, **asked}})
    assert refused.status_code == 503
    for sort in ([], ["--sort", "-age"], ["--sort", "why"]):
        assert words.json("decisions", "--reason", "too_large", *sort)["decisions"][0]["reasons"] == {"too_large": 2}
    told = words("decisions", "--caller", "anonymous", "--limit", "1")
    assert "99 CPUs, ?, zone=east|west, spread k over zone, max 3" in told
    assert "2 too_large, cpu_count: 2 there + 0 reserved + 99 asked for, at most 16" in told
    assert [row["node_id"] for row in words.json("decisions", "--node", on)["decisions"]] == [on]
    assert words("decisions", "--node", "nobody") == "no decisions are kept like that\n"
    assert words("warm-keys") == "no keys are warm like that; affinity.slack turns it on\n"
    words("nodes", "cordon", other, "--instance", "j")
    assert (words.status, "service instance mismatch" in words.errors) == (1, True)
    words("nodes", "uncordon", other)
    assert words.errors == f"node {other} is not cordoned\n"
    words("nodes", "cordon", other)
    assert words.errors == f"node {other} is cordoned while instance i reports\n"
    words("nodes", "cordon", other)
    assert words.errors == f"node {other} was cordoned already, while instance i reports\n"
    assert "lingering" in words("nodes", "show", other, "--json")
    page = words("nodes", "show", other)
    assert f"node {other}: cordoned, not chosen: cordoned\n" in page
    assert "\n  cordoned     while instance i reports, or until `nodes uncordon`\n" in page
    assert [line.split()[1] for line in words("nodes", "--sort", "node").splitlines()[1:]].count("cordoned") == 1
    assert "2 nodes: 2 draining or cordoned" in words("summary")
    words("nodes", "undrain", other)
    uncordon = f"it is cordoned while instance i reports: `nodes uncordon {other}` takes that back\n"
    assert words.errors == f"node {other} was not drained; {uncordon}"
    words("nodes", "drain", other)
    assert f"node {other}: draining, cordoned, not chosen: draining, cordoned\n" in words("nodes", "show", other)
    words("nodes", "undrain", other)
    assert words.errors == f"node {other} drains no longer; {uncordon}"
    words("nodes", "uncordon", other)
    assert words.errors == f"node {other} is no longer cordoned\n"
    acts = words.json("audit", "--limit", "3")["acts"]
    assert [act["act"] for act in acts] == ["node.uncordon", "node.put", "node.put"]
    noted = [act["act"] for act in words.json("audit")["acts"]]
    assert (noted.count("node.cordon"), noted.count("node.uncordon")) == (1, 1)
    assert {"node.uncordon", "node.put"} <= {act["act"] for act in words.json("audit")["acts"]}
    assert "service_instance_id: i" in words("audit")
    report(replica, on.replace("/", "%2F"), running=0, sandbox_ids=[])
    assert words("nodes", "drain", on, "--wait") == f"node {on} is empty\n"
    words("nodes", "undrain", on)
    assert words.json("nodes", "show", on).get("node", words.json("nodes", "show", on))["discovery"] == "active"
    words("nodes", "remove", on)
    words("nodes", "remove", other, "--force")
    assert (words.status, words("nodes")) == (0, "no nodes\n")


def test_an_id_is_trimmed_and_one_that_is_none_reaches_nobody(words: Words, replica: httpx.Client) -> None:
    for odd in ("", " ", "a\nb", "x" * 256):
        for asked in (
            ("nodes", "show"), ("nodes", "drain"), ("nodes", "undrain"), ("nodes", "cordon"), ("nodes", "uncordon"),
            ("nodes", "remove", "--force"), ("decisions", "--node"), ("warm-keys", "--node"),
            ("reservations", "show"), ("reservations", "cancel"), ("sandbox", "where"),
            ("reservations", "list", "--node"),
        ):  # fmt: skip
            assert words(*asked, odd) == ""
            assert (words.status, "an id must be 1 to 255 bytes" in words.errors) == (2, True)
    for step_of_a_path in (".", ".."):
        assert words("nodes", "show", step_of_a_path) == ""
        assert (words.status, f"node '{step_of_a_path}' is not known" in words.errors) == (1, True)
    assert words("nodes", "show", " a ").startswith("node a: ")
    assert [node["node_id"] for node in replica.get("/v1/nodes").json()["nodes"]] == list(NODES)


CPU_PARTS = ("capacity", "allocated", "reserved", "free")


def test_a_key_comes_from_a_file_or_a_variable_and_certificates_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = make_certificates(tmp_path)
    key, keys, file = generate_key(), tmp_path / "keys.json", tmp_path / "ops.key"
    keys.write_text(json.dumps({"keys": [{"name": "ops", "role": "admin", "sha256": hash_key(key)}]}))
    file.write_text(key + "\n")
    tls = {
        "cert_file": certificates.server,
        "key_file": certificates.server_key,
        "client_ca_file": certificates.authority,
    }
    options = [word for name, path in tls.items() for word in ("--set", f"http.tls.{name}={path}")]
    with ReplicaProcess("--no-grpc", *options, environment={"SCHEDULER_API_KEYS_FILE": str(keys)}) as replica:
        at = ["--url", replica.url, "--ca-file", str(certificates.authority)]
        at += ["--cert-file", str(certificates.client), "--key-file", str(certificates.client_key)]
        words = Words([], at, capsys)
        assert words("nodes", "--api-key-file", str(file)) == "no nodes\n"
        words("nodes")
        assert (words.status, "set SCHEDULER_API_KEY" in words.errors) == (1, True)
        monkeypatch.setenv("SCHEDULER_API_KEY", key)
        assert words("nodes") == "no nodes\n"
        unknown = Words([], ["--url", replica.url], capsys)
        unknown("nodes")
        assert (unknown.status, "CERTIFICATE_VERIFY_FAILED" in unknown.errors) == (1, True)
        unknown("nodes", "--key-file", str(file))
        assert (unknown.status, "--cert-file" in unknown.errors) == (2, True)


def test_a_key_or_an_address_that_nothing_can_be_asked_with_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Words([], ["--timeout", "1s"], capsys)
    file = tmp_path / "odd.key"
    for odd in ("", "\n", "two\nlines", "ünï", "a b", "\x07"):
        file.write_text(odd, encoding="utf-8")
        words("nodes", "--api-key-file", str(file))
        assert (words.status, f"{file} must hold one API key" in words.errors) == (2, True), odd
        if odd.strip():
            monkeypatch.setenv("SCHEDULER_API_KEY", odd)
            words("nodes")
            assert (words.status, "SCHEDULER_API_KEY must hold one API key" in words.errors) == (2, True), odd
            monkeypatch.delenv("SCHEDULER_API_KEY")
    file.write_text("\ufeffkey\r\n", encoding="utf-8")
    assert api_key(file) == "key"
    for odd in ("", "http://", "https://host:99999", "http://host:x", "http://[::1", "http://host:0", "ftp://host"):
        words("nodes", "--url", odd)
        assert (words.status, "--url must be a URL" in words.errors) == (2, True), odd


def test_who_cannot_be_reached_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = Words([], ["--url", "http://127.0.0.1:1", "--timeout", "1s"], capsys)
    words("nodes")
    assert words.status == 1
    assert words.errors.startswith(
        "agentenv-scheduler: http://127.0.0.1:1: the scheduler was not reached (ConnectError)"
    )
    Words([], ["--url", "127.0.0.1:1"], capsys)("nodes")
