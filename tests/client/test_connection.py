"""How a scheduler is reached: keys and certificates, and what happens when they are renewed."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import httpx
import pytest

from agentenv_scheduler_client import AsyncSchedulerClient, Forbidden, Tls, Unauthorized, Unreachable
from scheduler.access import generate_key, hash_key
from tests.client.flavours import open_flavour
from tests.redis.certificates import make_certificates
from tests.support.replica_thread import replica_in_thread


def replace(file: Path, text: str) -> None:
    """As an operator would: another file takes its place."""
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


async def test_a_key_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file, seen = tmp_path / "key", list[str]()
    file.write_text("one\n", encoding="utf-8")

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["x-api-key"])
        assert request.headers["user-agent"].startswith("agentenv-scheduler-client/")
        return httpx.Response(200, json={"status": "ok"})

    async with AsyncSchedulerClient("http://s", transport=httpx.MockTransport(note), api_key_file=file) as client:
        await client.check_health()
        replace(file, "two")
        await client.check_health()
        file.unlink()  # while it is replaced, what it said last counts
        await client.check_health()
    assert seen == ["one", "two", "two"]


@pytest.mark.parametrize("half_written", [b"", b"\xff\xfe"])
async def test_a_key_that_could_not_be_read_is_read_as_soon_as_it_can_be(
    half_written: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = tmp_path / "key", list[str]()
    file.write_text("one", encoding="utf-8")

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["x-api-key"])
        return httpx.Response(200, json={"status": "ok"})

    async with AsyncSchedulerClient("http://s", transport=httpx.MockTransport(note), api_key_file=file) as client:
        file.write_bytes(half_written)
        await client.check_health()
        replace(file, "two")
        with monkeypatch.context() as patched:

            def fail(*_: object, **__: object) -> str:
                raise PermissionError

            patched.setattr(Path, "read_text", fail)
            await client.check_health()
        await client.check_health()
    assert seen == ["one", "one", "two"]


def test_what_cannot_be_meant_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AsyncSchedulerClient("http://s", api_key_file=tmp_path / "nothing")
    with pytest.raises(ValueError, match="exclude each other"):
        AsyncSchedulerClient("http://s", api_key="k", api_key_file=tmp_path / "nothing")
    with pytest.raises(ValueError, match="together"):
        Tls(cert_file=tmp_path / "cert.pem")


@pytest.mark.parametrize("flavour", ["async", "blocking"])
async def test_a_replica_is_reached_over_mutual_tls_with_a_key_of_the_right_role(flavour: str, tmp_path: Path) -> None:
    files, key = make_certificates(tmp_path), generate_key()
    keys = tmp_path / "keys.json"
    entry = {"name": "edge", "role": "gateway", "sha256": hash_key(key)}
    keys.write_text(json.dumps({"keys": [entry]}), encoding="utf-8")
    options = {
        "http__api_keys": str(keys),
        "http__tls__cert_file": str(files.server),
        "http__tls__key_file": str(files.server_key),
        "http__tls__client_ca_file": str(files.authority),
    }
    both = Tls(ca_file=files.authority, cert_file=files.client, key_file=files.client_key)
    with replica_in_thread(**options) as url:
        assert url.startswith("https://")
        async with open_flavour(flavour, url, tls=both, api_key=key) as client:
            assert await client.nodes.list() == ()
            with pytest.raises(Forbidden):
                await client.nodes.replace([])
        async with open_flavour(flavour, url, tls=both) as nobody:
            with pytest.raises(Unauthorized):
                await nobody.nodes.list()
        for odd in (Tls(ca_file=files.authority), Tls(), ssl.create_default_context(cafile=str(files.stranger))):
            async with open_flavour(flavour, url, tls=odd, api_key=key, attempts=1) as stranger:
                with pytest.raises(Unreachable):
                    await stranger.nodes.list()


async def test_a_renewed_certificate_is_shown_by_new_connections(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    own = Tls(ca_file=files.authority, cert_file=files.client, key_file=files.client_key)
    shown: list[str] = []

    def note(*loaded: str, password: str | None) -> None:
        shown.append(Path(loaded[0]).read_text(encoding="utf-8"))

    own.context.load_cert_chain = note  # type: ignore[method-assign]  # to see what is loaded, and when
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={}))
    async with AsyncSchedulerClient("https://s", transport=transport, tls=own) as client:
        await client.check_health()
        assert shown == []
        replace(files.client, "renewed")
        await client.check_health()
        await client.check_health()
    assert shown == ["renewed"]
