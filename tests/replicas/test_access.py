"""Who is let in: TLS, client certificates, API keys; each asked of a real process."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler import health_probe
from scheduler.access import generate_key, hash_key
from tests.redis.certificates import Certificates, make_certificates
from tests.support.replica_process import ReplicaProcess


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_of(edge: str, certificates: Certificates, *, mutual: bool) -> list[str]:
    files = {"cert_file": certificates.server, "key_file": certificates.server_key}
    if mutual:
        files["client_ca_file"] = certificates.authority
    return [word for name, path in files.items() for word in ("--set", f"{edge}.tls.{name}={path}")]


def client_context(certificates: Certificates, *, shows_certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    if shows_certificate:
        context.load_cert_chain(certificates.client, certificates.client_key)
    return context


def health_over_tls(address: str, certificates: Certificates, *, shows_certificate: bool) -> int:
    mine = (
        (certificates.client_key.read_bytes(), certificates.client.read_bytes()) if shows_certificate else (None, None)
    )
    credentials = grpc.ssl_channel_credentials(certificates.authority.read_bytes(), *mine)
    with grpc.secure_channel(address, credentials) as channel:
        return int(health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30).status)


def test_http_and_grpc_over_tls_let_in_whoever_trusts_them(certificates: Certificates) -> None:
    tls = [*tls_of("http", certificates, mutual=False), *tls_of("grpc", certificates, mutual=False)]
    with ReplicaProcess(*tls) as replica:
        assert replica.url.startswith("https://")
        context = client_context(certificates, shows_certificate=False)
        assert httpx.get(f"{replica.url}/readyz", verify=context).status_code == 200
        assert health_over_tls(replica.grpc_address, certificates, shows_certificate=False) == 1
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{replica.url}/healthz", verify=ssl.create_default_context())


def test_with_a_client_authority_only_its_certificates_come_in(certificates: Certificates) -> None:
    tls = [*tls_of("http", certificates, mutual=True), *tls_of("grpc", certificates, mutual=True)]
    with ReplicaProcess(*tls) as replica:
        assert replica.listening["grpc_callers"] == "by certificate (mTLS)"
        known = client_context(certificates, shows_certificate=True)
        assert httpx.get(f"{replica.url}/readyz", verify=known).status_code == 200
        assert health_over_tls(replica.grpc_address, certificates, shows_certificate=True) == 1
        probe = [f"-addr={replica.grpc_address}", "-tls", f"-tls-ca-cert={certificates.authority}"]
        probe += ["-connect-timeout=30s", "-rpc-timeout=30s"]
        mine = [f"-tls-client-cert={certificates.client}", f"-tls-client-key={certificates.client_key}"]
        assert health_probe.main([*probe, *mine]) == 0
        assert health_probe.main(probe) == 2
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{replica.url}/healthz", verify=client_context(certificates, shows_certificate=False))
        with pytest.raises(grpc.RpcError):
            health_over_tls(replica.grpc_address, certificates, shows_certificate=False)


def test_with_api_keys_it_may_listen_beyond_loopback_and_asks_for_one(tmp_path: Path) -> None:
    key = generate_key()
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "operator", "role": "admin", "sha256": hash_key(key)}]}))
    with ReplicaProcess("--host", "0.0.0.0", environment={"SCHEDULER_API_KEYS_FILE": str(keys)}) as replica:
        url = replica.url.replace("0.0.0.0", "127.0.0.1")
        assert replica.listening["http_callers"] == "by API key"
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/v1/nodes").status_code == 401
        assert httpx.get(f"{url}/v1/nodes", headers={"X-API-Key": key}).status_code == 200
        assert key not in replica.output()


def test_a_broken_file_of_keys_is_a_fault_at_start(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": [{"name": "operator"}]}')
    replica = ReplicaProcess("--set", f"http.api_keys={keys}")
    replica.spawn()
    assert replica.wait() == 2
    [line] = replica.other_lines
    assert "keys.json" in line
