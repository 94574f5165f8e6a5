"""Templates: the size of a sandbox by its template."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from scheduler.access.roles import FOR_ADMINS, FOR_GATEWAYS
from scheduler.api.http.answers import Answer
from scheduler.api.http.fields import PAGE_DEFAULT, Body, Id, IdCursor, MemoryMb, PageLimit, Uint32
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import template_view
from scheduler.domain.sandbox import Template

router = noun_router("templates")


class TemplateAnswer(Answer):
    template_id: str
    cpu_count: int
    memory_mb: int
    source: str = Field(description="declared or learned")


class TemplatesAnswer(Answer):
    templates: list[TemplateAnswer]
    cursor: str | None


class DeletedAnswer(Answer):
    deleted: str


class TemplateBody(Body):
    """0 means unknown."""

    cpu_count: Uint32
    memory_mb: MemoryMb


@router.get("/v1/templates", response_model=TemplatesAnswer, summary="A page of templates")
@reach(FOR_GATEWAYS)
async def list_templates(call: Call, limit: PageLimit = PAGE_DEFAULT, cursor: IdCursor | None = None) -> Any:
    services = call.services
    found, next_cursor = await services.measured("list_templates", services.templates.list(limit, cursor))
    return {"templates": [template_view(template) for template in found], "cursor": next_cursor}


@router.get("/v1/templates/{template_id}", response_model=TemplateAnswer, summary="One template")
@reach(FOR_GATEWAYS)
async def read_template(call: Call, template_id: Id) -> Any:
    services = call.services
    return template_view(await services.measured("get_template", services.templates.get(template_id)))


@router.put("/v1/templates/{template_id}", response_model=TemplateAnswer, summary="Declare a template's size")
@reach(FOR_ADMINS)
async def put_template(call: Call, template_id: Id, body: TemplateBody) -> Any:
    """Creations from this template are projected with this size from now on."""
    services, template = call.services, Template(template_id, body.cpu_count, body.memory_mb)
    await services.measured("put_template", services.templates.put(template))
    size = {"cpu_count": body.cpu_count, "memory_mb": body.memory_mb}
    await services.audit.note(call.principal.name, "template.put", template_id, **size)
    return template_view(template)


@router.delete("/v1/templates/{template_id}", response_model=DeletedAnswer, summary="Forget a template's size")
@reach(FOR_ADMINS)
async def delete_template(call: Call, template_id: Id) -> Any:
    services = call.services
    await services.measured("delete_template", services.templates.delete(template_id))
    await services.audit.note(call.principal.name, "template.delete", template_id)
    return {"deleted": template_id}
