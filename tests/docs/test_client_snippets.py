"""Every piece of Python in the documents that uses the client is run, against a replica that has a node."""

from __future__ import annotations

import json
import secrets
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from agentenv_scheduler_client import ColdSandbox, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus, SchedulerClient
from scheduler.access import generate_key, hash_key
from tests.docs.commands import ROOT, documents
from tests.redis.certificates import make_certificates
from tests.support.replica_thread import replica_in_thread


@dataclass(frozen=True)
class Snippet:
    path: Path
    line: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def snippets() -> list[Snippet]:
    found = []
    for path in documents():
        for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
            if token.type == "fence" and token.info == "python" and "agentenv_scheduler_client" in token.content:
                assert token.map is not None
                found.append(Snippet(path, token.map[0] + 2, token.content))
    return found


SNIPPETS = snippets()


async def start_on(node: NodeAddress) -> str:
    return f"sandbox-{secrets.token_hex(8)}"


async def stop_on(node: NodeAddress, sandbox_id: str) -> None:
    raise AssertionError("nothing was refused")


def as_function(text: str) -> str:
    """A document writes `await` where a reader puts it into a function."""
    kind = "async def" if "await" in text else "def"
    return f"{kind} snippet():\n{textwrap.indent(text, '    ')}"


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """The address of a replica with one node that has reported."""
    with replica_in_thread(strategy="least_loaded") as url, SchedulerClient(url) as client:
        client.nodes.put(NodeAddress("node-a", "http://10.0.0.7:8000"))
        snapshot = NodeSnapshot(NodeStatus.READY, cpu_count=64, memory_total_bytes=2**37)
        client.nodes.heartbeat("node-a", Heartbeat("instance-1", snapshot=snapshot))
        yield url


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What stands in the documents, and what it is here: files, and a replica that asks for certificates and keys."""
    files, key = make_certificates(tmp_path), generate_key()
    keys, own = tmp_path / "keys.json", tmp_path / "api-key"
    entry = {"name": "edge", "role": "gateway", "sha256": hash_key(key)}
    keys.write_text(json.dumps({"keys": [entry]}), encoding="utf-8")
    own.write_text(key, encoding="utf-8")
    options = {
        "http__api_keys": str(keys),
        "http__tls__cert_file": str(files.server),
        "http__tls__key_file": str(files.server_key),
        "http__tls__client_ca_file": str(files.authority),
    }
    shown = {"ca.pem": files.authority, "cert.pem": files.client, "key.pem": files.client_key, "api-key": own}
    with replica_in_thread(**options) as url:
        yield {f"/etc/gateway/{name}": str(file) for name, file in shown.items()} | {"https://127.0.0.1:8090": url}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.id)
async def test_a_snippet_does_what_it_shows(snippet: Snippet, plain: str, request: pytest.FixtureRequest) -> None:
    text = snippet.text.replace("http://127.0.0.1:8090", plain)
    if "https://" in text:
        for shown, here in request.getfixturevalue("secured").items():
            text = text.replace(shown, here)
    names: dict[str, Any] = {
        "start_on": start_on, "stop_on": stop_on, "hint": ColdSandbox(cpu_count=1), "look_later": pytest.fail,
    }  # fmt: skip
    exec(compile(as_function(text), snippet.id, "exec"), names)
    if "await" in text:
        await names["snippet"]()
    else:
        names["snippet"]()


def test_the_page_of_the_client_shows_both_flavours() -> None:
    shown = "".join(snippet.text for snippet in SNIPPETS if snippet.path.name == "client.md")
    assert "async with AsyncSchedulerClient" in shown
    assert "\nwith SchedulerClient" in shown
