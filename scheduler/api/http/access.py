"""Identifies the caller, checks its role, and refuses requests that browsers send for pages of other sites."""

from __future__ import annotations

import functools

from starlette.requests import Request

from scheduler.access.policy import AccessPolicy
from scheduler.access.roles import Principal, Role
from scheduler.api.http.header_fields import HeaderFields
from scheduler.errors import InvalidRequest, Unauthorized


def identify(request: Request, access: AccessPolicy, roles: frozenset[Role]) -> Principal:
    """The caller. Raises Unauthorized without a known key, Forbidden when its role may not make this call."""
    try:
        authorization, api_key = single_header(request, "Authorization"), single_header(request, "X-API-Key")
    except InvalidRequest as twice:
        raise Unauthorized(twice.detail) from None
    return access.identify(roles, authorization, api_key)


def check_browser(request: Request, access: AccessPolicy) -> None:
    """Raises Forbidden for a request that a browser sent for a page of another site."""
    if access.exposed_to_browsers:
        headers = HeaderFields.of(request.scope)
        access.check_browser(headers.first(b"host"), headers.first(b"origin"))


@functools.cache
def _wire_name(name: str) -> bytes:
    return name.lower().encode()


def single_header(request: Request, name: str) -> str | None:
    """The header's value; None without one. Raises InvalidRequest when it is given twice."""
    headers, wire_name = HeaderFields.of(request.scope), _wire_name(name)
    if headers.is_repeated(wire_name):
        raise InvalidRequest.field(name, f"{len(headers.all(wire_name))} of them", "given once")
    return headers.first(wire_name)
