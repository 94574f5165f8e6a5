"""`scheduler.v1.Scheduler`: the thirteen calls of AgentENV's gateway and nodes.

The order of checks, status codes and texts are AgentENV's: its gateway passes the texts of INVALID_ARGUMENT,
NOT_FOUND and UNAVAILABLE on to HTTP clients, and a node recognises "node is not in scheduler node list" by its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
from google.protobuf.message import Message

from scheduler import errors
from scheduler.access.roles import FOR_GATEWAYS, FOR_NODES, FOR_NODES_AND_GATEWAYS
from scheduler.api.grpc import codec
from scheduler.api.grpc.answering import Handler, Method, Refused, caller, invalid
from scheduler.api.grpc.generated import scheduler_v1_pb2 as v1
from scheduler.deadline import left_ms
from scheduler.domain import text
from scheduler.domain.limits import EVENTS_MAX
from scheduler.domain.node import Heartbeat, HeartbeatResult, NodeAddress
from scheduler.domain.placement import ScheduleRequest
from scheduler.domain.reservation import Lifecycle
from scheduler.domain.sandbox import ArtifactKey
from scheduler.observability.logging import get_logger
from scheduler.service.checks import trim
from scheduler.service.reports import held_to_form

if TYPE_CHECKING:
    from scheduler.service import Services

log = get_logger(__name__)

SERVICE = "scheduler.v1.Scheduler"
ODD_NODES_MAX = 1_000


class SchedulerV1:
    """The handlers. Ids are passed on as they were sent: the services clean them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._odd_nodes: set[str] = set()

    def methods(self, *, query_only: bool = False) -> Mapping[str, Method]:
        """The calls by their exact wire names. Query-only replicas have LookupNode alone."""
        lookup = {"LookupNode": Method(self.lookup_node, v1.LookupNodeRequest, FOR_GATEWAYS)}
        return lookup if query_only else lookup | self._gateways_methods() | self._nodes_methods()

    def _gateways_methods(self) -> dict[str, Method]:
        return {
            "Schedule": Method(self.schedule, v1.ScheduleRequest, FOR_GATEWAYS),
            "ListNodes": Method(self.list_nodes, v1.ListNodesRequest, FOR_GATEWAYS),
            "RecordAssignment": Method(self.record_assignment, v1.RecordAssignmentRequest, FOR_GATEWAYS),
            "ListObservedNodes": Method(self.list_observed_nodes, v1.ListObservedNodesRequest, FOR_GATEWAYS),
            "GetNode": Method(self.get_node, v1.GetNodeRequest, FOR_GATEWAYS),
        }

    def _nodes_methods(self) -> dict[str, Method]:
        of_itself: dict[str, tuple[Handler, type[Message]]] = {
            "Heartbeat": (self.heartbeat, v1.HeartbeatRequest),
            "ReportSandboxEvent": (self.report_sandbox_event, v1.ReportSandboxEventRequest),
            "UnregisterNode": (self.unregister_node, v1.UnregisterNodeRequest),
            "RecordP2pArtifact": (self.record_p2p_artifact, v1.RecordP2pArtifactRequest),
            "ForgetP2pArtifact": (self.forget_p2p_artifact, v1.ForgetP2pArtifactRequest),
        }
        return {
            "ListP2pPeers": Method(self.list_p2p_peers, v1.ListP2pPeersRequest, FOR_NODES_AND_GATEWAYS),
            "LookupP2pArtifact": Method(self.lookup_p2p_artifact, v1.LookupP2pArtifactRequest, FOR_NODES_AND_GATEWAYS),
        } | {
            name: Method(handler, request_type, FOR_NODES, for_node=True)
            for name, (handler, request_type) in of_itself.items()
        }

    # ── the gateway's calls ──────────────────────────────────────────────────

    async def schedule(self, request: v1.ScheduleRequest) -> v1.ScheduleResponse:
        """The gateway never confirms, so a creation is reserved until the node's own report accounts for it."""
        try:
            decision = await self._services.placement.schedule(
                ScheduleRequest(hint=codec.hint_from(request), lifecycle=Lifecycle.HEARTBEAT, caller=caller().name)
            )
        except errors.SizeOutOfBounds as error:
            # The gateway turns any status that AgentENV's Schedule does not have into a 502.
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"no nodes available: {error.detail}") from None
        return v1.ScheduleResponse(node=codec.node_to(decision.node))

    async def list_nodes(self, request: v1.ListNodesRequest) -> v1.ListNodesResponse:
        addresses = await self._services.nodes.addresses()
        return v1.ListNodesResponse(nodes=[codec.node_to(address) for address in addresses])

    async def lookup_node(self, request: v1.LookupNodeRequest) -> v1.LookupNodeResponse:
        try:
            binding = await self._services.bindings.lookup(request.sandbox_id)
        except errors.Blank:
            raise
        except (errors.NotFound, errors.InvalidRequest):
            # An invalid id is unknown, like any other that is not bound.
            raise Refused(grpc.StatusCode.NOT_FOUND, "sandbox assignment not found") from None
        return v1.LookupNodeResponse(node=codec.node_to(binding.node))

    async def record_assignment(self, request: v1.RecordAssignmentRequest) -> v1.RecordAssignmentResponse:
        with _unlistable_is_unlisted():
            await self._services.bindings.record(
                request.sandbox_id, NodeAddress(request.node.node_id, request.node.endpoint)
            )
        return v1.RecordAssignmentResponse()

    async def list_observed_nodes(self, request: v1.ListObservedNodesRequest) -> v1.ListObservedNodesResponse:
        try:
            nodes = await self._services.nodes.list(request.cluster_id)
        except errors.InvalidRequest:
            # No node has an invalid cluster id, and no match is no error.
            nodes = ()
        return v1.ListObservedNodesResponse(
            nodes=[codec.observed_node_to(node) for node in nodes if node.last_seen_ms is not None]
        )

    async def get_node(self, request: v1.GetNodeRequest) -> v1.GetNodeResponse:
        unknown = Refused(grpc.StatusCode.NOT_FOUND, "observed node not found")
        try:
            node = await self._services.nodes.get(request.node_id)
        except errors.Blank:
            raise
        except (errors.NotFound, errors.InvalidRequest):
            raise unknown from None
        cluster_id = trim(request.cluster_id)
        if node.last_seen_ms is None or (cluster_id and node.cluster_id != cluster_id):
            raise unknown
        return v1.GetNodeResponse(node=codec.observed_node_to(node))

    # ── a node's calls ───────────────────────────────────────────────────────

    async def heartbeat(self, request: v1.HeartbeatRequest) -> v1.HeartbeatResponse:
        try:
            with _unlistable_is_unlisted():
                result = await self._reported(codec.heartbeat_from(request), _report_deadline_ms())
        except errors.ScriptError:
            log.exception("a report could not be installed", node_id=request.node_id)
            raise Refused(grpc.StatusCode.INTERNAL, "node registry heartbeat failed") from None
        return v1.HeartbeatResponse(cpu_config_json=result.cpu_config_json)

    async def _reported(self, report: Heartbeat, deadline_ms: int | None) -> HeartbeatResult:
        """What cannot be kept of its descriptions costs no report; the log says so once of each node."""
        try:
            return await self._services.nodes.heartbeat(report, deadline_ms)
        except errors.InvalidRequest:
            plainer = held_to_form(report)
            if plainer is report:
                raise
        if report.node_id not in self._odd_nodes and len(self._odd_nodes) < ODD_NODES_MAX:
            self._odd_nodes.add(report.node_id)
            log.warning("a node describes itself in a way that cannot be kept; the rest is", node_id=report.node_id)
        return await self._services.nodes.heartbeat(plainer, deadline_ms)

    async def report_sandbox_event(self, request: v1.ReportSandboxEventRequest) -> v1.ReportSandboxEventResponse:
        """Never fails: a node sends an event once and can only log an error."""
        events = codec.events_from(request.events)
        node_id, instance_id = request.node_id, request.service_instance_id
        try:
            for start in range(0, len(events), EVENTS_MAX):
                await self._services.nodes.record_events(node_id, instance_id, events[start : start + EVENTS_MAX])
        except (errors.NotFound, errors.InvalidRequest, errors.Conflict) as error:
            log.debug("sandbox events were not counted", node_id=node_id, detail=error.detail)
        except errors.SchedulerError as error:
            log.warning("sandbox events were lost", node_id=node_id, detail=error.full_detail)
        return v1.ReportSandboxEventResponse()

    async def unregister_node(self, request: v1.UnregisterNodeRequest) -> v1.UnregisterNodeResponse:
        instance_id: str | None = request.service_instance_id
        if trim(request.service_instance_id):
            instance_id = text.clean_id(request.service_instance_id)
        try:
            await self._services.nodes.unregister(request.node_id, instance_id)
        except errors.Blank:
            raise
        except (errors.NotFound, errors.InvalidRequest):
            log.debug("an unknown node unregistered", node_id=request.node_id)
        return v1.UnregisterNodeResponse()

    # ── peers and artifacts ──────────────────────────────────────────────────

    async def list_p2p_peers(self, request: v1.ListP2pPeersRequest) -> v1.ListP2pPeersResponse:
        try:
            peers = await self._services.artifacts.peers(request.cluster_id, request.backend, request.exclude_node_id)
        except errors.InvalidRequest:
            peers = ()
        return v1.ListP2pPeersResponse(peers=codec.peers_to(peers))

    async def record_p2p_artifact(self, request: v1.RecordP2pArtifactRequest) -> v1.RecordP2pArtifactResponse:
        with _unlistable_is_unlisted():
            await self._services.artifacts.record(_artifact_key(request), request.node_id)
        return v1.RecordP2pArtifactResponse()

    async def forget_p2p_artifact(self, request: v1.ForgetP2pArtifactRequest) -> v1.ForgetP2pArtifactResponse:
        try:
            await self._services.artifacts.forget(_artifact_key(request), request.node_id)
        except errors.Blank:
            raise
        except errors.InvalidRequest:
            pass  # an invalid artifact was never recorded, so forgetting it succeeds
        return v1.ForgetP2pArtifactResponse()

    async def lookup_p2p_artifact(self, request: v1.LookupP2pArtifactRequest) -> v1.LookupP2pArtifactResponse:
        try:
            peers = await self._services.artifacts.lookup(_artifact_key(request), request.exclude_node_id)
        except errors.Blank:
            raise
        except errors.InvalidRequest:
            peers = ()
        return v1.LookupP2pArtifactResponse(peers=codec.peers_to(peers))


def _report_deadline_ms() -> int | None:
    """The report must be installed before this: later the node has sent another one."""
    left = left_ms()
    return None if left is None else max(0, round(left))


@contextmanager
def _unlistable_is_unlisted() -> Iterator[None]:
    """An invalid node id is in no list, so it is answered with the text that nodes know."""
    try:
        yield
    except errors.Blank:
        raise
    except errors.InvalidRequest as error:
        if any(each["field"] == "node_id" for each in error.facts["errors"]):
            raise invalid("node is not in scheduler node list") from None
        raise


def _artifact_key(
    request: v1.RecordP2pArtifactRequest | v1.ForgetP2pArtifactRequest | v1.LookupP2pArtifactRequest,
) -> ArtifactKey:
    return ArtifactKey(request.cluster_id, request.backend, request.key)
