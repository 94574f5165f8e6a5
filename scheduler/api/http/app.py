"""Builds the HTTP application."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

import scheduler
from scheduler.access.policy import OPEN, AccessPolicy
from scheduler.api.http.access import check_browser
from scheduler.api.http.dispatch import Dispatch
from scheduler.api.http.edge import Edge
from scheduler.api.http.media import answer, wants_msgpack
from scheduler.api.http.openapi import document
from scheduler.api.http.options import HttpOptions
from scheduler.api.http.route import Provided, problem_response
from scheduler.api.http.routes import (
    agreement,
    artifacts,
    bindings,
    decisions,
    groups,
    heartbeats,
    nodes,
    operating,
    pages,
    placement,
    reservations,
    templates,
    warm_keys,
)
from scheduler.errors import Forbidden
from scheduler.observability.metrics import PAGE_CONTENT_TYPE
from scheduler.service import Services

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

# Routes are matched in this order, the most frequent first.
_ROUTERS = (
    *(placement, heartbeats, reservations, bindings, nodes, templates, groups, artifacts, agreement, decisions),
    *(warm_keys, operating, pages),
)


class SchedulerApp(FastAPI):
    """Every request passes the edge, which sends it straight to its endpoint; only what has none goes through the
    framework's layers."""

    edge: Edge
    provided: Provided

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self.edge(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)


def create_app(
    services: Services,
    *,
    options: HttpOptions | None = None,
    access: AccessPolicy | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The HTTP application over these services. `access` None: everyone may call everything.
    `lifespan` opens and closes what the services stand on."""
    options = options or HttpOptions()
    app = SchedulerApp(
        title="agentenv-scheduler",
        version=scheduler.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={HTTPException: _unrouted},
    )
    app.provided = Provided(services, options, access or OPEN)
    for noun in _ROUTERS:
        app.router.routes.extend(noun.router.routes)
    app.edge = Edge(Dispatch(app.router.routes, app.framework), services.metrics, options)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


def create_metrics_app(services: Services, access: AccessPolicy = OPEN) -> ASGIApp:
    """Answers every path with the metrics page, as AgentENV's metrics port does."""

    async def metrics_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await metrics_page(Request(scope))(scope, receive, send)

    def metrics_page(request: Request) -> Response:
        try:
            check_browser(request, access)
        except Forbidden as foreign:
            return problem_response(foreign, request)
        return Response(services.overview.page(), media_type=PAGE_CONTENT_TYPE)

    return metrics_app


async def _unrouted(request: Request, error: Exception) -> Response:
    """Answers an unknown path or method with a problem."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
    status = error.status_code
    headers = {"Allow": ", ".join(_allowed_methods(request))} if status == 405 else None
    content: dict[str, Any] = {
        "type": f"urn:agentenv-scheduler:problem:{'method_not_allowed' if status == 405 else 'not_found'}",
        "title": "Method not allowed" if status == 405 else "Not found",
        "status": status,
        "detail": "there is no such call at this path" if status == 405 else "there is nothing at this path",
        "code": "method_not_allowed" if status == 405 else "not_found",
    }
    return answer(content, packed=wants_msgpack(request), status=status, headers=headers, problem=True)


def _allowed_methods(request: Request) -> list[str]:
    allowed: set[str] = set()
    for route in request.app.router.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            allowed |= getattr(route, "methods", None) or set()
    return sorted(allowed)
