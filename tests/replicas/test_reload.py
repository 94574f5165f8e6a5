"""Files that change under a running replica: certificates, API keys, its configuration; and SIGHUP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from scheduler.access import generate_key, hash_key
from tests.redis.certificates import Certificates, make_certificates
from tests.support.replica_process import ReplicaProcess

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system knows no SIGHUP")


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificates, Certificates]:
    """Two of everything, each of an authority of its own."""
    return (
        make_certificates(tmp_path_factory.mktemp("first")),
        make_certificates(tmp_path_factory.mktemp("second")),
    )


class Files:
    """What the replica reads, replaced as a person or Kubernetes would: the new one moved over the old."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "server.pem", folder / "server.key"
        self.keys, self.config = folder / "keys.json", folder / "config.json"

    def show(self, certificates: Certificates) -> None:
        replace(self.key, certificates.server_key.read_bytes())
        replace(self.cert, certificates.server.read_bytes())

    def allow(self, *keys: str) -> None:
        entries = [
            {"name": f"key-{number}", "role": "admin", "sha256": hash_key(key)} for number, key in enumerate(keys)
        ]
        replace(self.keys, json.dumps({"keys": entries}).encode())

    def configure(self, **top: object) -> None:
        replace(self.config, json.dumps({"scheduler": {}, **top}).encode())


def replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)  # noqa: PTH105  in one step, which is the point


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def old_key() -> str:
    return generate_key()


@pytest.fixture
def replica(files: Files, issued: tuple[Certificates, Certificates], old_key: str) -> Iterator[ReplicaProcess]:
    files.show(issued[0])
    files.allow(old_key)
    files.configure(log_level="info")
    options = ["--config", str(files.config)]
    for edge in ("http", "grpc"):
        options += ["--set", f"{edge}.tls.cert_file={files.cert}", "--set", f"{edge}.tls.key_file={files.key}"]
    # The log's level is of the file, so the harness' option must not say it.
    with ReplicaProcess(*options, environment={"SCHEDULER_API_KEYS_FILE": str(files.keys)}) as started:
        yield started


def shown_at(address: str, *, http2: bool) -> bytes:
    """The certificate that a listener shows."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if http2:
        context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), timeout=30) as plain, context.wrap_socket(plain) as secured:
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return found


def both_ports(replica: ReplicaProcess) -> set[bytes]:
    return {
        shown_at(replica.url.removeprefix("https://"), http2=False),
        shown_at(replica.grpc_address, http2=True),
    }


def der_of(certificates: Certificates) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificates.server.read_text())


def status_with(replica: ReplicaProcess, key: str, authority: Path) -> int:
    context = ssl.create_default_context(cafile=str(authority))
    return httpx.get(f"{replica.url}/v1/templates", headers={"X-API-Key": key}, verify=context).status_code


def test_renewed_certificates_are_shown_by_both_listeners(
    replica: ReplicaProcess, files: Files, issued: tuple[Certificates, Certificates]
) -> None:
    first, second = issued
    assert both_ports(replica) == {der_of(first)}
    credentials = grpc.ssl_channel_credentials(first.authority.read_bytes())
    with grpc.secure_channel(replica.grpc_address, credentials) as before:
        grpc.channel_ready_future(before).result(timeout=30)
        files.show(second)
        for what in ("http_tls", "grpc_tls"):
            replica.wait_for_event("reloaded", what=what)
        assert both_ports(replica) == {der_of(second)}


def test_broken_files_change_nothing_and_are_logged(
    replica: ReplicaProcess, files: Files, issued: tuple[Certificates, Certificates], old_key: str
) -> None:
    first, second = issued
    none_yet = 'agentenv_scheduler_reloads_total{result="failed",what="api_keys"} 0.0'
    assert none_yet in httpx.get(replica.metrics_url).text, "of a series that begins at 1 no alert sees an increase"
    replace(files.cert, second.server.read_bytes())  # its key is still the other one's
    replace(files.keys, b'{"keys": [')
    replace(files.config, b'{"log_level": "loud"}')
    for what in ("http_tls", "grpc_tls", "api_keys", "configuration"):
        failed = replica.wait_for_event("not reloaded; the former content stays in force", what=what)
        assert failed["level"] == "error"
    assert both_ports(replica) == {der_of(first)}
    assert status_with(replica, old_key, first.authority) == 200
    page = httpx.get(replica.metrics_url).text
    for what in ("http_tls", "grpc_tls", "api_keys", "configuration"):
        assert f'agentenv_scheduler_reloads_total{{result="failed",what="{what}"}} 1.0' in page
    assert old_key not in replica.output()


def test_keys_are_taken_over_and_taken_away(
    replica: ReplicaProcess, files: Files, issued: tuple[Certificates, Certificates], old_key: str
) -> None:
    new_key, authority = generate_key(), issued[0].authority
    assert status_with(replica, new_key, authority) == 401
    files.allow(new_key)
    replica.wait_for_event("reloaded", what="api_keys")
    assert status_with(replica, new_key, authority) == 200
    assert status_with(replica, old_key, authority) == 401


def test_the_level_of_the_log_follows_the_file_and_other_keys_wait_for_a_start(
    replica: ReplicaProcess, files: Files, issued: tuple[Certificates, Certificates], old_key: str
) -> None:
    authority = issued[0].authority
    status_with(replica, old_key, authority)
    assert not any(event["level"] == "debug" for event in replica.log)
    files.configure(log_level="debug", scheduler={"report_ttl": "45s"})
    told = replica.wait_for_event("these keys were changed; they take effect at the next start")
    assert told["keys"] == ["report_ttl"]
    replica.wait_for_event("reloaded", what="configuration")
    status_with(replica, old_key, authority)
    replica.wait_for_event("request", level="debug")


def test_a_hangup_has_everything_read_and_ends_nothing(replica: ReplicaProcess) -> None:
    replica.send(signal.SIGHUP)
    for what in ("http_tls", "grpc_tls", "api_keys", "configuration"):
        replica.wait_for_event("reloaded", what=what)
    assert replica.process is not None
    assert replica.process.poll() is None


def test_certificates_that_do_not_fit_are_a_fault_at_the_start(
    files: Files, issued: tuple[Certificates, Certificates]
) -> None:
    shutil.copy(issued[0].server, files.cert)
    shutil.copy(issued[1].server_key, files.key)
    for edge in ("http", "grpc"):
        replica = ReplicaProcess(
            "--set", f"{edge}.tls.cert_file={files.cert}", "--set", f"{edge}.tls.key_file={files.key}"
        )
        replica.spawn()
        assert replica.wait() == 2
        [line] = replica.other_lines
        assert f"{edge}.tls" in line
