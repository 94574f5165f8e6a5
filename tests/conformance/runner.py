"""Runs the steps of one case through a driver and compares; `CaseFailed` says which step differs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent, SandboxEventType
from tests.conformance.cases import Case
from tests.conformance.driver import Ask, Driver, Placed, Refused, Report
from tests.conformance.world import World

Step = Mapping[str, Any]


class CaseFailed(AssertionError):
    """A step came out otherwise than the case says."""


def default_endpoint(node_id: str) -> str:
    return f"http://{node_id}:8000"


def to_address(entry: str | Mapping[str, Any]) -> NodeAddress:
    if isinstance(entry, str):
        return NodeAddress(entry, default_endpoint(entry))
    return NodeAddress(entry["id"], entry.get("endpoint") or default_endpoint(entry["id"]), entry.get("labels"))


class Runner:
    """One case from its first step to its last. `named` holds reservations a step gave a name."""

    def __init__(self, case: Case, driver: Driver, world: World) -> None:
        self.case = case
        self.driver = driver
        self.world = world
        self.endpoints: dict[str, str] = {}
        self.named: dict[str, str] = {}

    async def run(self) -> None:
        for number, step in enumerate(self.case.steps, 1):
            handler: Callable[[Step], Awaitable[Any]] = getattr(self, f"op_{step['op']}")
            where = f"{self.case.id} step {number} {json.dumps(step)[:300]}"
            try:
                found = await self._answer(handler, step)
            except CaseFailed as failure:
                raise CaseFailed(f"{where}: {failure}") from failure
            self._compare(step, found, where)

    async def _answer(self, handler: Callable[[Step], Awaitable[Any]], step: Step) -> Any:
        try:
            return await handler(step)
        except Refused as refusal:
            return refusal

    def _compare(self, step: Step, found: Any, where: str) -> None:
        expected = step.get("expect")
        if isinstance(found, Refused):
            # A named refusal must be the one that is expected, and nothing else may be refused.
            if not (isinstance(expected, Mapping) and expected.get("error") == found.code):
                raise CaseFailed(f"{where}: refused with {found.code}") from found.__cause__
            return
        exactly = step["op"] == "intersect_cpu_configs"
        if expected is not None and not (expected == found if exactly else _matches(expected, found)):
            raise CaseFailed(f"{where}: answered {found!r}")

    # Discovery and reports

    async def op_set_nodes(self, step: Step) -> None:
        active = [to_address(entry) for entry in step.get("active", ())]
        lingering = [to_address(entry) for entry in step.get("lingering", ())]
        self.endpoints = {node.node_id: node.endpoint for node in [*active, *lingering]}
        await self.driver.set_nodes(active, lingering)

    async def op_heartbeat(self, step: Step) -> dict[str, Any]:
        machine_info = json.dumps(step["cpu_config"]) if "cpu_config" in step else None
        if step.get("machine_info"):
            machine_info = ""
        report = Report(
            node_id=step["node"],
            service_instance_id=step.get("instance", f"svc-{step['node']}"),
            cluster_id=step.get("cluster", "c1"),
            snapshot=step.get("snapshot"),
            sandbox_ids=step.get("sandbox_ids", ()),
            p2p=step.get("p2p"),
            machine_info=machine_info,
            labels=step.get("labels"),
            resources=step.get("resources"),
        )
        return {"cpu_config": await self.driver.heartbeat(report) != ""}

    async def op_events(self, step: Step) -> None:
        events = [
            SandboxEvent(
                entry["sandbox"], SandboxEventType(entry["type"]), entry.get("cpu", 0), entry.get("memory_bytes", 0)
            )
            for entry in step["events"]
        ]
        await self.driver.events(step["node"], step.get("instance", f"svc-{step['node']}"), events)

    async def op_unregister(self, step: Step) -> None:
        await self.driver.unregister(step["node"], step["instance"])

    async def op_cordon(self, step: Step) -> None:
        await self.driver.cordon(step["node"], step.get("instance", f"svc-{step['node']}"), True)

    async def op_uncordon(self, step: Step) -> None:
        await self.driver.cordon(step["node"], step.get("instance", f"svc-{step['node']}"), False)

    async def op_put_template(self, step: Step) -> None:
        await self.driver.put_template(step["template_id"], step.get("cpu", 0), step.get("memory_mb", 0))

    # Time and faults

    async def op_advance_time(self, step: Step) -> None:
        self.world.clock.advance(step["ms"])

    async def op_fault(self, step: Step) -> None:
        assert self.world.switch is not None
        if step["store"] == "down":
            self.world.switch.down()
        else:
            self.world.switch.up()

    # Placement

    async def op_schedule(self, step: Step) -> dict[str, Any]:
        placed = await self._schedule(step)
        if "as" in step:
            assert placed.reservation_id is not None
            self.named[step["as"]] = placed.reservation_id
        if "expect_degraded" in step and placed.degraded not in {None, step["expect_degraded"]}:
            raise CaseFailed(f"degraded {placed.degraded}")
        return {"node": placed.node_id}

    async def _schedule(self, step: Step, hint: Any = None) -> Placed:
        lifecycle = step.get("lifecycle", "heartbeat")
        placed = await self.driver.schedule(Ask(hint or step.get("hint"), lifecycle, step.get("exclude", ())))
        if placed.endpoint != self.endpoints[placed.node_id]:
            raise CaseFailed(f"placed on {placed.node_id} at {placed.endpoint}")
        return placed

    async def op_schedule_many(self, step: Step) -> None:
        placed = [await self._schedule(step) for _ in range(step["count"])]
        _expect_counts(step, placed)

    async def op_schedule_concurrent(self, step: Step) -> None:
        _expect_counts(step, await asyncio.gather(*(self._schedule(step) for _ in range(step["count"]))))

    async def op_schedule_distinct_images(self, step: Step) -> dict[str, Any]:
        hints = ({"kind": "cold", "images": [f"{step['prefix']}{number}"]} for number in range(step["count"]))
        nodes = {(await self._schedule(step, hint)).node_id for hint in hints}
        return {"node": ", ".join(sorted(nodes))}

    async def op_confirm(self, step: Step) -> None:
        await self.driver.confirm(self.named[step["reservation"]], step["sandbox"])

    async def op_cancel(self, step: Step) -> None:
        await self.driver.cancel(self.named[step["reservation"]], step.get("cause", "caller"))

    async def op_refused(self, step: Step) -> None:
        """`count` creations in turn, each placed on `node`, and refused there."""
        for _ in range(step.get("count", 1)):
            placed = await self._schedule({**step, "lifecycle": "explicit"})
            if placed.node_id != step["node"]:
                raise CaseFailed(f"placed on {placed.node_id}")
            assert placed.reservation_id is not None
            await self.driver.cancel(placed.reservation_id, "node_refused")

    async def op_expect_pending(self, step: Step) -> None:
        pending = await self.driver.pending(step["node"])
        found = (pending.cpu_count, pending.memory_bytes, pending.sandbox_count)
        if found != (step["cpu"], step["memory_bytes"], step["count"]):
            raise CaseFailed(f"pending {found}")

    async def op_expect_open_groups(self, step: Step) -> None:
        if (found := await self.driver.open_groups()) != step["count"]:
            raise CaseFailed(f"{found} open groups")

    # Bindings and views

    async def op_record_assignment(self, step: Step) -> None:
        node_id = step["node"]
        endpoint = step.get("endpoint") or self.endpoints.get(node_id, default_endpoint(node_id))
        await self.driver.record_assignment(step["sandbox"], NodeAddress(node_id, endpoint))

    async def op_lookup(self, step: Step) -> dict[str, Any]:
        return {"node": await self.driver.lookup(step["sandbox"])}

    async def op_expect_status(self, step: Step) -> None:
        try:
            status = (await self.driver.get_node(step["node"], "")).status
        except Refused as refusal:
            status = "absent" if refusal.code == "not_found" else refusal.code
        if status != step["status"]:
            raise CaseFailed(f"status {status}")

    async def op_get_node(self, step: Step) -> dict[str, Any]:
        view = await self.driver.get_node(step["node"], step.get("cluster", ""))
        return {
            "node": view.node_id,
            "status": view.status,
            "endpoint": view.endpoint,
            "sandbox_count": view.sandbox_count,
        }

    async def op_list_nodes(self, step: Step) -> list[str]:
        return await self.driver.list_nodes()

    async def op_list_observed(self, step: Step) -> list[str]:
        return sorted(await self.driver.list_observed(step.get("cluster", "")))

    # Artifacts

    async def op_list_peers(self, step: Step) -> list[str]:
        return sorted(await self.driver.list_peers(step.get("cluster", "c1"), step["backend"], step["exclude"]))

    async def op_record_artifact(self, step: Step) -> None:
        await self.driver.record_artifact(_artifact_key(step), step["node"])

    async def op_forget_artifact(self, step: Step) -> None:
        await self.driver.forget_artifact(_artifact_key(step), step["node"])

    async def op_lookup_artifact(self, step: Step) -> list[str]:
        return sorted(await self.driver.lookup_artifact(_artifact_key(step), step.get("exclude", "")))

    # Pure readings

    async def op_gateway_hint(self, step: Step) -> None:
        body = step["body"]
        if isinstance(body, Mapping):
            body = body["prefix"] + body["fill"] * body["fill_count"] + body["suffix"]
        found = await self.driver.gateway_hint(step["method"], step["path"], body.encode())
        expected = step["expect_hint"]
        if (expected is None) != (found is None) or not _matches(expected or {}, found or {}):
            raise CaseFailed(f"read as {found!r}")

    async def op_intersect_cpu_configs(self, step: Step) -> Any:
        texts = step["raw_inputs"] if "raw_inputs" in step else [json.dumps(entry) for entry in step["inputs"]]
        try:
            text = await self.driver.intersect_cpu_configs(texts)
        except ValueError:
            return {"error": True}
        return json.loads(text) if text else ""


def _artifact_key(step: Step) -> ArtifactKey:
    return ArtifactKey(step.get("cluster", "c1"), step.get("backend", "iroh"), step["key"])


def _expect_counts(step: Step, placed: list[Placed]) -> None:
    counts = Counter(answer.node_id for answer in placed)
    if "expect_counts" in step and dict(counts) != step["expect_counts"]:
        raise CaseFailed(f"counts {dict(counts)}")
    for node_id, (low, high) in step.get("expect_counts_range", {}).items():
        if not low <= counts[node_id] <= high:
            raise CaseFailed(f"counts {dict(counts)}")


def _matches(expected: Any, found: Any) -> bool:
    """Objects match in the members the case names; everything else must be equal."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return all(key in found and found[key] == value for key, value in expected.items())
    return bool(expected == found)
