"""TLS and unix sockets: the other two ways to one server."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from scheduler.connection.client import StoreClient
from scheduler.connection.tls import TlsContext
from scheduler.errors import SchedulerError, StoreUnavailable, StoreUnusable
from tests.redis.certificates import Certificates
from tests.redis.conftest import SETTINGS, Connect
from tests.support.servers import RedisServer, find_server_program, free_port
from tests.support.topologies import wait_for


class TlsServer(RedisServer):
    """Speaks TLS only; `mutual` asks clients for a certificate of the same authority."""

    def __init__(self, certificates: Certificates, *, mutual: bool = False) -> None:
        super().__init__()
        self._certificates = certificates
        self._mutual = mutual

    @property
    def url(self) -> str:
        return f"rediss://{self.address}"

    def command(self) -> list[str]:
        files = self._certificates
        tls = ["--tls-port", str(self.port), "--tls-auth-clients", "yes" if self._mutual else "no"]
        tls += ["--tls-ca-cert-file", str(files.authority), "--tls-cert-file", str(files.server)]
        tls += ["--tls-key-file", str(files.server_key)]
        plain = super().command()
        plain[plain.index("--port") + 1] = "0"
        return [*plain, *tls]

    def client(self, **options: Any) -> redis.Redis:
        files = self._certificates
        trust = {"ssl_ca_certs": str(files.authority), "ssl_certfile": str(files.client)}
        return super().client(**trust, ssl_keyfile=str(files.client_key), **options)


@pytest.fixture
def tls_server(certificates: Certificates) -> Iterator[TlsServer]:
    with _started(TlsServer(certificates)) as server:
        yield server


def _started(server: TlsServer) -> TlsServer:
    """Skip where the server program was built without TLS, as some bundled ones are."""
    try:
        server.start()
    except RuntimeError as error:
        server.stop()
        if "tls-" in str(error) or "TLS" in str(error):
            pytest.skip(f"{find_server_program().name} was built without TLS")
        raise
    return _AlreadyStarted(server)  # type: ignore[return-value]


class _AlreadyStarted:
    def __init__(self, server: TlsServer) -> None:
        self._server = server

    def __enter__(self) -> TlsServer:
        return self._server

    def __exit__(self, *ending: object) -> None:
        self._server.stop()


async def count(client: StoreClient) -> list[Any]:
    return await client.run("count", settings_key=SETTINGS)


async def test_tls_with_a_trusted_certificate_works(
    tls_server: TlsServer, certificates: Certificates, connect_to: Connect
) -> None:
    client = await connect_to(tls_server.url, tls_ca_file=str(certificates.authority))
    await client.check_server()
    assert await count(client) == [b"ok", 1]


async def test_no_call_over_tls_waits_for_another_or_for_a_second_attempt(
    tls_server: TlsServer, certificates: Certificates, connect_to: Connect
) -> None:
    client = await connect_to(tls_server.url, tls_ca_file=str(certificates.authority))
    assert await count(client) == [b"ok", 1]
    for turn in range(20):
        await asyncio.sleep(0.001 * turn)  # whatever the server sends by itself meanwhile
        assert await count(client) == [b"ok", turn + 2]
    await asyncio.gather(*(count(client) for _ in range(100)))
    assert client.statistics.retries == 0


@pytest.mark.parametrize("trust", ["stranger", None])
async def test_a_certificate_nobody_vouches_for_is_refused(
    tls_server: TlsServer, certificates: Certificates, connect_to: Connect, trust: str | None
) -> None:
    ca_file = str(getattr(certificates, trust)) if trust else None
    client = await connect_to(tls_server.url, tls_ca_file=ca_file)
    with pytest.raises(StoreUnusable, match="certificate is not trusted"):
        await count(client)
    assert client.statistics.attempts == 1


async def test_a_file_of_authorities_is_all_that_is_trusted(
    tls_server: TlsServer, certificates: Certificates, connect_to: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    assert await count(await connect_to(tls_server.url)) == [b"ok", 1]
    with pytest.raises(StoreUnusable, match="certificate is not trusted"):
        await count(await connect_to(tls_server.url, tls_ca_file=str(certificates.stranger)))


def test_connections_share_a_context_until_one_of_its_files_has_changed(
    certificates: Certificates, tmp_path: Path
) -> None:
    files = [certificates.authority, certificates.client, certificates.client_key]
    own = [str(shutil.copy(file, tmp_path)) for file in files]
    tls = TlsContext(*own, check_hostname=True)
    first = tls.get()
    assert tls.get() is first
    for name in own:
        before = tls.get()
        (renewed := Path(name + ".new")).write_bytes(Path(name).read_bytes())
        renewed.rename(name)
        assert tls.get() is not before
    assert [each["subject"] for each in tls.get().get_ca_certs()] == [each["subject"] for each in first.get_ca_certs()]
    Path(own[0]).unlink()
    with pytest.raises(FileNotFoundError):
        tls.get()


async def test_a_certificate_for_another_name_is_refused(
    tls_server: TlsServer, certificates: Certificates, connect_to: Connect
) -> None:
    url = f"rediss://localhost:{tls_server.port}"
    client = await connect_to(url, tls_ca_file=str(certificates.authority))
    with pytest.raises(StoreUnusable, match="certificate is not trusted"):
        await count(client)
    lenient = await connect_to(url, tls_ca_file=str(certificates.authority), tls_check_hostname=False)
    assert await count(lenient) == [b"ok", 1]


async def test_plain_text_to_a_tls_server_is_no_ledger(tls_server: TlsServer, connect_to: Connect) -> None:
    client = await connect_to(tls_server.address, operation_timeout_ms=200)
    with pytest.raises(StoreUnavailable):
        await count(client)


async def test_a_server_may_ask_for_a_client_certificate(certificates: Certificates, connect_to: Connect) -> None:
    with _started(TlsServer(certificates, mutual=True)) as server:
        with_certificate = await connect_to(
            server.url,
            tls_ca_file=str(certificates.authority),
            tls_cert_file=str(certificates.client),
            tls_key_file=str(certificates.client_key),
        )
        assert await count(with_certificate) == [b"ok", 1]
        without = await connect_to(server.url, tls_ca_file=str(certificates.authority), operation_timeout_ms=200)
        with pytest.raises(StoreUnavailable):
            await count(without)


async def test_a_unix_socket_works_with_user_and_database(connect_to: Connect) -> None:
    # A socket's path is short by law of the kernel, so not pytest's folder.
    folder = Path(tempfile.mkdtemp(prefix="aenv-"))
    path = folder / "redis.sock"
    try:
        with RedisServer(["--unixsocket", str(path)], password="hunter2") as server:
            client = await connect_to(f"unix://:hunter2@{path}?db=3")
            await client.check_server()
            assert await count(client) == [b"ok", 1]
            with server.client(db=3) as looker:
                assert looker.get(SETTINGS) == "1"
            missing = await connect_to(f"unix://{folder}/none.sock", operation_timeout_ms=100)
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await count(missing)
            for user, told in (("", "needs a password"), (":wrong@", "refuses this user name or password")):
                with pytest.raises(StoreUnusable, match=told):
                    await count(await connect_to(f"unix://{user}{path}"))
    finally:
        shutil.rmtree(folder)


async def test_the_shebang_turns_a_stray_write_into_an_error(connect_to: Connect) -> None:
    with RedisServer(["--cluster-enabled", "yes", "--cluster-port", str(free_port())]) as server:
        with server.client() as looker:
            looker.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_for(lambda: looker.cluster("info")["cluster_state"] == "ok", "the cluster to be whole")
        strict = await connect_to(server.address, shebang=True)
        assert await count(strict) == [b"ok", 1]
        with pytest.raises(SchedulerError, match=r"(?i)slot|undeclared"):
            await strict.run("stray", settings_key=SETTINGS)
        lax = await connect_to(server.address)
        assert await lax.run("stray", settings_key=SETTINGS) == [b"ok"]
