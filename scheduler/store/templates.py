"""The size of a sandbox by its template."""

from __future__ import annotations

from scheduler.domain.sandbox import Template
from scheduler.errors import Conflict, NotFound
from scheduler.store import codec
from scheduler.store.runner import Runner


class TemplateStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._keys = runner.keys

    async def put(self, template: Template) -> None:
        """Declare a template's size. Raises Conflict when the ledger holds the maximum number of templates."""
        status, reply = await self._runner.run(
            "put_template", template.template_id, template.cpu_count, template.memory_mb, durable=True
        )
        if status == "full":
            raise Conflict(f"the ledger holds {codec.text(reply[0])} templates already; delete some first")

    async def get(self, template_id: str) -> Template:
        found = codec.texts(await self._runner.client.command("HGETALL", self._keys.template(template_id)))
        if not found:
            raise NotFound(f"template {template_id!r} is not known")
        return _template(template_id, found)

    async def delete(self, template_id: str) -> None:
        key = self._keys.template(template_id)
        removed, _ = await self._runner.client.pipeline([("DEL", key), ("ZREM", self._keys.templates, template_id)])
        if not removed:
            raise NotFound(f"template {template_id!r} is not known")

    async def list(self, limit: int = 100, cursor: str | None = None) -> tuple[tuple[Template, ...], str | None]:
        """A page in id order and the cursor of the next one (None at the end)."""
        start = f"({cursor}" if cursor else "-"
        client = self._runner.client
        ids = [
            codec.text(template_id)
            for template_id in await client.command("ZRANGEBYLEX", self._keys.templates, start, "+", "LIMIT", 0, limit)
        ]
        if not ids:
            return (), None
        hashes = await client.pipeline([("HGETALL", self._keys.template(template_id)) for template_id in ids])
        templates = tuple(
            _template(template_id, codec.texts(flat)) for template_id, flat in zip(ids, hashes, strict=True) if flat
        )
        return templates, ids[-1] if len(ids) == limit else None


def _template(template_id: str, found: dict[str, str]) -> Template:
    return Template(template_id, int(found["cpu_count"]), int(found["memory_mb"]), found.get("source", "declared"))
