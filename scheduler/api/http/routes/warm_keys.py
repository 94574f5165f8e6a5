"""Which images and templates are warm on which nodes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import Answer
from scheduler.api.http.fields import PAGE_DEFAULT, OptionalGroupKey, OptionalId, PageLimit, PlaceCursor
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import warm_node_view
from scheduler.domain.limits import GROUP_KEY_BYTES_MAX
from scheduler.service.checks import clean_id, clean_optional_id

router = noun_router("warm keys")


class WarmKeyAnswer(Answer):
    key: str = Field(description="image:… or template:…")
    sequence: int = Field(description="the ledger's order when the node was given it last: the higher, the later")


class WarmNodeAnswer(Answer):
    node_id: str
    keys: list[WarmKeyAnswer] = Field(description="what it was given last, the latest first")


class WarmKeysAnswer(Answer):
    slack: float | None = Field(description="affinity.slack in force; null: off, and nothing is told")
    nodes: list[WarmNodeAnswer] = Field(description="those with warm keys, in id order; of one key, the latest first")
    cursor: str | None


@router.get("/v1/warm-keys", response_model=WarmKeysAnswer, summary="Which images and templates are warm where")
@reach(FOR_GATEWAYS)
async def list_warm_keys(
    call: Call,
    key: OptionalGroupKey = "",
    node_id: OptionalId = "",
    limit: PageLimit = PAGE_DEFAULT,
    cursor: PlaceCursor = "",
) -> Any:
    ledger = call.services.ledger
    wanted = clean_id("key", key, GROUP_KEY_BYTES_MAX) if key else ""
    of_node = clean_optional_id("node_id", node_id)
    with call.services.metrics.ledger_call("list_warm_keys"):
        settings = await ledger.settings.get()
        slack = settings and settings[0].affinity.slack
        if slack is None:
            # What was noted before it was switched off is looked at by no placement.
            return {"slack": None, "nodes": [], "cursor": None}
        nodes, next_cursor = await ledger.warm_keys.list(wanted, of_node, limit, cursor)
    return {"slack": slack / 1000, "nodes": [warm_node_view(node) for node in nodes], "cursor": next_cursor}
