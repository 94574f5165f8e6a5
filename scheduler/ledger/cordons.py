"""Cordons: which running processes of nodes take nothing new, and how a lost ledger gets that back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from scheduler.errors import InstanceMismatch, NotFound
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

# Node id → the instance that is cordoned.
Cordons = Mapping[str, str]


class _PutBack(StrEnum):
    NO = ""
    REMEMBERED = "remembered"
    TOLD = "told"


class CordonStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        # Node id → its instance, and whether that is cordoned: what this process was told. Membership removes what its
        # remembered list contains.
        self.recent_changes: dict[str, tuple[str, bool]] = {}

    async def set(self, node_id: str, service_instance_id: str, *, cordoned: bool) -> bool:
        """Keep new sandboxes off a node, or let them on again, while this instance reports. Returns whether that is
        new. Raises NotFound, InstanceMismatch."""
        status, told = await self._run(node_id, service_instance_id, cordoned, _PutBack.NO)
        if status == "unobserved":
            raise NotFound("observed node not found")
        if status == "mismatch":
            raise InstanceMismatch("service instance mismatch", reporting_instance_id=told)
        self.recent_changes[node_id] = (service_instance_id, cordoned)
        return told == "1"

    async def put_back(self, remembered: Cordons) -> None:
        """Restore cordons after a loss, once their nodes are listed and before anything is placed. A later change that
        was made through this process overrides what it remembered. Nodes and processes that are gone are skipped."""
        recent = dict(self.recent_changes)
        for node_id, instance in remembered.items():
            if node_id not in recent:
                await self._run(node_id, instance, True, _PutBack.REMEMBERED)
        for node_id, (instance, cordoned) in recent.items():
            await self._run(node_id, instance, cordoned, _PutBack.TOLD)

    async def _run(self, node_id: str, instance: str, cordoned: bool, put_back: _PutBack) -> tuple[str, str]:
        """The status, and the rest of the reply."""
        status, reply = await self._runner.run(
            "cordon_node", node_id, instance, int(cordoned), put_back.value, durable=True
        )
        return status, codec.text(reply[0]) if reply else ""
