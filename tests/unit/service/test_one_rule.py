"""The same report, through HTTP, MessagePack and gRPC, is the same report to the ledger."""

from __future__ import annotations

from typing import Any

import httpx
import msgpack
import pytest

from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.api.http import create_app
from scheduler.config import load_settings
from scheduler.domain.limits import ID_BYTES_MAX, TEXT_BYTES_MAX
from scheduler.domain.node import DiscoveryState, DiskMetric, Heartbeat, NodeSnapshot
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.errors import ConfigurationError, InvalidRequest
from scheduler.ledger.request_codec import group_key, made_of
from scheduler.service import Services, build_services
from scheduler.service.checks import clean_endpoint
from scheduler.service.reports import DISKS_MAX, clean_events, held_to_bounds
from tests.grpc.support import serving
from tests.support.embedded import note_calls, open_embedded

ROSTER = ["s1", " s2 ", "s\n3", "", "s1", "x" * (ID_BYTES_MAX + 1), "é" * 128, "s4"]
DISKS = [{"mount_point": f"/{number}", "total_bytes": number} for number in range(DISKS_MAX + 10)]
DISKS[0]["device"] = "ü" * 5_000
REPORT: dict[str, Any] = {
    "service_instance_id": " i1 ",
    "cluster_id": " c1 ",
    "version": "ü" * 1_000,
    "commit": "abc",
    "machine_info": {"cpu_model": "m" * 3_000, "cpu_config_json": "{}"},
    "snapshot": {"cpu_count": 8, "memory_total_bytes": 2**40, "disks": DISKS},
    "sandbox_ids": ROSTER,
    "p2p_endpoint": {"backend": " iroh ", "address": " there "},
}
EVENTS = [{"sandbox_id": " s1 "}, {"sandbox_id": "s\n2"}, {"sandbox_id": ""}, {"sandbox_id": "s3"}]


