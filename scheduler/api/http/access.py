"""Identifies the caller, checks its role, and refuses requests that browsers send for pages of other sites."""

from __future__ import annotations

from starlette.requests import Request

from scheduler.access.policy import AccessPolicy
from scheduler.access.roles import Principal, Role
from scheduler.errors import InvalidRequest, Unauthorized


def identify(request: Request, roles: frozenset[Role]) -> Principal:
    """The caller. Raises Unauthorized without a known key, Forbidden when its role may not make this call."""
    access: AccessPolicy = request.scope["app"].state.access
    try:
        authorization, api_key = single_header(request, "Authorization"), single_header(request, "X-API-Key")
    except InvalidRequest as twice:
        raise Unauthorized(twice.detail) from None
    return access.identify(roles, authorization, api_key)


def check_browser(request: Request, access: AccessPolicy) -> None:
    """Raises Forbidden for a request that a browser sent for a page of another site."""
    headers = request.headers
    access.check_browser(headers.get("host"), headers.get("origin"))


def single_header(request: Request, name: str) -> str | None:
    """The header's value; None without one. Raises InvalidRequest when it is given twice."""
    given = request.headers.getlist(name)
    if len(given) > 1:
        raise InvalidRequest.field(name, f"{len(given)} of them", "given once")
    return given[0] if given else None
