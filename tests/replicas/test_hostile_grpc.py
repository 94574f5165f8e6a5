"""A real replica against callers of its gRPC port that send large messages without end, or nothing at all."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.replica_process import ReplicaProcess

CONNECTIONS_MAX = 64
HEARTBEAT = "/scheduler.v1.Scheduler/Heartbeat"
FRAMES = 40
FRAME_BYTES = 14_700_000
# What the process may have grown by; unbounded, it grew by all 40 frames.
GROWTH_BYTES_MAX = 60_000_000

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def replica() -> Iterator[ReplicaProcess]:
    with ReplicaProcess("--set", f"grpc.connections_max={CONNECTIONS_MAX}", "--set", "http.head_timeout=2s") as started:
        assert healthy(started.grpc_address)
        yield started


def channel_to(address: str) -> grpc.Channel:
    own = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(address, options=own)


def healthy(address: str) -> bool:
    with channel_to(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=60, wait_for_ready=True)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def peak_bytes(replica: ReplicaProcess) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{replica.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def send(address: str, frame: bytes) -> str:
    with channel_to(address) as channel:
        try:
            channel.unary_unary(HEARTBEAT)(frame, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


def test_forty_frames_of_fifteen_megabytes_do_not_grow_the_process(replica: ReplicaProcess) -> None:
    before = peak_bytes(replica)
    frame = b"\x0a" + b"\x00" * FRAME_BYTES
    with ThreadPoolExecutor(8) as callers:
        told = Counter(callers.map(lambda _: send(replica.grpc_address, frame), range(FRAMES)))
    assert set(told) == {"RESOURCE_EXHAUSTED"}, told
    assert peak_bytes(replica) - before < GROWTH_BYTES_MAX
    assert healthy(replica.grpc_address)


def test_silent_connections_are_closed_and_health_answers_again(replica: ReplicaProcess) -> None:
    host, _, port = replica.grpc_address.rpartition(":")
    with contextlib.ExitStack() as silent:
        for _ in range(4 * CONNECTIONS_MAX):
            silent.enter_context(socket.create_connection((host, int(port)), timeout=60))
        assert httpx.get(f"{replica.url}/healthz", timeout=60).status_code == 200, "the other listener answers"
        assert healthy(replica.grpc_address)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # and empty settings
MANY = 5_000
# Measured: 92 MB in all, half of the connections over HTTP and half over gRPC.
BYTES_PER_CONNECTION_MAX = 30_000


@pytest.mark.faults
def test_five_thousand_connections_and_endless_frames_leave_health_to_answer() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * MANY:
        pytest.skip(f"this system allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MANY), hard))
    try:
        with ReplicaProcess(descriptors_max=3 * MANY) as replica, contextlib.ExitStack() as silent:
            assert healthy(replica.grpc_address)
            before = peak_bytes(replica)
            http_host, grpc_host = urlsplit(replica.url), urlsplit(f"//{replica.grpc_address}")
            for number in range(MANY):
                address, opening = (http_host, b"GET /healthz HT") if number % 2 else (grpc_host, PREFACE)
                caller = socket.create_connection((address.hostname, address.port), timeout=60)
                silent.enter_context(caller)
                with contextlib.suppress(ConnectionError):
                    caller.sendall(opening)
            frame = b"\x0a" + b"\x00" * FRAME_BYTES
            with ThreadPoolExecutor(8) as callers:
                told = Counter(callers.map(lambda _: send(replica.grpc_address, frame), range(FRAMES)))
                assert set(told) == {"RESOURCE_EXHAUSTED"}, told
                assert httpx.get(f"{replica.url}/healthz", timeout=60).status_code == 200
                assert healthy(replica.grpc_address)
            assert peak_bytes(replica) - before < GROWTH_BYTES_MAX + MANY * BYTES_PER_CONNECTION_MAX
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
