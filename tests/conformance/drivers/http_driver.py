"""The scheduler over its HTTP API, called in process through ASGI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx

from scheduler.domain.node import NodeAddress, PendingTotals
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent
from tests.conformance.driver import Ask, ObservedView, Placed, Refused, Report
from tests.conformance.drivers.services_driver import ServicesDriver

# Problem code → the cases' word.
_REFUSALS = {
    "no_nodes": "no_nodes",
    "store_unavailable": "unavailable",
    "invalid_request": "invalid_argument",
    "malformed": "invalid_argument",
    "not_found": "not_found",
    "conflict": "conflict",
}
_KINDS = {"cold": "cold_sandbox", "template": "sandbox"}
_WORDS = {kind: word for word, kind in _KINDS.items()}


class HttpDriver(ServicesDriver):
    """Discovery, reports, placement and views by HTTP; only the list of peers has no route."""

    name = "http"

    async def start(self) -> None:
        from scheduler.api.http import create_app

        transport = httpx.ASGITransport(app=create_app(self.services))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://scheduler")

    async def close(self) -> None:
        await self.client.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        json: Any = None,
        not_found: str = "not_found",
        conflict: str = "conflict",
        **query: Any,
    ) -> Any:
        """The answer's JSON. `not_found` and `conflict` say what these two mean to the cases here."""
        response = await self.client.request(method, path, json=json, params=query)
        if response.is_success:
            return response.json() if response.content else None
        assert response.headers["content-type"] == "application/problem+json", response.text
        problem = response.json()
        code = _REFUSALS.get(problem["code"])
        assert code is not None, problem
        raise Refused({"not_found": not_found, "conflict": conflict}.get(code, code))

    async def set_nodes(self, active: Sequence[NodeAddress], lingering: Sequence[NodeAddress]) -> None:
        lists = {"active": active, "lingering": lingering}
        body = {name: [_to_entry(node) for node in nodes] for name, nodes in lists.items()}
        await self._call("PUT", "/v1/nodes", body)

    async def heartbeat(self, report: Report) -> str:
        body: dict[str, Any] = {"service_instance_id": report.service_instance_id, "cluster_id": report.cluster_id}
        if report.snapshot is not None:
            body["snapshot"] = {"status": "ready", **report.snapshot}
        if report.sandbox_ids is not None:
            body["sandbox_ids"] = list(report.sandbox_ids)
        if report.resources is not None:
            body["resources"] = {name: dict(load) for name, load in report.resources.items()}
        if report.labels is not None:
            body["labels"] = dict(report.labels)
        if report.p2p is not None:
            body["p2p_endpoint"] = dict(report.p2p)
        if report.machine_info is not None:
            body["machine_info"] = {"cpu_config_json": report.machine_info}
        path = f"/v1/nodes/{quote(report.node_id, safe='')}/heartbeat"
        answer = await self._call("POST", path, body, not_found="invalid_argument")
        text: str = answer["cpu_config_json"]
        return text

    async def schedule(self, ask: Ask) -> Placed:
        body: dict[str, Any] = {"lifecycle": ask.lifecycle}
        if ask.hint is not None:
            body["hint"] = _to_hint(dict(ask.hint))
        if ask.exclude:
            body["exclude_nodes"] = list(ask.exclude)
        answer = await self._call("POST", "/v1/schedule", body)
        reservation = answer["reservation"]
        return Placed(
            answer["node"]["node_id"],
            answer["node"]["endpoint"],
            reservation["reservation_id"] if reservation else None,
            answer["degraded"],
        )

    async def _node(self, node_id: str) -> dict[str, Any]:
        node: dict[str, Any] = await self._call("GET", f"/v1/nodes/{quote(node_id, safe='')}")
        return node

    async def pending(self, node_id: str) -> PendingTotals:
        pending = (await self._node(node_id))["pending"]
        return PendingTotals(pending["cpu_count"], pending["memory_bytes"], pending["sandbox_count"])

    async def open_groups(self) -> int:
        total: int = (await self._call("GET", "/v1/groups", limit=1))["total"]
        return total

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None:
        await self._call("POST", f"/v1/reservations/{reservation_id}/confirm", {"sandbox_id": sandbox_id})

    async def cancel(self, reservation_id: str, cause: str = "caller") -> None:
        await self._call("POST", f"/v1/reservations/{reservation_id}/cancel", {"cause": cause})

    async def put_template(self, template_id: str, cpu_count: int, memory_mb: int) -> None:
        body = {"cpu_count": cpu_count, "memory_mb": memory_mb}
        await self._call("PUT", f"/v1/templates/{quote(template_id, safe='')}", body)

    async def events(self, node_id: str, instance: str, events: Sequence[SandboxEvent]) -> None:
        entries = [
            {
                "sandbox_id": event.sandbox_id,
                "event_type": event.event_type.value,
                "requested_cpu": event.requested_cpu,
                "requested_memory_bytes": event.requested_memory_bytes,
            }
            for event in events
        ]
        body = {"service_instance_id": instance, "events": entries}
        await self._call("POST", f"/v1/nodes/{quote(node_id, safe='')}/events", body)

    async def record_assignment(self, sandbox_id: str, node: NodeAddress) -> None:
        body = {"node_id": node.node_id, "endpoint": node.endpoint}
        await self._call("PUT", f"/v1/bindings/{quote(sandbox_id, safe='')}", body)

    async def lookup(self, sandbox_id: str) -> str:
        answer = await self._call("GET", f"/v1/bindings/{quote(sandbox_id, safe='')}")
        node_id: str = answer["node"]["node_id"]
        return node_id

    async def unregister(self, node_id: str, instance: str) -> None:
        path = f"/v1/nodes/{quote(node_id, safe='')}"
        await self._call("DELETE", path, conflict="failed_precondition", service_instance_id=instance)

    async def cordon(self, node_id: str, instance: str, cordoned: bool) -> None:
        path = f"/v1/nodes/{quote(node_id, safe='')}/{'cordon' if cordoned else 'uncordon'}"
        await self._call("POST", path, {"service_instance_id": instance}, conflict="failed_precondition")

    async def get_node(self, node_id: str, cluster_id: str) -> ObservedView:
        node = await self._node(node_id)
        if node["last_seen_ms"] is None or cluster_id not in {"", node["cluster_id"]}:
            raise Refused("not_found")
        return ObservedView(node["node_id"], node["status"], node["endpoint"], node["snapshot"]["sandbox_count"])

    async def _nodes(self, **query: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = (await self._call("GET", "/v1/nodes", **query))["nodes"]
        return nodes

    async def list_nodes(self) -> list[str]:
        return [node["node_id"] for node in await self._nodes()]

    async def list_observed(self, cluster_id: str) -> list[str]:
        nodes = await self._nodes(**({"cluster_id": cluster_id} if cluster_id else {}))
        return [node["node_id"] for node in nodes if node["last_seen_ms"] is not None]

    async def record_artifact(self, key: ArtifactKey, node_id: str) -> None:
        body = {**_artifact(key), "node_id": node_id}
        await self._call("PUT", "/v1/artifacts", body, not_found="invalid_argument")

    async def forget_artifact(self, key: ArtifactKey, node_id: str) -> None:
        await self._call("DELETE", "/v1/artifacts", **_artifact(key), node_id=node_id)

    async def lookup_artifact(self, key: ArtifactKey, exclude: str) -> list[str]:
        answer = await self._call("GET", "/v1/artifacts", **_artifact(key), exclude_node_id=exclude)
        return [peer["node_id"] for peer in answer["peers"]]

    async def gateway_hint(self, method: str, path: str, body: bytes) -> dict[str, Any] | None:
        request = {"method": method, "path": path, "body_text": body.decode(), "strict": True}
        hint = (await self._call("POST", "/v1/hints", request))["hint"]
        return None if hint is None else _from_hint(hint)


def _artifact(key: ArtifactKey) -> dict[str, str]:
    return {"cluster_id": key.cluster_id, "backend": key.backend, "key": key.key}


def _to_entry(node: NodeAddress) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": node.node_id, "endpoint": node.endpoint}
    return entry if node.labels is None else entry | {"labels": dict(node.labels)}


def _to_hint(hint: dict[str, Any]) -> dict[str, Any]:
    renamed = {"cpu": "cpu_count"}
    values = {renamed.get(name, name): value for name, value in hint.items() if name != "kind"}
    return {"kind": _KINDS[hint["kind"]], **values}


def _from_hint(hint: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": _WORDS[hint["kind"]],
        "cpu": hint.get("cpu_count", 0),
        "memory_mb": hint.get("memory_mb", 0),
        "images": hint.get("images", []),
        "template_id": hint.get("template_id", ""),
        "metadata": hint.get("metadata", {}),
    }
