"""Nodes: the discovered list, heartbeats and sandbox events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.node import DiscoveryState, Heartbeat, HeartbeatResult, Node, NodeAddress, NodeQuery
from scheduler.domain.sandbox import SandboxEvent
from scheduler.errors import NodeNotListed
from scheduler.ledger.node_pages import SORTS
from scheduler.observability.call_log import CallLog
from scheduler.observability.logging import get_logger, writes_debug
from scheduler.observability.metrics import Metrics
from scheduler.service.checks import clean_endpoint, clean_id, clean_labels, clean_optional_id, refuse, required
from scheduler.service.reports import clean_events, clean_heartbeat
from scheduler.service.unlisted import UnlistedResources

if TYPE_CHECKING:
    from scheduler.ledger.nodes import NodeStore
    from scheduler.service.cpu_configs import CpuConfigs

log = get_logger("scheduler.nodes")


class NodeService:
    def __init__(
        self,
        store: NodeStore,
        metrics: Metrics,
        cpu_configs: CpuConfigs,
        calls: CallLog,
        unlisted: UnlistedResources,
    ) -> None:
        self._store = store
        self._unlisted = unlisted
        self._calls = calls
        self._metrics = metrics
        self._cpu_configs = cpu_configs

    async def set(
        self, node_id: str, endpoint: str, state: DiscoveryState, labels: Mapping[str, str] | None = None
    ) -> NodeAddress:
        """Lists the node: adds it, moves it to another endpoint, labels it, or drains it (`lingering`). Returns it as
        listed. Raises Conflict when its labels would make too many label sets."""
        required("node_id and endpoint are required", node_id=node_id, endpoint=endpoint)
        node_id, endpoint = clean_id("node_id", node_id), clean_endpoint("endpoint", endpoint)
        labels = None if labels is None else clean_labels("labels", labels)
        with self._metrics.ledger_call("set_node"):
            await self._store.set(node_id, endpoint, state, labels)
        log.info("node listed", node_id=node_id, endpoint=endpoint, state=state.value)
        return NodeAddress(node_id, endpoint, labels)

    async def replace(
        self, active: Sequence[NodeAddress], lingering: Sequence[NodeAddress], *, of_kubernetes: bool = False
    ) -> tuple[int, int]:
        """Replaces the discovered list in one step; an id in both lists drains. `of_kubernetes`: labels are those of
        Kubernetes, and nodes that replicas' configurations list stay listed. Returns how many are active and how many
        drain."""
        active, lingering = _clean_addresses("active", active), _clean_addresses("lingering", lingering)
        with self._metrics.ledger_call("replace_nodes"):
            unlabelled = await self._store.replace(active, lingering, of_kubernetes=of_kubernetes)
        if unlabelled:
            log.warning("nodes stay without labels: there are too many label sets", node_ids=unlabelled[:20])
        draining = {node.node_id for node in lingering}
        counts = sum(node.node_id not in draining for node in active), len(draining)
        log.info("node list replaced", active=counts[0], lingering=counts[1])
        return counts

    async def unregister(self, node_id: str, service_instance_id: str | None) -> None:
        """Forgets the node's report and bindings; the node stays listed. Raises InstanceMismatch when another
        instance reports. `service_instance_id` None: one that no report can have had."""
        given = {"node_id": node_id}
        if service_instance_id is not None:
            given["service_instance_id"] = service_instance_id
        required("node_id and service_instance_id are required", **given)
        node_id = clean_id("node_id", node_id)
        if service_instance_id is not None:
            service_instance_id = clean_id("service_instance_id", service_instance_id)
        with self._metrics.ledger_call("unregister_node"):
            await self._store.unregister(node_id, service_instance_id or "")
        log.info("node unregistered", node_id=node_id, service_instance_id=service_instance_id)

    async def cordon(self, node_id: str, service_instance_id: str, *, cordoned: bool) -> bool:
        """Nothing new is placed on the node, or is again, while this instance reports. Returns whether that is new.
        Raises NotFound for one that has not reported, InstanceMismatch when another instance reports."""
        required(
            "node_id and service_instance_id are required", node_id=node_id, service_instance_id=service_instance_id
        )
        node_id = clean_id("node_id", node_id)
        service_instance_id = clean_id("service_instance_id", service_instance_id)
        with self._metrics.ledger_call("cordon_node"):
            changed = await self._store.cordons.set(node_id, service_instance_id, cordoned=cordoned)
        log.info("node cordon", node_id=node_id, service_instance_id=service_instance_id, cordoned=cordoned)
        return changed

    async def remove(self, node_id: str) -> None:
        """Removes the node from the discovered list."""
        node_id = clean_id("node_id", node_id)
        with self._metrics.ledger_call("remove_node"):
            await self._store.remove(node_id)
        log.info("node removed", node_id=node_id)

    async def heartbeat(self, heartbeat: Heartbeat, deadline_ms: int | None = None) -> HeartbeatResult:
        """Installs one report and settles the reservations it accounts for. Raises NodeNotListed."""
        heartbeat = clean_heartbeat(heartbeat)
        try:
            with self._metrics.ledger_call("heartbeat"):
                result = await self._store.heartbeat(heartbeat, deadline_ms)
                if not result.stale:
                    template = await self._cpu_configs.after_heartbeat(
                        heartbeat, result.generation, due=result.template_due
                    )
                    if template:
                        result = replace(result, cpu_config_json=template)
        except NodeNotListed:
            self._calls.warning(log, "heartbeat of a node that is not listed", node_id=heartbeat.node_id)
            raise
        if result.contested:
            self._calls.warning(
                log,
                "listed sandboxes are kept by other nodes",
                node_id=heartbeat.node_id,
                sandbox_ids=result.contested[:10],
                count=len(result.contested),
            )
        if result.unlabelled:
            self._calls.warning(
                log,
                "a node stays without labels: there are too many label sets",
                node_id=heartbeat.node_id,
                labels=heartbeat.labels,
            )
        if heartbeat.resources:
            await self._unlisted.note(heartbeat.node_id, heartbeat.resources.keys())
        if result.stale:
            self._calls.info(log, "stale heartbeat", node_id=heartbeat.node_id, sequence=heartbeat.sequence)
        elif writes_debug():
            log.debug("heartbeat", node_id=heartbeat.node_id, generation=result.generation)
        return result

    async def get(self, node_id: str) -> Node:
        required("node_id is required", node_id=node_id)
        node_id = clean_id("node_id", node_id)
        with self._metrics.ledger_call("get_node"):
            return await self._store.get(node_id)

    async def list(self, cluster_id: str = "") -> tuple[Node, ...]:
        """In id order, nodes that never reported included; a blank cluster matches all."""
        cluster_id = clean_optional_id("cluster_id", cluster_id)
        with self._metrics.ledger_call("list_nodes"):
            return await self._store.list(cluster_id)

    async def page(self, query: NodeQuery, limit: int, cursor: str = "") -> tuple[tuple[Node, ...], str | None]:
        """At most `limit` nodes, and the cursor of the next page (None at the end)."""
        query = replace(query, cluster_id=clean_optional_id("cluster_id", query.cluster_id))
        if query.sort and query.sort.removeprefix("-") not in SORTS:
            raise refuse("sort", query.sort, f"one of {', '.join(SORTS)}, or one of them after -")
        if query.sort in ("", "node_id"):
            cursor = clean_optional_id("cursor", cursor)
        with self._metrics.ledger_call("list_nodes"):
            return await self._store.page(query, limit, cursor)

    async def addresses(self) -> tuple[NodeAddress, ...]:
        with self._metrics.ledger_call("node_addresses"):
            return await self._store.addresses()

    async def record_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> int:
        """The number of new events; an event recorded before is not counted again."""
        required(
            "node_id and service_instance_id are required", node_id=node_id, service_instance_id=service_instance_id
        )
        node_id = clean_id("node_id", node_id)
        service_instance_id = clean_id("service_instance_id", service_instance_id)
        events = clean_events(events)
        if not events:
            return 0
        with self._metrics.ledger_call("record_events"):
            counted = await self._store.record_events(node_id, service_instance_id, events)
        log.debug("sandbox events", node_id=node_id, received=len(events), counted=counted)
        return counted


def _clean_addresses(field: str, addresses: Sequence[NodeAddress]) -> tuple[NodeAddress, ...]:
    """Each id once. An id with two different endpoints or labels is refused."""
    listed: dict[str, NodeAddress] = {}
    for index, address in enumerate(addresses):
        node_id = clean_id(f"{field}.{index}.id", address.node_id)
        endpoint = clean_endpoint(f"{field}.{index}.endpoint", address.endpoint)
        labels = None if address.labels is None else clean_labels(f"{field}.{index}.labels", address.labels)
        node = NodeAddress(node_id, endpoint, labels)
        if listed.setdefault(node_id, node) != node:
            raise refuse(f"{field}.{index}.id", node_id, "listed once")
    return tuple(listed.values())
