"""`scheduler.v1` over a scripted service layer: checks in order, codes, texts, what is passed on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler import errors
from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.domain.limits import SAFE_INTEGER_MAX
from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    HeartbeatResult,
    MachineInfo,
    Node,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
)
from scheduler.domain.placement import Decision, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.sandbox import ArtifactKey, Binding, SandboxEvent, SandboxEventType
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.grpc.support import Port, refusal, scripted_services, serving

NODE_A = NodeAddress("a", "http://a:8000")
NOT_LISTED = ("INVALID_ARGUMENT", "node is not in scheduler node list")
STORE_DOWN = ("UNAVAILABLE", "binding store unavailable")


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    async with serving(scripted_services()) as started:
        yield started


def reported(node_id: str = "a", **changes: Any) -> Node:
    values: dict[str, Any] = {
        "endpoint": f"http://{node_id}:8000",
        "discovery": DiscoveryState.ACTIVE,
        "status": NodeStatus.READY,
        "last_seen_ms": 1000,
        "cluster_id": "c1",
        "snapshot": NodeSnapshot(status=NodeStatus.READY, sandbox_count=2),
    }
    return Node(node_id, **(values | changes))


class TestSchedule:
    async def test_cold_hint_is_passed_on_and_awaits_the_nodes_own_report(self, port: Port) -> None:
        port.services.placement.answers("schedule", Decision(NODE_A, Strategy.ROUND_ROBIN))
        hint = v1.ScheduleRequestHint(
            new_cold_sandbox=v1.NewColdSandboxHint(cpu_count=2, memory_mb=512, images=["x", "y"], metadata={"k": "v"})
        )
        answer = await port.scheduler.Schedule(v1.ScheduleRequest(hint=hint))
        assert (answer.node.node_id, answer.node.endpoint) == ("a", "http://a:8000")
        [(_, (request,))] = port.services.placement.calls
        assert isinstance(request, ScheduleRequest)
        assert request.lifecycle is Lifecycle.HEARTBEAT
        assert request.hint is not None
        assert request.hint.kind is HintKind.COLD_SANDBOX
        assert (request.hint.cpu_count, request.hint.memory_mb, request.hint.images) == (2, 512, ("x", "y"))
        assert request.hint.metadata == {"k": "v"}

    async def test_template_id_is_passed_on(self, port: Port) -> None:
        port.services.placement.answers("schedule", Decision(NODE_A, Strategy.ROUND_ROBIN))
        hint = v1.ScheduleRequestHint(new_sandbox=v1.NewSandboxHint(template_id="base"))
        await port.scheduler.Schedule(v1.ScheduleRequest(hint=hint))
        [(_, (request,))] = port.services.placement.calls
        assert (request.hint.kind, request.hint.template_id) == (HintKind.SANDBOX, "base")

    @pytest.mark.parametrize("request_", [v1.ScheduleRequest(), v1.ScheduleRequest(hint=v1.ScheduleRequestHint())])
    async def test_without_a_hint_kind_it_is_ordinary_routing(self, port: Port, request_: v1.ScheduleRequest) -> None:
        port.services.placement.answers("schedule", Decision(NODE_A, Strategy.ROUND_ROBIN))
        await port.scheduler.Schedule(request_)
        [(_, (request,))] = port.services.placement.calls
        assert request.hint is None

    async def test_no_nodes_is_unavailable_with_upstreams_text(self, port: Port) -> None:
        port.services.placement.fails("schedule", errors.NoNodes(3, {"unhealthy": 3}))
        assert await refusal(port.scheduler.Schedule(v1.ScheduleRequest())) == ("UNAVAILABLE", "no nodes available")


class TestBindings:
    async def test_lookup_answers_the_bound_node(self, port: Port) -> None:
        port.services.bindings.answers("lookup", Binding("s1", NODE_A, 0))
        answer = await port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id=" s1 "))
        assert answer.node.node_id == "a"
        assert port.services.bindings.calls == [("lookup", ("s1",))]

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (errors.NotFound("no binding for s1"), ("NOT_FOUND", "sandbox assignment not found")),
            (errors.InvalidRequest("sandbox_id is odd"), ("NOT_FOUND", "sandbox assignment not found")),
            (errors.StoreUnavailable("connection refused"), STORE_DOWN),
            (errors.NotRebuilt("being rebuilt"), ("UNAVAILABLE", "being rebuilt")),
            (errors.DeadlineExceeded("too late"), ("DEADLINE_EXCEEDED", "too late")),
        ],
    )
    async def test_lookup_answers_what_went_wrong(
        self, port: Port, error: errors.SchedulerError, told: tuple[str, str]
    ) -> None:
        port.services.bindings.fails("lookup", error)
        assert await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))) == told

    async def test_blank_sandbox_id_is_refused_before_anything_else(self, port: Port) -> None:
        told = ("INVALID_ARGUMENT", "sandbox_id is required")
        assert await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id=" \t"))) == told
        assert await refusal(port.scheduler.RecordAssignment(v1.RecordAssignmentRequest())) == told

    @pytest.mark.parametrize("node", [v1.Node(), v1.Node(node_id="a"), v1.Node(node_id=" ", endpoint="http://a:8000")])
    async def test_record_needs_node_and_endpoint(self, port: Port, node: v1.Node) -> None:
        request = v1.RecordAssignmentRequest(sandbox_id="s1", node=node)
        told = ("INVALID_ARGUMENT", "node_id and endpoint are required")
        assert await refusal(port.scheduler.RecordAssignment(request)) == told

    async def test_record_refused_by_the_ledger_has_the_text_nodes_know(self, port: Port) -> None:
        port.services.bindings.fails("record", errors.AssignmentRefused("a is not listed at that endpoint"))
        request = v1.RecordAssignmentRequest(sandbox_id="s1", node=v1.Node(node_id="a", endpoint="http://x:1"))
        assert await refusal(port.scheduler.RecordAssignment(request)) == NOT_LISTED


class TestHeartbeat:
    async def test_everything_a_node_reports_is_passed_on(self, port: Port) -> None:
        port.services.nodes.answers("heartbeat", HeartbeatResult(7))
        port.services.cpu_configs.answers("after_heartbeat", '{"kvm_capabilities":[]}')
        request = v1.HeartbeatRequest(
            node_id=" a ",
            cluster_id="c1",
            service_instance_id="i1",
            version="0.1.3",
            commit="abc",
            machine_info=v1.MachineInfo(cpu_family="6", cpu_config_json="{}"),
            snapshot=v1.NodeSnapshot(
                status=v1.NODE_STATUS_READY,
                cpu_count=8,
                create_successes=3,
                disks=[v1.DiskMetric(mount_point="/", used_bytes=1, total_bytes=2)],
            ),
            sandbox_ids=["s1", "s2"],
            p2p_endpoint=v1.P2pEndpoint(backend="iroh", address='{"node":"x"}'),
        )
        answer = await port.scheduler.Heartbeat(request, timeout=10)
        assert answer.cpu_config_json == '{"kvm_capabilities":[]}'
        [(_, (heartbeat, deadline_ms))] = port.services.nodes.calls
        assert (heartbeat.node_id, heartbeat.cluster_id, heartbeat.service_instance_id) == ("a", "c1", "i1")
        assert heartbeat.machine_info == MachineInfo(cpu_family="6", cpu_config_json="{}")
        assert heartbeat.snapshot.status is NodeStatus.READY
        assert heartbeat.snapshot.cpu_count == 8
        assert heartbeat.snapshot.disks[0].total_bytes == 2
        assert heartbeat.sandbox_ids == ("s1", "s2")
        assert heartbeat.p2p_endpoint == P2pEndpoint("iroh", '{"node":"x"}')
        assert 0 < deadline_ms < 10_500

    async def test_what_is_absent_stays_absent_and_the_roster_is_always_known(self, port: Port) -> None:
        port.services.nodes.answers("heartbeat", HeartbeatResult(1))
        await port.scheduler.Heartbeat(v1.HeartbeatRequest(node_id="a", service_instance_id="i"))
        [(_, (heartbeat, _))] = port.services.nodes.calls
        assert heartbeat.machine_info is None
        assert heartbeat.snapshot is None
        assert heartbeat.p2p_endpoint is None
        assert heartbeat.sandbox_ids == ()

    @pytest.mark.parametrize("status", [v1.NODE_STATUS_UNSPECIFIED, 5, 99])
    async def test_a_status_we_do_not_know_is_connecting(self, port: Port, status: int) -> None:
        port.services.nodes.answers("heartbeat", HeartbeatResult(1))
        snapshot = v1.NodeSnapshot()
        snapshot.MergeFromString(bytes([8, status]))
        await port.scheduler.Heartbeat(v1.HeartbeatRequest(node_id="a", service_instance_id="i", snapshot=snapshot))
        [(_, (heartbeat, _))] = port.services.nodes.calls
        assert heartbeat.snapshot.status is NodeStatus.CONNECTING

    async def test_absurd_figures_are_held_to_what_the_ledger_counts(self, port: Port) -> None:
        port.services.nodes.answers("heartbeat", HeartbeatResult(1))
        most = 2**64 - 1
        snapshot = v1.NodeSnapshot(
            memory_total_bytes=most,
            allocated_memory_bytes=most,
            paused_allocated_memory_bytes=most,
            create_successes=most,
            reported_at_unix_ms=-5,
            disks=[v1.DiskMetric(total_bytes=most)],
        )
        request = v1.HeartbeatRequest(node_id="a", service_instance_id="i", snapshot=snapshot)
        await port.scheduler.Heartbeat(request)
        [(_, (heartbeat, _))] = port.services.nodes.calls
        told = heartbeat.snapshot
        assert told.memory_total_bytes == told.create_successes == SAFE_INTEGER_MAX
        assert told.allocated_memory_bytes + told.paused_allocated_memory_bytes == SAFE_INTEGER_MAX
        assert told.reported_at_unix_ms == 0
        assert told.disks[0].total_bytes == SAFE_INTEGER_MAX

    @pytest.mark.parametrize(
        "request_",
        [
            v1.HeartbeatRequest(),
            v1.HeartbeatRequest(node_id=" ", service_instance_id="i"),
            v1.HeartbeatRequest(node_id="a", service_instance_id="\n"),
        ],
    )
    async def test_blank_ids_are_refused(self, port: Port, request_: v1.HeartbeatRequest) -> None:
        told = ("INVALID_ARGUMENT", "node_id and service_instance_id are required")
        assert await refusal(port.scheduler.Heartbeat(request_)) == told

    async def test_a_node_outside_discovery_gets_the_text_it_looks_for(self, port: Port) -> None:
        port.services.nodes.fails("heartbeat", errors.NodeNotListed("a is not in the list"))
        request = v1.HeartbeatRequest(node_id="a", service_instance_id="i")
        assert await refusal(port.scheduler.Heartbeat(request)) == NOT_LISTED

    async def test_a_broken_store_is_unavailable(self, port: Port) -> None:
        port.services.nodes.fails("heartbeat", errors.StoreUnavailable("refused"))
        request = v1.HeartbeatRequest(node_id="a", service_instance_id="i")
        assert await refusal(port.scheduler.Heartbeat(request)) == STORE_DOWN

    async def test_a_defect_in_the_ledger_has_upstreams_text(self, port: Port) -> None:
        port.services.nodes.fails("heartbeat", errors.ScriptError("lua/x.lua:1"))
        request = v1.HeartbeatRequest(node_id="a", service_instance_id="i")
        assert await refusal(port.scheduler.Heartbeat(request)) == ("INTERNAL", "node registry heartbeat failed")


class TestOddIds:
    """What no node, cluster or artifact can be called matches nothing; that is no error where upstream has none."""

    @pytest.fixture
    async def port(self) -> AsyncIterator[Port]:
        services = scripted_services()
        odd = errors.InvalidRequest("longer than 255 bytes")
        for service, method in (
            ("nodes", "list"),
            ("nodes", "get"),
            ("nodes", "unregister"),
            ("bindings", "lookup"),
            ("artifacts", "peers"),
            ("artifacts", "lookup"),
            ("artifacts", "forget"),
        ):
            getattr(services, service).fails(method, odd)
        async with serving(services) as started:
            yield started

    async def test_they_match_nothing(self, port: Port) -> None:
        odd = "x" * 400
        fields = {"cluster_id": odd, "backend": odd, "key": odd}
        assert not (await port.scheduler.ListObservedNodes(v1.ListObservedNodesRequest(cluster_id=odd))).nodes
        assert not (await port.scheduler.ListP2pPeers(v1.ListP2pPeersRequest(cluster_id=odd))).peers
        assert not (await port.scheduler.LookupP2pArtifact(v1.LookupP2pArtifactRequest(**fields))).peers
        await port.scheduler.ForgetP2pArtifact(v1.ForgetP2pArtifactRequest(node_id=odd, **fields))
        await port.scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id=odd, service_instance_id=odd))
        assert (await refusal(port.scheduler.GetNode(v1.GetNodeRequest(node_id=odd))))[0] == "NOT_FOUND"
        assert (await refusal(port.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id=odd))))[0] == "NOT_FOUND"


class TestEvents:
    async def test_known_events_are_passed_on_in_batches(self, port: Port) -> None:
        port.services.nodes.answers("record_events", 1)
        events = [
            v1.SandboxEvent(
                sandbox_id=" s1 ",
                event_type=v1.SANDBOX_EVENT_TYPE_CREATE,
                requested_cpu=2,
                requested_memory_bytes=4096,
                requested_disk_bytes=1,
            ),
            v1.SandboxEvent(sandbox_id="s2"),
            v1.SandboxEvent(event_type=v1.SANDBOX_EVENT_TYPE_DELETE),
        ]
        fork = v1.SandboxEvent(sandbox_id="s3", event_type=v1.SANDBOX_EVENT_TYPE_FORK)
        request = v1.ReportSandboxEventRequest(node_id="a", service_instance_id="i", events=events + [fork] * 1500)
        await port.scheduler.ReportSandboxEvent(request)
        batches = [arguments for _, arguments in port.services.nodes.calls]
        assert [len(batch) for _, _, batch in batches] == [1024 - 1, 478], "one names no sandbox"
        assert batches[0][:2] == ("a", "i")
        assert batches[0][2][0] == SandboxEvent("s1", SandboxEventType.CREATE, 2, 4096)

    @pytest.mark.parametrize(
        "error",
        [
            errors.NodeNotListed("unknown node"),
            errors.InvalidRequest("odd id"),
            errors.StoreUnavailable("refused"),
            errors.DeadlineExceeded("late"),
        ],
    )
    async def test_a_node_is_never_failed_for_its_events(self, port: Port, error: errors.SchedulerError) -> None:
        port.services.nodes.fails("record_events", error)
        event = v1.SandboxEvent(sandbox_id="s", event_type=v1.SANDBOX_EVENT_TYPE_CREATE)
        await port.scheduler.ReportSandboxEvent(v1.ReportSandboxEventRequest(node_id="zz", events=[event]))

    async def test_nothing_at_all_is_fine(self, port: Port) -> None:
        await port.scheduler.ReportSandboxEvent(v1.ReportSandboxEventRequest())
        assert port.services.nodes.calls == []


class TestViews:
    async def test_list_nodes_shows_all_and_observed_only_those_that_reported(self, port: Port) -> None:
        port.services.nodes.answers("addresses", (NODE_A, NodeAddress("b", "http://b:8000")))
        port.services.nodes.answers("list", (reported("a"), reported("b", last_seen_ms=None)))
        listed = await port.scheduler.ListNodes(v1.ListNodesRequest())
        assert [node.node_id for node in listed.nodes] == ["a", "b"]
        observed = await port.scheduler.ListObservedNodes(v1.ListObservedNodesRequest(cluster_id=" c1 "))
        assert [node.node_id for node in observed.nodes] == ["a"]
        assert port.services.nodes.calls[-1] == ("list", ("c1",))

    async def test_an_observed_node_shows_its_derived_status(self, port: Port) -> None:
        info = MachineInfo(cpu_model="x")
        port.services.nodes.answers("get", reported(status=NodeStatus.UNHEALTHY, machine_info=info))
        answer = await port.scheduler.GetNode(v1.GetNodeRequest(node_id=" a ", cluster_id=" c1 "))
        assert answer.node.snapshot.status == v1.NODE_STATUS_UNHEALTHY
        assert answer.node.snapshot.sandbox_count == 2
        assert answer.node.last_seen_unix_ms == 1000
        assert answer.node.machine_info.cpu_model == "x"

    @pytest.mark.parametrize("node", [reported(last_seen_ms=None), reported(cluster_id="c2")])
    async def test_silent_or_foreign_nodes_are_not_found(self, port: Port, node: Node) -> None:
        port.services.nodes.answers("get", node)
        told = ("NOT_FOUND", "observed node not found")
        assert await refusal(port.scheduler.GetNode(v1.GetNodeRequest(node_id="a", cluster_id="c1"))) == told

    async def test_get_node_needs_an_id(self, port: Port) -> None:
        told = ("INVALID_ARGUMENT", "node_id is required")
        assert await refusal(port.scheduler.GetNode(v1.GetNodeRequest(node_id=" "))) == told


@pytest.fixture
async def listed(ledger: Ledger) -> AsyncIterator[Port]:
    """Over a real service layer, with nodes a and b."""
    services = build_services(ledger)
    await services.nodes.replace([NodeAddress("a", "http://a:1"), NodeAddress("b", "http://b:1")], [])
    async with serving(services) as started:
        yield started


class TestOddReports:
    @pytest.mark.parametrize(
        "odd",
        [
            {"cluster_id": "c" * 300},
            {"cluster_id": "a\tb"},
            {"p2p_endpoint": v1.P2pEndpoint(backend="b\x01", address="a:1")},
            {"p2p_endpoint": v1.P2pEndpoint(backend="b", address="a" * 70_000)},
            {"machine_info": v1.MachineInfo(cpu_model="m", cpu_config_json=" " * (2**20 + 1))},
        ],
        ids=["long cluster", "tab in cluster", "backend", "address", "CPU template"],
    )
    async def test_a_description_costs_no_report(self, listed: Port, odd: dict[str, Any]) -> None:
        sandboxes = {"sandbox_ids": ["s1"], "snapshot": v1.NodeSnapshot(status=v1.NODE_STATUS_READY, cpu_count=4)}
        with capture_logs() as logs:
            for node_id in "ab":
                report = v1.HeartbeatRequest(node_id=node_id, service_instance_id="i", **sandboxes, **odd)
                for _ in range(3):
                    await listed.scheduler.Heartbeat(report)
                sandboxes["sandbox_ids"] = ["s2"]
        assert [entry["node_id"] for entry in logs if entry["log_level"] == "warning"] == ["a", "b"]
        assert (await listed.scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="s1"))).node.node_id == "a"
        told = [(await listed.scheduler.GetNode(v1.GetNodeRequest(node_id=each))).node for each in "ab"]
        assert told[0].snapshot.cpu_count == 4
        # Nodes of one odd cluster are of one cluster all the same.
        assert told[0].cluster_id == told[1].cluster_id
        assert bool(told[0].cluster_id) == ("cluster_id" in odd)
        assert not (await listed.scheduler.ListP2pPeers(v1.ListP2pPeersRequest())).peers

    async def test_whatever_white_space_is_around_an_id_is_trimmed(self, listed: Port) -> None:
        scheduler = listed.scheduler
        report = v1.HeartbeatRequest(node_id="\ta", service_instance_id="i\n", cluster_id="c\r\n", sandbox_ids=["s1\n"])
        await scheduler.Heartbeat(report)
        assert (await scheduler.LookupNode(v1.LookupNodeRequest(sandbox_id="\n s1\v"))).node.node_id == "a"
        node = (await scheduler.GetNode(v1.GetNodeRequest(node_id="a\n", cluster_id="c"))).node
        assert (node.node_id, node.cluster_id, node.service_instance_id) == ("a", "c", "i")
        (found,) = (await scheduler.ListObservedNodes(v1.ListObservedNodesRequest(cluster_id="c\n"))).nodes
        assert found.node_id == "a"
        await scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id="a\n", service_instance_id="\ti"))
        lookup = v1.LookupNodeRequest(sandbox_id="s1")
        assert (await refusal(scheduler.LookupNode(lookup)))[0] == "NOT_FOUND"


class TestUnregister:
    async def test_another_instance_is_a_failed_precondition(self, port: Port) -> None:
        port.services.nodes.fails("unregister", errors.InstanceMismatch("another instance has reported"))
        request = v1.UnregisterNodeRequest(node_id="a", service_instance_id="old")
        assert await refusal(port.scheduler.UnregisterNode(request)) == (
            "FAILED_PRECONDITION",
            "service instance mismatch",
        )

    async def test_an_instance_id_that_is_none_is_anothers_where_the_node_has_reported(self, ledger: Ledger) -> None:
        services = build_services(ledger)
        await services.nodes.replace([NodeAddress("a", "http://a:1"), NodeAddress("b", "http://b:1")], [])
        await services.nodes.heartbeat(Heartbeat("a", "i", snapshot=NodeSnapshot()), None)
        async with serving(services) as port:
            for odd in ("x" * 300, "i\ni"):
                told = await refusal(
                    port.scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id="a", service_instance_id=odd))
                )
                assert told == ("FAILED_PRECONDITION", "service instance mismatch")
                # Of one that has not, whatever is left is cleared.
                await port.scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id="b", service_instance_id=odd))
            assert (await port.scheduler.GetNode(v1.GetNodeRequest(node_id="a"))).node.service_instance_id == "i"

    async def test_an_unknown_node_unregisters_well(self, port: Port) -> None:
        port.services.nodes.fails("unregister", errors.NotFound("no such node"))
        await port.scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id="zz", service_instance_id="i"))

    async def test_both_ids_are_needed(self, port: Port) -> None:
        told = ("INVALID_ARGUMENT", "node_id and service_instance_id are required")
        assert await refusal(port.scheduler.UnregisterNode(v1.UnregisterNodeRequest(node_id="a"))) == told


class TestArtifacts:
    @pytest.mark.parametrize("blank", ["cluster_id", "backend", "key", "node_id"])
    async def test_all_four_fields_are_needed(self, port: Port, blank: str) -> None:
        fields = {"cluster_id": "c1", "backend": "iroh", "key": "k", "node_id": "a"} | {blank: " "}
        told = ("INVALID_ARGUMENT", "cluster_id, backend, key, and node_id are required")
        assert await refusal(port.scheduler.RecordP2pArtifact(v1.RecordP2pArtifactRequest(**fields))) == told
        assert await refusal(port.scheduler.ForgetP2pArtifact(v1.ForgetP2pArtifactRequest(**fields))) == told

    async def test_lookup_needs_three_and_trims_all(self, port: Port) -> None:
        told = ("INVALID_ARGUMENT", "cluster_id, backend, and key are required")
        assert await refusal(port.scheduler.LookupP2pArtifact(v1.LookupP2pArtifactRequest(key="k"))) == told
        port.services.artifacts.answers("lookup", (("b", P2pEndpoint("iroh", "addr-b")),))
        request = v1.LookupP2pArtifactRequest(cluster_id=" c1", backend="iroh ", key=" k ", exclude_node_id=" a ")
        answer = await port.scheduler.LookupP2pArtifact(request)
        assert [(peer.node_id, peer.endpoint.address) for peer in answer.peers] == [("b", "addr-b")]
        assert port.services.artifacts.calls == [("lookup", (ArtifactKey("c1", "iroh", "k"), "a"))]

    async def test_record_for_an_unlisted_node_has_the_text_nodes_know(self, port: Port) -> None:
        port.services.artifacts.fails("record", errors.NodeNotListed("zz"))
        request = v1.RecordP2pArtifactRequest(cluster_id="c1", backend="iroh", key="k", node_id="zz")
        assert await refusal(port.scheduler.RecordP2pArtifact(request)) == NOT_LISTED

    async def test_peers_are_asked_for_with_all_three_filters(self, port: Port) -> None:
        endpoint = P2pEndpoint("iroh", "addr-a")
        port.services.artifacts.answers("peers", (("a", endpoint), ("x", endpoint)))
        request = v1.ListP2pPeersRequest(cluster_id=" c ", backend=" iroh ", exclude_node_id=" x ")
        answer = await port.scheduler.ListP2pPeers(request)
        assert [peer.node_id for peer in answer.peers] == ["a"]
        assert port.services.artifacts.calls == [("peers", ("c", "iroh"))]


@pytest.mark.parametrize("node_id", ["a\nb", "n" * 256, "\x1c"])
async def test_an_invalid_node_id_is_answered_as_not_listed(port: Port, node_id: str) -> None:
    node = v1.Node(node_id=node_id, endpoint="http://a:8000")
    artifact = v1.RecordP2pArtifactRequest(cluster_id="c", backend="iroh", key="k", node_id=node_id)
    for call in (
        port.scheduler.Heartbeat(v1.HeartbeatRequest(node_id=node_id, service_instance_id="i")),
        port.scheduler.RecordAssignment(v1.RecordAssignmentRequest(sandbox_id="s", node=node)),
        port.scheduler.RecordP2pArtifact(artifact),
    ):
        assert await refusal(call) == NOT_LISTED
