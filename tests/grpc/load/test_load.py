"""2,000 nodes of 50 sandboxes report every 5 s while 200 sandboxes a second are placed: two replicas,
one Redis, and this machine. No call may fail; what it took is printed, not judged.

    pytest -m soak tests/grpc/load

It needs the machine for itself: what a busy one cannot do in time fails as an overloaded replica does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from scheduler.domain.node import NodeAddress
from scheduler.ledger.ledger import open_ledger
from tests.grpc.load.fleet import Load
from tests.support.replica_process import ReplicaProcess
from tests.support.servers import RedisServer

NODES = int(os.environ.get("SCHEDULER_TEST_LOAD_NODES", "2000"))
SECONDS = float(os.environ.get("SCHEDULER_TEST_LOAD_SECONDS", "60"))
WARM_UP_SECONDS = 12.0
SANDBOXES_EACH = 50
SCHEDULES_PER_SECOND = 200.0
OPTIONS = ("--strategy", "least_loaded")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU times are read from /proc")
async def test_two_replicas_carry_two_thousand_nodes(
    private_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        ReplicaProcess("--redis-addr", private_server.address, *OPTIONS) as one,
        ReplicaProcess("--redis-addr", private_server.address, *OPTIONS) as other,
    ):
        ledger = await open_ledger(private_server.address)
        load = Load([one.grpc_address, other.grpc_address], NODES, SANDBOXES_EACH)
        await ledger.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in load.nodes], [])
        await ledger.close()
        assert private_server.process is not None
        pids = {"replica 1": one.pid, "replica 2": other.pid, "redis": private_server.process.pid, "this": os.getpid()}
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        await load.run(WARM_UP_SECONDS, SECONDS, SCHEDULES_PER_SECOND)
        used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
        await load.close()
    with capsys.disabled():
        print(f"\n{load.timings.table()}\n{_cpu_line(used)}")
    assert not load.timings.failures, _warnings(one, other)
    assert len(load.timings.seconds["Heartbeat"]) >= 0.95 * SECONDS * NODES / 5
    assert len(load.timings.seconds["Schedule"]) >= 0.95 * SECONDS * SCHEDULES_PER_SECOND


def _cpu_line(used: Mapping[str, float]) -> str:
    whole = WARM_UP_SECONDS + SECONDS
    return "CPU: " + ", ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in used.items())


def _warnings(*replicas: ReplicaProcess) -> str:
    """What the replicas had to say about it."""
    loud = [event for replica in replicas for event in replica.log if event["level"] in {"warning", "error"}]
    return "\n".join(map(str, [*loud[:20], *(line for replica in replicas for line in replica.other_lines[:20])]))
