"""Health, readiness, metrics, the OpenAPI document, and the two web pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import Response

from scheduler.access.roles import FOR_ADMINS, FOR_EVERYONE
from scheduler.api.http.access import identify
from scheduler.api.http.answers import HealthAnswer, ReadyAnswer
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.observability.metrics import PAGE_CONTENT_TYPE

router = noun_router("operating")

_PAGES = Path(__file__).parent.parent
CONSOLE = (_PAGES / "console.html").read_bytes()
DOCS = (_PAGES / "docs.html").read_bytes()
# Only the page itself may load or run, and it may connect only to its own origin.
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@router.get("/healthz", response_model=HealthAnswer, summary="The process runs")
@reach(FOR_EVERYONE)
async def check_health(call: Call) -> Any:
    return {"status": "ok"}


@router.get("/readyz", response_model=ReadyAnswer, summary="This replica may be sent traffic")
@reach(FOR_EVERYONE)
async def check_readiness(call: Call) -> Any:
    readiness = await call.services.readiness.check()
    return {"status": "ready", "settings": readiness.settings}


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


@router.get("/", include_in_schema=False)
@reach(FOR_EVERYONE)
async def console(call: Call) -> Any:
    return _page(CONSOLE)


@router.get("/docs", include_in_schema=False)
@reach(FOR_EVERYONE)
async def docs(call: Call) -> Any:
    return _page(DOCS)


def _page(content: bytes) -> Response:
    headers = {"Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)
