"""Checks hosts and endpoints: whether only this machine reaches a host, and whether a gateway can proxy to an
endpoint."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address

from scheduler.domain.limits import TEXT_BYTES_MAX
from scheduler.domain.text import has_unfit_character, trim

# What RFC 3986 allows in a path; a query and a fragment may hold a question mark too.
_IN_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
# Scheme, host and what may follow. No user and password: an endpoint is shown to everyone who may read nodes.
ENDPOINT_PATTERN = (
    r"[Hh][Tt][Tt][Pp][Ss]?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)"
    r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
    rf"(/({_IN_PATH})*)?(\?({_IN_PATH}|\?)*)?(#({_IN_PATH}|\?)*)?"
)
ENDPOINT_FORM = f"a URL such as http://10.0.0.7:8000, without a user, at most {TEXT_BYTES_MAX} bytes"
_ENDPOINT = re.compile(ENDPOINT_PATTERN)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host. A name other than `localhost` may resolve to anything."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def clean_endpoint(text: str) -> str | None:
    """The trimmed endpoint; None when a gateway could not proxy to it.

    It is an http or https URL with a host; a path is kept as a prefix."""
    trimmed = trim(text)
    if len(trimmed) > TEXT_BYTES_MAX or has_unfit_character(trimmed):
        return None
    found = _ENDPOINT.fullmatch(trimmed)
    return trimmed if found and _is_host(found[1]) else None


def _is_host(host: str) -> bool:
    """Whether a host that the pattern accepts is valid: in brackets it must be an IPv6 address."""
    if not host.startswith("["):
        return True
    try:
        IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True
