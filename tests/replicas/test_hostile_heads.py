"""A real replica against callers that send heads without end, or nothing at all, on both HTTP ports."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.replica_process import ReplicaProcess

DESCRIPTORS_MAX = 200
HEADER_BYTES = 60_000_000
# What the process may have grown by; unbounded, it grew by twenty times the headers.
GROWTH_BYTES_MAX = 40_000_000

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def replica() -> Iterator[ReplicaProcess]:
    with ReplicaProcess(descriptors_max=DESCRIPTORS_MAX) as started:
        for url in (started.url, started.metrics_url):
            assert httpx.get(f"{url}/healthz").status_code == 200
        yield started


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def peak_bytes(replica: ReplicaProcess) -> int:
    status = Path(f"/proc/{replica.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("listener", ["url", "metrics_url"])
@pytest.mark.parametrize("header", [b"name: value\r\n", b"x"], ids=["many headers", "one header"])
def test_sixty_megabytes_of_headers_do_not_grow_the_process(
    replica: ReplicaProcess, listener: str, header: bytes
) -> None:
    before = peak_bytes(replica)
    piece = header * (1_000_000 // len(header))
    with socket.create_connection(address(getattr(replica, listener)), timeout=60) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(b"GET /healthz HTTP/1.1\r\nfirst: ")
            for _ in range(HEADER_BYTES // len(piece)):
                caller.sendall(piece)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := caller.recv(65_536):
                answer += part
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert peak_bytes(replica) - before < GROWTH_BYTES_MAX


@pytest.mark.parametrize("listener", ["url", "metrics_url"])
def test_silent_connections_beyond_the_descriptors_do_not_block_health_checks(
    replica: ReplicaProcess, listener: str
) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(3 * DESCRIPTORS_MAX, soft - 100)
    assert count > DESCRIPTORS_MAX
    with contextlib.ExitStack() as silent:
        for number in range(count):
            caller = silent.enter_context(socket.create_connection(address(getattr(replica, listener)), timeout=60))
            if number % 2:
                with contextlib.suppress(ConnectionError):
                    caller.send(b"GET /healthz HTTP/1.1\r\n")
        for url in (replica.url, replica.metrics_url):
            assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
    replica.wait_for_event("the limit of open connections is reached")
