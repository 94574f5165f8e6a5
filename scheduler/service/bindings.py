"""Bindings: which node a running sandbox is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.node import NodeAddress
from scheduler.domain.sandbox import Binding
from scheduler.errors import AssignmentRefused
from scheduler.observability.call_log import CallLog
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics
from scheduler.service.checks import clean_id, required, trim

if TYPE_CHECKING:
    from scheduler.ledger.bindings import BindingStore

log = get_logger("scheduler.bindings")


class BindingService:
    def __init__(self, store: BindingStore, metrics: Metrics, calls: CallLog) -> None:
        self._store = store
        self._metrics = metrics
        self._calls = calls

    async def lookup(self, sandbox_id: str) -> Binding:
        """Raises NotFound when there is none, NotRebuilt while a lost ledger is being rebuilt."""
        required("sandbox_id is required", sandbox_id=sandbox_id)
        sandbox_id = clean_id("sandbox_id", sandbox_id)
        with self._metrics.ledger_call("lookup"):
            return await self._store.lookup(sandbox_id)

    async def record(self, sandbox_id: str, node: NodeAddress) -> NodeAddress:
        """Binds the sandbox to the node, and returns that. Raises AssignmentRefused unless discovery lists exactly this
        id and endpoint."""
        required("sandbox_id is required", sandbox_id=sandbox_id)
        required("node_id and endpoint are required", node_id=node.node_id, endpoint=node.endpoint)
        sandbox_id = clean_id("sandbox_id", sandbox_id)
        node = NodeAddress(clean_id("node_id", node.node_id), trim(node.endpoint))
        try:
            with self._metrics.ledger_call("record_assignment"):
                await self._store.record(sandbox_id, node)
        except AssignmentRefused:
            self._calls.warning(log, "assignment refused", sandbox_id=sandbox_id, node_id=node.node_id)
            raise
        self._calls.info(log, "assignment recorded", sandbox_id=sandbox_id, node_id=node.node_id)
        return node
