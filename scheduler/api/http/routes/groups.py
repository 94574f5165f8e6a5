"""Open placement groups."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import Answer
from scheduler.api.http.fields import PAGE_DEFAULT, Cursor, PageLimit
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import group_view

router = noun_router("groups")


class GroupAnswer(Answer):
    key: str
    node_id: str
    sandbox_count: int
    cpu_count: int
    memory_mb: int
    max_sandbox_count: int
    max_cpu_count: int
    max_memory_mb: int
    opened_at_ms: int
    sequence: int


class GroupsAnswer(Answer):
    total: int
    groups: list[GroupAnswer]
    cursor: str | None


@router.get("/v1/groups", response_model=GroupsAnswer, summary="Open groups, most recently used first")
@reach(FOR_GATEWAYS)
async def list_groups(call: Call, limit: PageLimit = PAGE_DEFAULT, cursor: Cursor | None = None) -> Any:
    services = call.services
    total, groups, next_cursor = await services.measured("list_groups", services.groups.list(limit, cursor))
    return {"total": total, "groups": [group_view(group) for group in groups], "cursor": next_cursor}
