"""Whose call it is, and whether that caller may make it."""

from __future__ import annotations

from starlette.requests import Request

from scheduler.access.keys import KeyRing
from scheduler.access.roles import ANONYMOUS, FOR_EVERYONE, Principal, Role
from scheduler.errors import Forbidden, Unauthorized


def identify(request: Request, roles: frozenset[Role]) -> Principal:
    """The caller. Raises Unauthorized without a key we know, Forbidden when its role does not reach this call.

    Without a key ring everyone is `anonymous` and may do everything: the server then listens on loopback alone."""
    keys: KeyRing | None = request.scope["app"].state.keys
    if keys is None or roles == FOR_EVERYONE:
        return ANONYMOUS
    presented = _presented_key(request)
    if presented is None:
        raise Unauthorized("send an API key as `Authorization: Bearer …` or `X-API-Key`")
    principal = keys.authenticate(presented)
    if principal is None:
        raise Unauthorized("this API key is not known")
    if principal.role not in roles:
        raise Forbidden(f"a key of role {principal.role.value} does not reach this call", role=principal.role.value)
    return principal


def _presented_key(request: Request) -> str | None:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials.strip():
        return credentials.strip()
    return request.headers.get("x-api-key") or None
