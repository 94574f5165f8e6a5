"""Decides which CPU template a node is sent in the answer to its report.

A cluster has a common template as soon as every observed node has sent its own. It is sent to each node that sends
one, and to all others for a minute after it was computed (at least twice), because a node never confirms that it
received it; receiving it again changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.node import Heartbeat
from scheduler.errors import SchedulerError
from scheduler.observability.logging import get_logger
from scheduler.service.cpu_config import UnreadableCpuConfig, intersect

if TYPE_CHECKING:
    from scheduler.ledger.cpu_configs import CpuConfigAnswer, CpuConfigStore

log = get_logger("scheduler.cpu_configs")

# When the inputs keep changing, the next report computes the template.
_ATTEMPTS = 3


class CpuConfigs:
    def __init__(self, store: CpuConfigStore) -> None:
        self._store = store

    async def after_heartbeat(self, heartbeat: Heartbeat, generation: int, *, due: bool = True) -> str:
        """The template for the answer to this installed report; "" when nothing changes for the node.

        `due` False: the ledger already answered that a report without a template is sent nothing. A failure is
        raised only for a report that carries a template: the node sends it until one report succeeds, so success
        must mean that the ledger has it."""
        text = heartbeat.machine_info.cpu_config_json if heartbeat.machine_info else ""
        if not text and not due:
            return ""
        try:
            return await self._template_for(heartbeat, generation, text)
        except SchedulerError as error:
            if text:
                raise
            log.warning("no CPU template this time", node_id=heartbeat.node_id, detail=error.detail)
            return ""

    async def _template_for(self, heartbeat: Heartbeat, generation: int, text: str) -> str:
        for _ in range(_ATTEMPTS):
            answer = await self._store.report(heartbeat.node_id, heartbeat.cluster_id, generation, text)
            if answer.holders:
                answer = await self._compute(heartbeat, answer, carried=bool(text))
            if not answer.changed:
                return answer.send
        return ""

    async def _compute(self, heartbeat: Heartbeat, asked: CpuConfigAnswer, *, carried: bool) -> CpuConfigAnswer:
        texts = await self._store.texts(asked.holders)
        if texts is None:
            return type(asked)(changed=True)
        try:
            template = intersect(texts)
        except UnreadableCpuConfig as error:
            # Stored as failed until the inputs change, because computing it again would fail again.
            log.warning("no common CPU template", cluster_id=heartbeat.cluster_id, detail=str(error))
            template = ""
        else:
            log.info("common CPU template computed", cluster_id=heartbeat.cluster_id, distinct=len(texts))
        return await self._store.install(
            heartbeat.node_id, heartbeat.cluster_id, carried=carried, version=asked.version, text=template
        )
