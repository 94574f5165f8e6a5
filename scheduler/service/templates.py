"""Templates: the size of a sandbox by its template."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.domain.limits import MEMORY_MB_MAX, PAGE_DEFAULT
from scheduler.domain.sandbox import Template
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics
from scheduler.service.checks import clean_id, clean_limit, clean_optional_id, uint32, whole_number

if TYPE_CHECKING:
    from scheduler.store.templates import TemplateStore

log = get_logger("scheduler.templates")


class TemplateService:
    def __init__(self, store: TemplateStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    async def put(self, template: Template) -> None:
        """Creations from this template are projected with this size from now on; 0 means unknown."""
        uint32("cpu_count", template.cpu_count)
        whole_number("memory_mb", template.memory_mb, MEMORY_MB_MAX)
        template = replace(template, template_id=clean_id("template_id", template.template_id))
        with self._metrics.ledger_call("put_template"):
            await self._store.put(template)
        log.info("template declared", template_id=template.template_id)

    async def get(self, template_id: str) -> Template:
        template_id = clean_id("template_id", template_id)
        with self._metrics.ledger_call("get_template"):
            return await self._store.get(template_id)

    async def delete(self, template_id: str) -> None:
        template_id = clean_id("template_id", template_id)
        with self._metrics.ledger_call("delete_template"):
            await self._store.delete(template_id)
        log.info("template deleted", template_id=template_id)

    async def list(
        self, limit: int = PAGE_DEFAULT, cursor: str | None = None
    ) -> tuple[tuple[Template, ...], str | None]:
        cursor = clean_optional_id("cursor", cursor or "") or None
        with self._metrics.ledger_call("list_templates"):
            return await self._store.list(limit=clean_limit(limit), cursor=cursor)
