"""Which node a sandbox runs on."""

from __future__ import annotations

from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import Binding
from scheduler.errors import AssignmentRefused, FieldError
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner, missing
from scheduler.ledger.upstream_bindings import UpstreamBindings


class BindingStore:
    def __init__(self, runner: Runner, upstream: UpstreamBindings | None = None) -> None:
        self._runner = runner
        self._upstream = upstream

    async def lookup(self, sandbox_id: str) -> Binding:
        """Raises NotFound, or NotRebuilt while a lost ledger is being rebuilt."""
        status, reply = await self._runner.run("lookup_binding", sandbox_id, lagging=True)
        if status == "missing" and self._runner.client.reader is not self._runner.client:
            # A read replica may lag, so the primary decides whether a binding is missing.
            status, reply = await self._runner.run("lookup_binding", sandbox_id)
        if status == "missing":
            raise missing("sandbox", sandbox_id, reply)
        node_id, endpoint, recorded_at_ms = reply
        return Binding(sandbox_id, NodeAddress(codec.text(node_id), codec.text(endpoint)), int(recorded_at_ms))

    async def record(self, sandbox_id: str, node: NodeAddress) -> None:
        """Binds the sandbox to the node. Raises AssignmentRefused unless discovery lists the node with this
        endpoint."""
        status, reply = await self._runner.run("record_binding", sandbox_id, node.node_id, node.endpoint, durable=True)
        if status == "refused":
            raise AssignmentRefused(
                "node is not in scheduler node list",
                [FieldError("node_id", node.node_id, "a listed node with that endpoint")],
            )
        self._runner.memory.remember_changes(reply[0])
        if self._upstream is not None:
            await self._upstream.follow([sandbox_id])
