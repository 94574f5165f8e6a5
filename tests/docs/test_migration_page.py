"""What the migration page says is different is true."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.api.grpc.generated import scheduler_v1_pb2
from scheduler.config import GrpcSettings, LogLevel, load_settings
from scheduler.config.keys import KEYS
from scheduler.connection.options import StoreOptions
from scheduler.domain import limits
from scheduler.domain.node import NodeAddress
from scheduler.ledger.ledger import Ledger
from scheduler.observability.logging import configure_logging, get_logger
from scheduler.service import artifacts, build_services, reports
from tests.docs.commands import ROOT
from tests.grpc.support import Port, refusal, serving

v1: Any = scheduler_v1_pb2
PAGE = (ROOT / "docs/migrate-from-agentenv.md").read_text(encoding="utf-8")


def rows_under(heading: str) -> dict[str, str]:
    """First cell → second cell of the table under a heading."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return {row[0]: row[1] for row in rows[2:]}


def test_the_sizes_are_those_of_the_code() -> None:
    assert GrpcSettings().message_bytes_max == 4 * limits.MIB
    assert limits.SAFE_INTEGER_MAX == 2**53 - 1
    assert rows_under("Sizes") == {
        "a message": "4 MiB",
        "an id": f"{limits.ID_BYTES_MAX} bytes",
        "a roster": f"{limits.ROSTER_MAX:,} ids",
        "version, commit, CPU family, model, name and architecture": f"{limits.TEXT_BYTES_MAX:,} bytes each",
        "disks of a report": f"{reports.DISKS_MAX:,}",
        "sizes, and uses, of all disks of a node together": "2^53 − 1 bytes",
        "a disk's mount point, device and file system": f"{reports.DISK_TEXT_BYTES_MAX:,} bytes each",
        "`cpu_config_json`": f"{reports.CPU_CONFIG_BYTES_MAX:,} bytes",
        "a P2P address": f"{reports.P2P_ADDRESS_BYTES_MAX:,} bytes",
        "an artifact's key": f"{artifacts.KEY_BYTES_MAX:,} bytes",
        "bytes and counters of a report": "2^53 − 1",
        "CPUs of a creation": f"{limits.SANDBOX_CPU_MAX:,}",
        "memory of a creation": f"{limits.SANDBOX_MEMORY_MB_MAX:,} MiB",
    }


def heartbeat(**members: Any) -> Any:
    return v1.HeartbeatRequest(**{"node_id": "a", "service_instance_id": "i"} | members)


async def test_beyond_a_size_the_answer_is_the_one_that_the_page_names(ledger: Ledger) -> None:
    services = build_services(ledger)
    await services.nodes.replace([NodeAddress("a", "http://a:8000")], [])
    long_id = "n" * (limits.ID_BYTES_MAX + 1)
    async with serving(services) as port:
        assert (await refusal(port.scheduler.Heartbeat(heartbeat(node_id=long_id))))[0] == "INVALID_ARGUMENT"
        for taken in (
            heartbeat(cluster_id=long_id),
            heartbeat(machine_info=v1.MachineInfo(cpu_config_json="{" * (reports.CPU_CONFIG_BYTES_MAX + 1))),
            heartbeat(p2p_endpoint=v1.P2pEndpoint(backend="iroh", address="a" * (reports.P2P_ADDRESS_BYTES_MAX + 1))),
        ):
            await port.scheduler.Heartbeat(taken)
            known = (await port.scheduler.GetNode(v1.GetNodeRequest(node_id="a"))).node
            digest = hashlib.sha256(long_id.encode()).hexdigest()
            assert (known.cluster_id, known.machine_info.cpu_config_json) == (digest if taken.cluster_id else "", "")
            assert not (await port.scheduler.ListP2pPeers(v1.ListP2pPeersRequest())).peers
        key = v1.RecordP2pArtifactRequest(cluster_id="c", backend="b", node_id="a", key="k" * 1025)
        assert (await refusal(port.scheduler.RecordP2pArtifact(key)))[0] == "INVALID_ARGUMENT"
        await port.scheduler.Heartbeat(
            heartbeat(
                version="v" * 2000,
                sandbox_ids=["s1", long_id],
                snapshot=v1.NodeSnapshot(
                    status=v1.NODE_STATUS_READY,
                    cpu_count=8,
                    memory_total_bytes=2**64 - 1,
                    disks=[v1.DiskMetric(mount_point="/")] * (reports.DISKS_MAX + 1),
                ),
            )
        )
        node = (await port.scheduler.GetNode(v1.GetNodeRequest(node_id="a"))).node
        assert (len(node.version), len(node.snapshot.disks)) == (limits.TEXT_BYTES_MAX, reports.DISKS_MAX)
        assert node.snapshot.memory_total_bytes == limits.SAFE_INTEGER_MAX
        found = await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
        assert found.node.node_id == "a"
        unknown = port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id=long_id))
        assert (await refusal(unknown))[0] == "NOT_FOUND"
        await the_size_is_refused(port, cpu_count=limits.SANDBOX_CPU_MAX + 1)
        await the_size_is_refused(port, memory_mb=limits.SANDBOX_MEMORY_MB_MAX + 1)
        event = v1.SandboxEvent(sandbox_id="s", event_type=v1.SANDBOX_EVENT_TYPE_DELETE)
        events = [event] * (limits.EVENTS_MAX + 1)
        await port.scheduler.ReportSandboxEvent(
            v1.ReportSandboxEventRequest(node_id="a", service_instance_id="i", events=events)
        )


async def the_size_is_refused(port: Port, **size: int) -> None:
    hint = v1.ScheduleRequestHint(new_cold_sandbox=v1.NewColdSandboxHint(**size))
    told = await refusal(port.scheduler.Schedule(v1.ScheduleRequest(hint=hint)))
    assert (told[0], told[1][:18]) == ("UNAVAILABLE", "no nodes available")


def test_the_times_while_redis_is_down_are_those_of_the_code() -> None:
    times = rows_under("While Redis is down")
    options, store = StoreOptions(), load_settings(environment={}).store
    assert times["nobody listens at `redis_addr`"] == f"within {options.refused_timeout_ms / 1000:g} s"
    assert (store.operation_timeout_ms, store.attempt_timeout_ms, store.connect_timeout_ms) == (5_000, 2_000, 1_000)
    assert "`store.operation_timeout` (5 s)" in times["likewise, behind Sentinel or in a Redis Cluster"]
    assert "`store.attempt_timeout` (2 s)" in PAGE
    assert "`store.connect_timeout` (1 s)" in PAGE


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield root
    root.handlers, root.level = handlers, level


def test_a_line_of_the_log_has_the_members_that_the_page_names(root_logger: logging.Logger) -> None:
    written = io.StringIO()
    configure_logging("info", "auto", written)
    get_logger("scheduler.page").warning("something happened", node_id="a")
    line: dict[str, Any] = json.loads(written.getvalue().splitlines()[-1])
    [row] = re.findall(r"\| JSON lines begin with .*?\| (.*?);", PAGE)
    assert list(line)[:3] == ["timestamp", "level", "message"]
    assert set(re.findall(r"`(\w+)`", row)) == set(line) - {"node_id"}
    assert line["timestamp"].endswith("Z")


def test_the_levels_are_those_that_the_page_names() -> None:
    [row] = re.findall(r"\| `log_level` .*?\| (.*?);", PAGE)
    understood = {name: KEYS["log_level"].kind.read(name) for name in re.findall(r"`(\w+)`", row)}
    assert set(understood.values()) == set(LogLevel)
