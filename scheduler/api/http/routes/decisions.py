"""The last decisions."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import PastDecisionsAnswer
from scheduler.api.http.fields import PAGE_DEFAULT, Cursor, OptionalId, PageLimit
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import decision_entry_view
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
