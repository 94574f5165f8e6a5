"""Keys and roles over gRPC, and which services are served without keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.access import KeyRing, generate_key, hash_key
from scheduler.access.policy import AccessPolicy
from scheduler.api.grpc.generated import reservations_v1alpha_pb2 as v1alpha
from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Decision, Strategy
from scheduler.domain.reservation import Lifecycle, Reservation, ReservationResult, ReservationState
from scheduler.domain.sandbox import Binding
from tests.grpc.support import refusal, scripted_services, serving

KEYS = {name: generate_key() for name in ("node", "bound", "gateway", "admin")}
ENTRIES = [
    {"name": "fleet", "role": "node", "sha256": hash_key(KEYS["node"])},
    {"name": "node-a", "role": "node", "sha256": hash_key(KEYS["bound"]), "node_id": "a"},
    {"name": "edge", "role": "gateway", "sha256": hash_key(KEYS["gateway"])},
    {"name": "ops", "role": "admin", "sha256": hash_key(KEYS["admin"])},
]
UPSTREAM = "/scheduler.v1.Scheduler/"
OURS = "/agentenv.scheduler.v1alpha.Reservations/"
REACHED_BY = {
    "Schedule": {"gateway", "admin"},
    "ListNodes": {"gateway", "admin"},
    "LookupNode": {"gateway", "admin"},
    "RecordAssignment": {"gateway", "admin"},
    "ListObservedNodes": {"gateway", "admin"},
    "GetNode": {"gateway", "admin"},
    "Heartbeat": {"node", "bound", "admin"},
    "ReportSandboxEvent": {"node", "bound", "admin"},
    "UnregisterNode": {"node", "bound", "admin"},
    "RecordP2pArtifact": {"node", "bound", "admin"},
    "ForgetP2pArtifact": {"node", "bound", "admin"},
    "ListP2pPeers": {"node", "bound", "gateway", "admin"},
    "LookupP2pArtifact": {"node", "bound", "gateway", "admin"},
}
FOR_NODE_A = v1.HeartbeatRequest(node_id=" a ").SerializeToString()  # in each of a node's messages `node_id` is text 1
REFUSED = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
BINDING = Binding("s1", NodeAddress("a", "http://a:8000"), 0)
CANCELLED = Reservation(
    "r", "a", ReservationState.CANCELLED, Lifecycle.EXPLICIT, 1, 1, created_at_ms=0, expires_at_ms=1
)


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": ENTRIES}), "utf-8")
    return KeyRing(path)


def metadata_of(role: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {KEYS[role]}"),)


async def status_of(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


def test_every_method_of_both_services_is_in_these_tests() -> None:
    assert set(v1.DESCRIPTOR.services_by_name["Scheduler"].methods_by_name) == set(REACHED_BY)


@pytest.mark.parametrize("role", list(KEYS))
async def test_each_role_reaches_its_calls_and_no_other(keys: KeyRing, role: str) -> None:
    async with serving(scripted_services(), access=AccessPolicy(keys), keys_for_upstream=True) as port:
        for method, allowed in REACHED_BY.items():
            frame = FOR_NODE_A if method in {"Heartbeat", "ReportSandboxEvent", "UnregisterNode"} else b""
            call: Any = port.raw(UPSTREAM + method)
            status = await status_of(call(frame, metadata=metadata_of(role)))
            if method.endswith("P2pArtifact") and role == "bound" and method != "LookupP2pArtifact":
                assert status == "PERMISSION_DENIED", "the request names no node, and this key speaks for one"
            else:
                assert (status == "PERMISSION_DENIED") == (role not in allowed), method
        for method in v1alpha.DESCRIPTOR.services_by_name["Reservations"].methods_by_name:
            call = port.raw(OURS + method)
            status = await status_of(call(b"", metadata=metadata_of(role)))
            assert (status == "PERMISSION_DENIED") == (role not in {"gateway", "admin"}), method


async def test_a_bound_key_speaks_for_its_node_alone(keys: KeyRing) -> None:
    async with serving(scripted_services(), access=AccessPolicy(keys), keys_for_upstream=True) as port:
        other = v1.HeartbeatRequest(node_id="b", service_instance_id="i")
        told = await refusal(port.scheduler.Heartbeat(other, metadata=metadata_of("bound")))
        assert told == ("PERMISSION_DENIED", "this key is bound to another node")
        assert port.services.nodes.calls == []


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("x-api-key", "guessed"),),
        (("authorization", "Basic eA=="),),
        (("authorization", f"Bearer {KEYS['admin']}"), ("authorization", f"Bearer {KEYS['admin']}")),
    ],
)
async def test_without_a_known_key_nothing_is_done(keys: KeyRing, metadata: Any) -> None:
    async with serving(scripted_services(), access=AccessPolicy(keys), keys_for_upstream=True) as port:
        for path in (UPSTREAM + "Schedule", OURS + "Reserve"):
            call: Any = port.raw(path)
            assert await status_of(call(b"", metadata=metadata)) == "UNAUTHENTICATED"
        assert port.services.placement.calls == []


async def test_a_stranger_is_refused_before_its_message_is_received(keys: KeyRing) -> None:
    async with serving(scripted_services(), access=AccessPolicy(keys), keys_for_upstream=True) as port:
        frame = b"\x00" * (64 * 1024 * 1024)
        assert await status_of(port.raw(UPSTREAM + "Heartbeat")(frame)) == "UNAUTHENTICATED"


async def test_agentenvs_clients_need_no_key_unless_configured(keys: KeyRing) -> None:
    services = scripted_services()
    services.bindings.answers("lookup", BINDING)
    async with serving(services, access=AccessPolicy(keys)) as port:
        await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
        assert await status_of(port.reservations.Reserve(v1alpha.ReserveRequest())) == "UNAUTHENTICATED"


async def test_the_caller_of_a_reservation_is_the_name_of_its_key(keys: KeyRing) -> None:
    services = scripted_services()
    decision = Decision(NodeAddress("a", "http://a:8000"), Strategy.ROUND_ROBIN)
    services.placement.answers("schedule", decision)
    async with serving(services, access=AccessPolicy(keys), keys_for_upstream=True) as port:
        key = (("x-api-key", KEYS["gateway"]),)
        await port.reservations.Reserve(v1alpha.ReserveRequest(), metadata=key)
        await port.scheduler.Schedule(v1.ScheduleRequest(), metadata=key)
        assert [request.caller for _, (request,) in services.placement.calls] == ["edge", "edge"]


@pytest.mark.parametrize("named", [{"reservation_id": "r"}, {"idempotency_key": "k"}])
async def test_what_an_administrator_cancels_is_told_to_the_audit_log(keys: KeyRing, named: dict[str, str]) -> None:
    services, result = scripted_services(), ReservationResult(CANCELLED)
    for call in ("cancel", "cancel_by_key"):
        services.reservations.answers(call, result)
    async with serving(services, access=AccessPolicy(keys)) as port:
        request = v1alpha.CancelRequest(reason="stuck", **named)
        await port.reservations.Cancel(request, metadata=(("x-api-key", KEYS["admin"]),))
        await port.reservations.Cancel(request, metadata=(("x-api-key", KEYS["gateway"]),))
    assert [arguments for _, arguments in services.audit.calls] == [("ops", result, "stuck")]


async def test_without_keys_beyond_loopback_only_agentenvs_calls_are_served() -> None:
    services = scripted_services()
    services.bindings.answers("lookup", BINDING)
    async with serving(services, access=AccessPolicy(loopback=False)) as port:
        await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))
        assert await status_of(port.reservations.Reserve(v1alpha.ReserveRequest())) == "UNIMPLEMENTED"
    async with serving(services, access=AccessPolicy(loopback=False, insecure=True)) as port:
        assert await status_of(port.reservations.Confirm(v1alpha.ConfirmRequest())) == "INVALID_ARGUMENT"
