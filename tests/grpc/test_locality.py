"""Placing where a template's artifacts already are, asked for over `scheduler.v1`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.api.grpc.generated import scheduler_v1_pb2
from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus, P2pEndpoint
from scheduler.domain.placement import Strategy
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.grpc.support import Port, serving

v1: Any = scheduler_v1_pb2

TEMPLATE = "0190c0de-1111-7222-8333-444444444444"
STATE = f"snapshot/v1/artifacts/{TEMPLATE}/vm_state.bin"
MANIFEST = f"snapshot/v1/artifacts/{TEMPLATE}/firecracker-manifest.json"
NAMES = ["a", "b", "c"]


@pytest.fixture
async def port(ledger: Ledger) -> AsyncIterator[Port]:
    services = build_services(ledger)
    await services.nodes.replace([NodeAddress(name, f"http://{name}:8000") for name in NAMES], [])
    for name in NAMES:
        snapshot = NodeSnapshot(status=NodeStatus.READY, cpu_count=4, memory_total_bytes=1 << 32)
        peer = P2pEndpoint("iroh", f"addr-{name}")
        await services.nodes.heartbeat(
            Heartbeat(name, "i", cluster_id="c1", snapshot=snapshot, p2p_endpoint=peer), None
        )
    async with serving(services) as started:
        yield started


async def record(port: Port, node_id: str, *keys: str, cluster_id: str = "c1") -> None:
    for key in keys:
        await port.scheduler.RecordP2pArtifact(
            v1.RecordP2pArtifactRequest(cluster_id=cluster_id, backend="iroh", key=key, node_id=node_id)
        )


async def placed(port: Port, template_id: str, count: int = 3) -> str:
    hint = v1.ScheduleRequestHint(new_sandbox=v1.NewSandboxHint(template_id=template_id))
    request = v1.ScheduleRequest(hint=hint)
    return "".join([(await port.scheduler.Schedule(request)).node.node_id for _ in range(count)])


@pytest.mark.ledger_settings(locality_enabled=True)
async def test_a_canonical_template_goes_where_most_of_it_is(port: Port) -> None:
    await record(port, "a", STATE)
    await record(port, "c", STATE, MANIFEST)
    assert await placed(port, TEMPLATE) == "ccc"
    await record(port, "a", MANIFEST)
    assert set(await placed(port, TEMPLATE, 4)) == {"a", "c"}, "among equals the strategy decides"


@pytest.mark.ledger_settings(locality_enabled=True)
async def test_an_alias_or_an_artifact_of_another_cluster_changes_nothing(port: Port) -> None:
    await record(port, "c", STATE, MANIFEST, cluster_id="c2")
    assert await placed(port, TEMPLATE) == "abc"
    assert await placed(port, "base") == "abc"


@pytest.mark.ledger_settings(locality_enabled=True)
async def test_a_node_that_left_the_index_draws_nothing(port: Port) -> None:
    await record(port, "c", STATE)
    assert await placed(port, TEMPLATE, 1) == "c"
    await port.scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id="c", service_instance_id="i"))
    assert set(await placed(port, TEMPLATE)) == set(NAMES)


async def test_it_is_off_unless_switched_on(port: Port) -> None:
    await record(port, "c", STATE, MANIFEST)
    assert await placed(port, TEMPLATE) == "abc"


@pytest.mark.ledger_settings(locality_enabled=True, strategy=Strategy.LEAST_LOADED)
async def test_a_full_node_is_no_candidate_however_much_it_holds(port: Port) -> None:
    await record(port, "c", STATE, MANIFEST)
    full = NodeSnapshot(status=NodeStatus.READY, cpu_count=4, memory_total_bytes=1 << 32, allocated_cpu=4)
    peer = P2pEndpoint("iroh", "addr-c")
    await port.services.nodes.heartbeat(Heartbeat("c", "i", cluster_id="c1", snapshot=full, p2p_endpoint=peer), None)
    assert set(await placed(port, TEMPLATE)) <= {"a", "b"}
