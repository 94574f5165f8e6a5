"""The node list, and what nodes tell."""

from __future__ import annotations

from collections.abc import Iterable

from agentenv_scheduler_client._async.calls import AsyncCalls
from agentenv_scheduler_client.asking import Patience, Question, given, nothing, path
from agentenv_scheduler_client.catalog import SandboxEvent
from agentenv_scheduler_client.nodes import (
    DiscoveryState,
    Heartbeat,
    HeartbeatResult,
    ListedCounts,
    ListedNode,
    Node,
    NodeAddress,
    NodeStatus,
)
from agentenv_scheduler_client.pages import NodePage, events_counted
from agentenv_scheduler_client.reading import body_of, read


class AsyncNodes:
    """Reached as `client.nodes`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, cluster_id: str = "") -> tuple[Node, ...]:
        """Every listed node, in id order."""
        found: tuple[Node, ...] = ()
        cursor: str | None = None
        while True:
            page = await self._page(given(cluster_id=cluster_id, cursor=cursor))
            found += page.nodes
            cursor = page.cursor
            if cursor is None:
                return found

    async def page(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        status: NodeStatus | None = None,
        sort: str = "",
        label: str = "",
        cluster_id: str = "",
    ) -> NodePage:
        """A page; `limit` is at most 1,000. `sort`: node_id, pressure, pending, sandbox_count, cpu_count, memory_bytes
        or last_seen_ms; `-` before it reverses the order. `label`: name=value, several separated by commas. Servers of
        version 0.1 refuse this."""
        wanted = None if status is None else str(status)
        asked = given(cursor=cursor, status=wanted, sort=sort, label=label, cluster_id=cluster_id)
        return await self._page({"limit": str(limit), **asked})

    async def _page(self, params: dict[str, str]) -> NodePage:
        return await self._calls.ask(Question("GET", path("nodes"), params=params), lambda a: read(NodePage, a))

    async def get(self, node_id: str) -> Node:
        """One. Raises NotFound."""
        return await self._calls.ask(Question("GET", path("nodes", node_id)), lambda a: read(Node, a))

    async def put(
        self, node: NodeAddress, state: DiscoveryState = DiscoveryState.ACTIVE, *, labels: dict[str, str] | None = None
    ) -> ListedNode:
        """Add, move, label or drain a node; without `labels` those told before stay. For keys of role admin, as
        `replace` and `remove`. Raises Conflict when its labels would make too many label sets."""
        body = {"endpoint": node.endpoint, "state": str(state), **given(labels=labels)}
        question = Question("PUT", path("nodes", node.node_id), body)
        return await self._calls.ask(question, lambda a: read(ListedNode, a))

    async def replace(self, active: Iterable[NodeAddress], lingering: Iterable[NodeAddress] = ()) -> ListedCounts:
        """Make these the whole list, in one step: who is not in it is removed."""
        body = {
            name: [{"id": node.node_id, "endpoint": node.endpoint} for node in nodes]
            for name, nodes in (("active", active), ("lingering", lingering))
        }
        return await self._calls.ask(Question("PUT", path("nodes"), body), lambda a: read(ListedCounts, a))

    async def cordon(self, node_id: str, service_instance_id: str) -> None:
        """Place nothing new on it while this process runs. Raises NotFound, Conflict when another process reports."""
        await self._cordon("cordon", node_id, service_instance_id)

    async def uncordon(self, node_id: str, service_instance_id: str) -> None:
        """Place on it again."""
        await self._cordon("uncordon", node_id, service_instance_id)

    async def _cordon(self, call: str, node_id: str, service_instance_id: str) -> None:
        body = {"service_instance_id": service_instance_id}
        await self._calls.ask(Question("POST", path("nodes", node_id, call), body), nothing)

    async def remove(self, node_id: str) -> None:
        """Take it off the list."""
        await self._calls.ask(Question("DELETE", path("nodes", node_id), params={"remove": "true"}), nothing)

    async def unregister(self, node_id: str, service_instance_id: str) -> None:
        """Forget its report and bindings; it stays listed. Raises Conflict when another instance has reported since."""
        params = {"service_instance_id": service_instance_id}
        await self._calls.ask(Question("DELETE", path("nodes", node_id), params=params), nothing)

    async def heartbeat(self, node_id: str, heartbeat: Heartbeat) -> HeartbeatResult:
        """Tell one report. Asked once: a node that was not answered samples anew instead of telling old figures."""
        question = Question("POST", path("nodes", node_id, "heartbeat"), body_of(heartbeat))
        once = self._calls.patient(Patience(self._calls.patience.seconds, attempts=1))
        return await once.ask(question, lambda a: read(HeartbeatResult, a))

    async def report_events(self, node_id: str, service_instance_id: str, events: Iterable[SandboxEvent]) -> int:
        """Tell what happened to sandboxes, at most 1,024 events at once. Answers how many of them were new."""
        body = {"service_instance_id": service_instance_id, "events": [body_of(event) for event in events]}
        return await self._calls.ask(Question("POST", path("nodes", node_id, "events"), body), events_counted)
