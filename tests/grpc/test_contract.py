"""The wire names and numbers are AgentENV's, and the generated code is what `proto/` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from scheduler.api.grpc import generate as generator
from scheduler.api.grpc.generated import reservations_v1alpha_pb2, scheduler_v1_pb2

METHODS = {
    "Schedule": ("ScheduleRequest", "ScheduleResponse"),
    "ListNodes": ("ListNodesRequest", "ListNodesResponse"),
    "LookupNode": ("LookupNodeRequest", "LookupNodeResponse"),
    "RecordAssignment": ("RecordAssignmentRequest", "RecordAssignmentResponse"),
    "Heartbeat": ("HeartbeatRequest", "HeartbeatResponse"),
    "ReportSandboxEvent": ("ReportSandboxEventRequest", "ReportSandboxEventResponse"),
    "ListObservedNodes": ("ListObservedNodesRequest", "ListObservedNodesResponse"),
    "ListP2pPeers": ("ListP2pPeersRequest", "ListP2pPeersResponse"),
    "RecordP2pArtifact": ("RecordP2pArtifactRequest", "RecordP2pArtifactResponse"),
    "ForgetP2pArtifact": ("ForgetP2pArtifactRequest", "ForgetP2pArtifactResponse"),
    "LookupP2pArtifact": ("LookupP2pArtifactRequest", "LookupP2pArtifactResponse"),
    "GetNode": ("GetNodeRequest", "GetNodeResponse"),
    "UnregisterNode": ("UnregisterNodeRequest", "UnregisterNodeResponse"),
}

# `name number type`, a trailing * for repeated, as the contract's table has them.
FIELDS = {
    "Node": "node_id 1 string, endpoint 2 string",
    "ScheduleRequestHint": "new_cold_sandbox 1 NewColdSandboxHint, new_sandbox 2 NewSandboxHint",
    "NewColdSandboxHint": "cpu_count 1 uint32, memory_mb 2 uint64, images 3 string*, metadata 4 MetadataEntry*",
    "NewSandboxHint": "metadata 1 MetadataEntry*, template_id 2 string",
    "ScheduleRequest": "hint 2 ScheduleRequestHint",
    "ScheduleResponse": "node 1 Node",
    "ListNodesRequest": "",
    "ListNodesResponse": "nodes 1 Node*",
    "LookupNodeRequest": "sandbox_id 1 string",
    "LookupNodeResponse": "node 1 Node",
    "RecordAssignmentRequest": "sandbox_id 1 string, node 2 Node",
    "RecordAssignmentResponse": "",
    "MachineInfo": "cpu_family 1 string, cpu_model 2 string, cpu_model_name 3 string, cpu_architecture 4 string, "
    "cpu_config_json 5 string",
    "DiskMetric": "mount_point 1 string, device 2 string, filesystem_type 3 string, used_bytes 4 uint64, "
    "total_bytes 5 uint64",
    "NodeSnapshot": "status 1 NodeStatus, allocated_cpu 2 uint32, allocated_memory_bytes 3 uint64, "
    "cpu_percent 4 uint32, cpu_count 5 uint32, memory_used_bytes 6 uint64, memory_total_bytes 7 uint64, "
    "disks 8 DiskMetric*, sandbox_count 9 uint32, sandbox_starting_count 10 uint32, create_successes 11 uint64, "
    "create_fails 12 uint64, reported_at_unix_ms 13 int64, paused_sandbox_count 14 uint32, "
    "paused_allocated_cpu 15 uint32, paused_allocated_memory_bytes 16 uint64",
    "P2pEndpoint": "backend 1 string, address 2 string",
    "ObservedNode": "node_id 1 string, endpoint 2 string, cluster_id 3 string, service_instance_id 4 string, "
    "version 5 string, commit 6 string, machine_info 7 MachineInfo, snapshot 8 NodeSnapshot, "
    "last_seen_unix_ms 9 int64",
    "HeartbeatRequest": "node_id 1 string, cluster_id 2 string, service_instance_id 3 string, version 4 string, "
    "commit 5 string, machine_info 6 MachineInfo, snapshot 7 NodeSnapshot, sandbox_ids 8 string*, "
    "p2p_endpoint 9 P2pEndpoint",
    "HeartbeatResponse": "cpu_config_json 1 string",
    "SandboxEvent": "sandbox_id 1 string, event_type 2 SandboxEventType, requested_cpu 3 uint32, "
    "requested_memory_bytes 4 uint64, requested_disk_bytes 5 uint64",
    "ReportSandboxEventRequest": "node_id 1 string, cluster_id 2 string, service_instance_id 3 string, "
    "events 4 SandboxEvent*",
    "ReportSandboxEventResponse": "",
    "ListObservedNodesRequest": "cluster_id 1 string",
    "ListObservedNodesResponse": "nodes 1 ObservedNode*",
    "P2pPeer": "node_id 1 string, endpoint 2 P2pEndpoint",
    "ListP2pPeersRequest": "cluster_id 1 string, backend 2 string, exclude_node_id 3 string",
    "ListP2pPeersResponse": "peers 1 P2pPeer*",
    "RecordP2pArtifactRequest": "cluster_id 1 string, backend 2 string, key 3 string, node_id 4 string",
    "RecordP2pArtifactResponse": "",
    "ForgetP2pArtifactRequest": "cluster_id 1 string, backend 2 string, key 3 string, node_id 4 string",
    "ForgetP2pArtifactResponse": "",
    "LookupP2pArtifactRequest": "cluster_id 1 string, backend 2 string, key 3 string, exclude_node_id 4 string",
    "LookupP2pArtifactResponse": "peers 1 P2pPeer*",
    "GetNodeRequest": "node_id 1 string, cluster_id 2 string",
    "GetNodeResponse": "node 1 ObservedNode",
    "UnregisterNodeRequest": "node_id 1 string, service_instance_id 2 string",
    "UnregisterNodeResponse": "",
}

ENUMS = {
    "NodeStatus": [
        "NODE_STATUS_UNSPECIFIED",
        "NODE_STATUS_READY",
        "NODE_STATUS_CONNECTING",
        "NODE_STATUS_UNHEALTHY",
        "NODE_STATUS_LINGERING",
    ],
    "SandboxEventType": [
        f"SANDBOX_EVENT_TYPE_{name}" for name in ["UNSPECIFIED", "CREATE", "DELETE", "PAUSE", "RESUME", "FORK"]
    ],
}

# Numbers that were taken once, upstream or in a fork, and mean different things there.
RESERVED = {
    "ScheduleRequest": {1, 3},
    "ScheduleRequestHint": {3},
    "LookupNodeResponse": {2, 3},
    "MachineInfo": {6},
    "NodeSnapshot": {17, 18, 19},
    "HeartbeatRequest": set(range(10, 17)),
    "HeartbeatResponse": {2, 3},
}

_SCALARS = {3: "int64", 4: "uint64", 9: "string", 13: "uint32"}


def file_of(module: object) -> FileDescriptorProto:
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)  # type: ignore[attr-defined]
    return file


def told_fields(message: object) -> str:
    return ", ".join(
        f"{field.name} {field.number} "
        + (_SCALARS.get(field.type) or field.type_name.rpartition(".")[2])
        + ("*" if field.label == field.LABEL_REPEATED else "")
        for field in message.field  # type: ignore[attr-defined]
    )


def test_every_method_has_its_exact_wire_name() -> None:
    service = scheduler_v1_pb2.DESCRIPTOR.services_by_name["Scheduler"]
    assert service.full_name == "scheduler.v1.Scheduler"
    found = {method.name: (method.input_type.name, method.output_type.name) for method in service.methods}
    assert found == METHODS


def test_every_message_has_exactly_its_fields_and_numbers() -> None:
    found = {message.name: told_fields(message) for message in file_of(scheduler_v1_pb2).message_type}
    assert found == FIELDS


def test_every_enum_has_its_values_from_zero_on() -> None:
    found = {enum.name: [value.name for value in enum.value] for enum in file_of(scheduler_v1_pb2).enum_type}
    assert found == ENUMS
    for enum in file_of(scheduler_v1_pb2).enum_type:
        assert [value.number for value in enum.value] == list(range(len(enum.value)))


def test_numbers_that_forks_took_stay_reserved() -> None:
    found = {
        message.name: {number for span in message.reserved_range for number in range(span.start, span.end)}
        for message in file_of(scheduler_v1_pb2).message_type
        if message.reserved_range
    }
    assert found == RESERVED


def test_our_own_service_lives_in_a_package_of_its_own() -> None:
    service = reservations_v1alpha_pb2.DESCRIPTOR.services_by_name["Reservations"]
    assert service.full_name == "agentenv.scheduler.v1alpha.Reservations"
    calls = [method.name for method in service.methods]
    assert calls == ["Reserve", "ScheduleBatch", "Confirm", "Cancel", "Renew", "Explain"]


def test_generated_code_is_what_the_proto_files_say(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is a development dependency")
    for fresh in generator.generate(tmp_path):
        checked_in = generator.ROOT / fresh.relative_to(tmp_path)
        assert _apart_from_versions(checked_in) == _apart_from_versions(fresh), f"run `make proto`: {checked_in.name}"


def _apart_from_versions(path: Path) -> list[str]:
    """The text without the lines that only tell which compiler wrote it."""
    lines = path.read_text().splitlines()
    kept: list[str] = []
    in_check = False
    for line in lines:
        in_check = in_check or line.startswith("_runtime_version.Validate")
        if not in_check and "Protobuf Python Version" not in line and "GRPC_GENERATED_VERSION =" not in line:
            kept.append(line)
        in_check = in_check and line != ")"
    return kept
