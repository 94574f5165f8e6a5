"""Health, readiness, metrics and the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from scheduler.access.roles import FOR_ADMINS, FOR_EVERYONE
from scheduler.api.http.access import identify
from scheduler.api.http.answers import Answer
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.observability.metrics import PAGE_CONTENT_TYPE

router = noun_router("operating")


class HealthAnswer(Answer):
    status: Literal["ok"]


class RedisReplicasAnswer(Answer):
    """Nothing is placed while fewer are online than wanted."""

    online: int = Field(description="when Redis was last asked")
    wanted: int = Field(description="the setting `durability.wait_replicas`")


class ReadyAnswer(Answer):
    status: Literal["ready"]
    settings: dict[str, Any]
    redis_replicas: RedisReplicasAnswer | None = Field(description="null where placements wait for none")


@router.get("/healthz", response_model=HealthAnswer, summary="The process runs")
@reach(FOR_EVERYONE)
async def check_health(call: Call) -> Any:
    return {"status": "ok"}


@router.get("/readyz", response_model=ReadyAnswer, summary="This replica may be sent traffic")
@reach(FOR_EVERYONE)
async def check_readiness(call: Call) -> Any:
    readiness = await call.services.readiness.check()
    return {"status": "ready", "settings": readiness.settings, "redis_replicas": readiness.redis_replicas}


@router.get("/metrics", include_in_schema=False)
@reach(FOR_EVERYONE)
async def metrics(call: Call) -> Any:
    if call.options.metrics_need_admin:
        identify(call, call.access, FOR_ADMINS)
    return Response(call.services.overview.page(), media_type=PAGE_CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
@reach(FOR_EVERYONE)
async def openapi(call: Call) -> Any:
    document: dict[str, Any] = call.scope["app"].openapi()
    return document
