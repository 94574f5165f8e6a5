"""The last decisions, and who did what."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_ADMINS, FOR_GATEWAYS
from scheduler.api.http.answers import AuditAnswer, PastDecisionsAnswer
from scheduler.api.http.fields import PAGE_DEFAULT, Cursor, OptionalId, PageLimit
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import act_view, decision_entry_view
from scheduler.service.decisions import DecisionQuery

router = noun_router("decisions")


@router.get("/v1/decisions", response_model=PastDecisionsAnswer, summary="The last decisions, newest first")
@reach(FOR_GATEWAYS)
async def list_decisions(
    call: Call,
    reason: OptionalId = "",
    node_id: OptionalId = "",
    caller: OptionalId = "",
    limit: PageLimit = PAGE_DEFAULT,
    cursor: Cursor | None = None,
) -> Any:
    found, next_cursor = await call.services.decisions.page(DecisionQuery(reason, node_id, caller), limit, cursor)
    return {"decisions": [decision_entry_view(entry) for entry in found], "cursor": next_cursor}


@router.get("/v1/audit", response_model=AuditAnswer, summary="Who did what, newest first")
@reach(FOR_ADMINS)
async def list_acts(call: Call, limit: PageLimit = PAGE_DEFAULT, cursor: Cursor | None = None) -> Any:
    found, next_cursor = await call.services.audit.page(limit, cursor)
    return {"acts": [act_view(entry) for entry in found], "cursor": next_cursor}
