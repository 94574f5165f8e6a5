"""The size of a sandbox by its template."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.domain.limits import PAGE_MAX
from scheduler.domain.sandbox import Template
from scheduler.errors import Conflict, NotFound
from scheduler.ledger import codec
from scheduler.ledger.configured import Configured, ConfiguredBy
from scheduler.ledger.runner import Runner

CONFIGURED_A_STEP = 200


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
            raise _full(reply)

    async def configure(self, templates: Mapping[str, Template], by: ConfiguredBy) -> Configured:
        """Declare the templates of a replica's configuration, and forget those that only an earlier one declared.

        An empty table forgets nothing that a configuration of the same revision declared. Raises Conflict as `put`."""
        removed: list[str] = []
        kept: list[str] = []
        sizes = [(each.template_id, each.cpu_count, each.memory_mb) for each in templates.values()]
        at_most = by.revision if templates else by.revision - 1
        leaving = [
            (template_id,)
            for template_id, revision in (await self._configured()).items()
            if template_id not in templates and revision <= at_most
        ]
        for declared, parts in ((True, sizes), (False, leaving)):
            for first in range(0, len(parts), CONFIGURED_A_STEP):
                step = parts[first : first + CONFIGURED_A_STEP]
                count = len(step) if declared else 0
                arguments = [part for entry in step for part in entry]
                status, reply = await self._runner.run(
                    "configure_templates", by.replica_id, by.revision, count, *arguments, durable=True
                )
                if status == "outdated":
                    return Configured(outdated=True)
                if status == "full":
                    raise _full(reply)
                removed += map(codec.text, reply[0])
                kept += map(codec.text, reply[1])
        return Configured(tuple(removed), tuple(kept))

    async def _configured(self) -> dict[str, int]:
        """Template → the revision of the last configuration that declared it; -1 for one that is listed alone."""
        client, start = self._runner.client, "-"
        found: dict[str, int] = {}
        while ids := [
            codec.text(template_id)
            for template_id in await client.command(
                "ZRANGEBYLEX", self._keys.templates, start, "+", "LIMIT", 0, PAGE_MAX
            )
        ]:
            hashes = await client.pipeline(
                [("HMGET", self._keys.template(each), "source", "configured") for each in ids]
            )
            for template_id, (source, revision) in zip(ids, hashes, strict=True):
                if source is None or revision:
                    found[template_id] = -1 if source is None else int(revision)
            start = f"({ids[-1]}"
        return found

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


def _full(reply: list[bytes]) -> Conflict:
    return Conflict(f"the ledger holds {codec.text(reply[0])} templates already; delete some first")
