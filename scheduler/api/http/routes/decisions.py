"""The last decisions, and who did what."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from scheduler.access.roles import FOR_ADMINS, FOR_GATEWAYS
from scheduler.api.http.answers import Answer, OverLimitAnswer
from scheduler.api.http.fields import PAGE_DEFAULT, Cursor, OptionalId, PageLimit
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import act_view, decision_entry_view
from scheduler.domain.journal import DecisionQuery

router = noun_router("decisions")


class PastDecisionAnswer(Answer):
    instant_ms: int = Field(description="when it was made, in the ledger's time")
    outcome: Literal["placed", "refused"] = Field(description="whether a node was chosen")
    reason: str | None = Field(description="of a refusal: the reason that kept most nodes out")
    reasons: dict[str, int] = Field(description="of a refusal: nodes by the first reason that kept each out")
    over_limit: OverLimitAnswer | None = Field(description="of a refusal: what kept most nodes out, in figures")
    hint: dict[str, Any] | None = Field(description="what was asked for; long texts are cut")
    node_id: str | None = Field(description="the node that was chosen")
    reservation_id: str | None = Field(description="what holds the capacity")
    degraded: bool
    caller: str = Field(description="the name of the caller's API key")
    request_id: str
    strategy: str = Field(description="the strategy in force")


class PastDecisionsAnswer(Answer):
    decisions: list[PastDecisionAnswer] = Field(description="newest first")
    cursor: str | None


class ActAnswer(Answer):
    instant_ms: int = Field(description="when, in the ledger's time")
    actor: str = Field(description="the name of the API key, or of the replica for its settings")
    act: str = Field(description="what was done: node.put, nodes.replace, node.remove, node.cordon, settings.put, …")
    subject: str = Field(description="to what: an id")
    details: dict[str, Any] = Field(description="how")


class AuditAnswer(Answer):
    acts: list[ActAnswer] = Field(description="newest first")
    cursor: str | None


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