async def over_http(services: Services, packed: bool) -> None:
    async def post(path: str, body: dict[str, Any]) -> None:
        content = {"content": msgpack.packb(body)} if packed else {"json": body}
        headers = {"Content-Type": "application/msgpack" if packed else "application/json"}
        answer = await client.post(path, **content, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text

    transport = httpx.ASGITransport(create_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
        await post("/v1/nodes/%20a%20/heartbeat", REPORT)
        told = [{**event, "event_type": "create"} for event in EVENTS]
        await post("/v1/nodes/a/events", {"service_instance_id": " i1 ", "events": told})


async def over_grpc(services: Services) -> None:
    async with serving(services) as port:
        await port.scheduler.Heartbeat(v1.HeartbeatRequest(node_id=" a ", **REPORT))
        events = [v1.SandboxEvent(**event, event_type=v1.SANDBOX_EVENT_TYPE_CREATE) for event in EVENTS]
        await port.scheduler.ReportSandboxEvent(
            v1.ReportSandboxEventRequest(node_id=" a ", service_instance_id=" i1 ", events=events)
        )


async def told_by(interface: str) -> tuple[Heartbeat, list[str]]:
    ledger = await open_embedded()
    services = build_services(ledger)
    await services.nodes.set("a", "http://a:8000", DiscoveryState.ACTIVE)
    with pytest.MonkeyPatch.context() as patch:
        heartbeats = note_calls(patch, ledger.nodes, "heartbeat")
        events = note_calls(patch, ledger.nodes, "record_events")
        await (over_grpc(services) if interface == "grpc" else over_http(services, packed=interface == "msgpack"))
    await ledger.close()
    return heartbeats[0][0], [event.sandbox_id for event in events[0][2]]


@pytest.mark.parametrize("interface", ["grpc", "json", "msgpack"])
async def test_ids_texts_and_lists_are_cleaned_alike(interface: str) -> None:
    heartbeat, events = await told_by(interface)
    assert (heartbeat.node_id, heartbeat.service_instance_id, heartbeat.cluster_id) == ("a", "i1", "c1")
    assert heartbeat.sandbox_ids == ("s1", "s2", "s4")
    assert events == ["s1", "s3"]
    assert heartbeat.version == "ü" * (TEXT_BYTES_MAX // 2)
    assert heartbeat.machine_info is not None
    assert len(heartbeat.machine_info.cpu_model) == TEXT_BYTES_MAX
    assert heartbeat.snapshot is not None
    assert len(heartbeat.snapshot.disks) == DISKS_MAX
    assert heartbeat.snapshot.disks[0].device == "ü" * 2048
    assert heartbeat.p2p_endpoint is not None
    assert (heartbeat.p2p_endpoint.backend, heartbeat.p2p_endpoint.address) == ("iroh", "there")


async def test_every_interface_reports_the_same_to_the_ledger() -> None:
    assert await told_by("grpc") == await told_by("json") == await told_by("msgpack")


def accepted_by_configuration(endpoint: str) -> bool:
    try:
        load_settings(options={"nodes": [{"id": "a", "endpoint": endpoint}]}, environment={})
    except ConfigurationError:
        return False
    return True


def accepted_by_api(endpoint: str) -> bool:
    try:
        clean_endpoint("endpoint", endpoint)
    except InvalidRequest:
        return False
    return True


@pytest.mark.parametrize(
    ("endpoint", "fine"),
    [
        ("http://10.0.0.7:8000", True),
        (" HTTPS://node.example/prefix ", True),
        ("http://[fd00::7]:8000", True),
        ("http://a:65535", True),
        ("http://a:0", False),
        ("http://a:65536", False),
        ("http://user:secret@a:8000", False),
        ("ftp://a:8000", False),
        ("http://", False),
        ("http://a b", False),
        ("http://a:8000\n", True),
        ("http://" + "a" * TEXT_BYTES_MAX, False),
        ("10.0.0.7:8000", False),
        ("http://[::ffff:10.0.0.7]:8000", True),
        ("http://a/b%20c?d=/e?#f", True),
        ("http://[5]", False),
        ("http://[10.0.0.7]:8000", False),
        ("http://[fd00:7]", False),
        ("http://a/%zz", False),
        ("http://a/[b]", False),
        ("http://a#b#c", False),
    ],
)
def test_configuration_and_api_take_the_same_endpoints(endpoint: str, fine: bool) -> None:
    assert accepted_by_configuration(endpoint) is fine
    assert accepted_by_api(endpoint) is fine


def test_ids_of_the_configuration_are_trimmed_and_named_once() -> None:
    [node] = load_settings(options={"nodes": [{"id": " a ", "endpoint": "http://a:1"}]}, environment={}).discovery.nodes
    assert node.node_id == "a"
    twice = [{"id": "a", "endpoint": "http://a:1"}, {"id": "a ", "endpoint": "http://a:1"}]
    with pytest.raises(ConfigurationError):
        load_settings(options={"nodes": twice}, environment={})
    size = {"cpu_count": 1, "memory_mb": 1}
    with pytest.raises(ConfigurationError):
        load_settings(options={"templates.declared": {"t": size, " t": size}}, environment={})


def test_what_a_node_says_of_its_disks_is_held_to_a_sum_that_the_ledger_can_count() -> None:
    disks = tuple(DiskMetric(device=f"{at}", total_bytes=2**52, used_bytes=2**52 + at) for at in range(4))
    held = held_to_bounds(NodeSnapshot(disks=disks)).disks
    assert [disk.total_bytes for disk in held] == [2**52, 2**52 - 1, 0, 0]
    assert [disk.used_bytes for disk in held] == [2**52, 2**52 - 1, 0, 0]


@pytest.mark.parametrize(
    ("template_id", "kept"), [("t1", "t1"), (" t1 ", "t1"), ("", ""), (" ", ""), ("b\nad", ""), ("x" * 256, "")]
)
def test_only_what_can_be_a_templates_id_is_kept_as_one(template_id: str, kept: str) -> None:
    request = ScheduleRequest(hint=Hint(HintKind.SANDBOX, template_id=template_id))
    assert made_of(request) == (kept, group_key(request))


def test_what_events_tell_of_a_sandbox_is_held_to_what_one_may_have() -> None:
    told = SandboxEvent("s", SandboxEventType.CREATE, 2**32 - 1, 2**53 - 1)
    (held,) = clean_events([told])
    assert (held.requested_cpu, held.requested_memory_bytes) == (65_536, 2**44)
