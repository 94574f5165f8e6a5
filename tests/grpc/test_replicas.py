"""Whole replicas over gRPC: forks recorded in one budget, and query-only ones beside a read replica."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from scheduler.api.grpc.generated import scheduler_v1_pb2, scheduler_v1_pb2_grpc
from scheduler.domain.node import NodeAddress
from scheduler.ledger.ledger import open_ledger
from tests.support.replica_process import ReplicaProcess
from tests.support.servers import RedisServer
from tests.support.topologies import wait_for

v1: Any = scheduler_v1_pb2

FORK_BUDGET_SECONDS = 5.0
NODE = v1.Node(node_id="a", endpoint="http://a:8000")
LISTED = '[{"id": "a", "endpoint": "http://a:8000"}]'


@pytest.fixture
def follower(private_server: RedisServer) -> Iterator[RedisServer]:
    """A read replica of the private server."""
    link = ["--replicaof", "127.0.0.1", str(private_server.port), "--repl-diskless-sync-delay", "0"]
    with RedisServer(link) as server:
        with server.client() as client:
            wait_for(lambda: client.info("replication")["master_link_status"] == "up", "the replica to follow")
        yield server


def stub(channel: grpc.Channel) -> Any:
    return scheduler_v1_pb2_grpc.SchedulerStub(channel)  # type: ignore[no-untyped-call]


async def record(server: RedisServer, sandbox_id: str) -> None:
    ledger = await open_ledger(server.address)
    await ledger.bindings.record(sandbox_id, NodeAddress("a", "http://a:8000"))
    await ledger.close()


@pytest.mark.real_time
@pytest.mark.parametrize("slowest", ["embedded", "real", "real, waiting for a replica"])
def test_a_hundred_fork_children_fit_into_the_gateways_budget(
    slowest: str, private_server: RedisServer, follower: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """One call at a time, under one deadline, as the gateway does it before it answers its client."""
    options = ["--set", f"nodes={LISTED}", "--redis-addr", private_server.address]
    if slowest == "embedded":
        options[-1] = "embedded"
    elif slowest != "real":
        options += ["--set", "durability.wait_replicas=1"]
    with ReplicaProcess(*options) as replica, grpc.insecure_channel(replica.grpc_address) as channel:
        replica.wait_until_ready()
        started = time.monotonic()
        for number in range(100):
            left = FORK_BUDGET_SECONDS - (time.monotonic() - started)
            request = v1.RecordAssignmentRequest(sandbox_id=f"child-{number}", node=NODE)
            stub(channel).RecordAssignment(request, timeout=left)
        took = time.monotonic() - started
        for number in range(100):
            assert stub(channel).LookupNode(v1.LookupNodeRequest(sandbox_id=f"child-{number}")).node == NODE
    with capsys.disabled():
        print(f"\n100 fork children, {slowest}: {1000 * took:.0f} ms")


async def test_a_query_only_replica_answers_from_a_read_replica(
    private_server: RedisServer, follower: RedisServer
) -> None:
    with ReplicaProcess("--redis-addr", private_server.address, "--set", f"nodes={LISTED}") as whole:
        whole.wait_until_ready()
    await record(private_server, "s1")
    options = ["--redis-addr", private_server.address, "--set", f"redis_read_addr={follower.address}", "--query-only"]
    with ReplicaProcess(*options) as replica, grpc.insecure_channel(replica.grpc_address) as channel:
        with follower.client() as client:
            before = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
            assert stub(channel).LookupNode(v1.LookupNodeRequest(sandbox_id="s1")).node == NODE
            assert client.info("commandstats")["cmdstat_evalsha"]["calls"] > before, "the read replica was asked"
        # Recorded while the replica lags behind: the primary is asked before anything is called unknown.
        with follower.client() as client:
            # Nobody answers there, so it stays with what it has.
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
        await record(private_server, "s2")
        assert stub(channel).LookupNode(v1.LookupNodeRequest(sandbox_id="s2")).node == NODE
        with pytest.raises(grpc.RpcError) as unknown:
            stub(channel).LookupNode(v1.LookupNodeRequest(sandbox_id="s3"))
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as refused:
            stub(channel).Schedule(v1.ScheduleRequest())
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_replica_keeps_agentenvs_own_keys_when_asked_to(private_server: RedisServer) -> None:
    options = ["--redis-addr", private_server.address, "--set", f"nodes={LISTED}"]
    with (
        ReplicaProcess(*options, "--set", "compat.upstream_bindings=true") as replica,
        grpc.insecure_channel(replica.grpc_address) as channel,
        private_server.client() as client,
    ):
        replica.wait_until_ready()
        report = v1.HeartbeatRequest(node_id="a", service_instance_id="i", sandbox_ids=["s1"])
        stub(channel).Heartbeat(report)
        key = "agentenv:scheduler:bindings:sandbox:s1"
        wait_for(
            lambda: client.get(key) == '{"node":{"node_id":"a","endpoint":"http://a:8000"}}', "the roster to follow"
        )
