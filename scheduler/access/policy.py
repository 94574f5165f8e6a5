"""The access rule of HTTP and gRPC alike: who the caller is, and what it may call.

                       with API keys           without API keys
    on loopback        the role of the key     everyone may call everything; over HTTP only browsers of this machine
    beyond loopback    the role of the key     our own API is not served, unless clients show certificates (mTLS) or
                                               the operator sets `insecure`

`scheduler.v1` is the exception, because AgentENV's gateway and nodes send no keys: it asks for keys only with
`grpc.api_keys`, and without it the network or certificates must protect it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from urllib.parse import urlsplit

from scheduler.access.keys import KeyRing
from scheduler.access.roles import ANONYMOUS, FOR_EVERYONE, NOBODY, Principal, Role
from scheduler.domain.address import is_loopback
from scheduler.errors import Forbidden, Unauthorized


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who may call one port.

    `loopback`: the port is reachable from this machine only. `certificates`: clients must show one (mTLS).
    `insecure`: the operator opened it to everyone. `hosts`: further host names by which browsers may call a port
    without keys. `checks_browsers`: whether requests sent by pages of other sites are refused here."""

    keys: KeyRing | None = None
    loopback: bool = True
    certificates: bool = False
    insecure: bool = False
    hosts: frozenset[str] = frozenset()
    checks_browsers: bool = True

    @property
    def exposed_to_browsers(self) -> bool:
        """Whether a page of another site could call this port: without keys its address is enough."""
        return self.checks_browsers and self.keys is None

    @property
    def serves_own_api(self) -> bool:
        """Whether our own API may be served on this port at all."""
        return self.keys is not None or self.loopback or self.certificates or self.insecure

    @property
    def callers(self) -> str:
        """Who may call, in words for the log."""
        ways = ["by API key"] if self.keys is not None else []
        ways += ["by certificate (mTLS)"] if self.certificates else []
        return " and ".join(ways) or ANYONE

    def identify(self, roles: frozenset[Role], authorization: str | None, api_key: str | None) -> Principal:
        """The caller, by the key in either of these headers. A call open to everyone still names a known key's owner.

        Raises Unauthorized without a known key or with two different ones, Forbidden when its role is not among
        `roles`."""
        if self.keys is None:
            return ANONYMOUS
        presented = _presented_keys(authorization, api_key)
        if roles == FOR_EVERYONE:
            known = self.keys.authenticate(presented[0]) if len(presented) == 1 else None
            return known or NOBODY
        if not presented:
            raise Unauthorized("send an API key as `Authorization: Bearer …` or `X-API-Key`")
        if len(presented) > 1:
            raise Unauthorized("`Authorization` and `X-API-Key` carry two different API keys; send one of them")
        principal = self.keys.authenticate(presented[0])
        if principal is None:
            raise Unauthorized("this API key is not known")
        if principal.role not in roles:
            raise Forbidden(f"a key of role {principal.role} does not reach this call", role=principal.role)
        return principal

    def check_browser(self, host: str | None, origin: str | None) -> None:
        """Raises Forbidden for a request that a browser sent for a page of another site.

        Any page can send requests to a port of the machine that shows it, and with DNS rebinding read the answers.
        It has no API key, so with keys nothing needs to be refused here."""
        if not self.exposed_to_browsers:
            return
        if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
            raise Forbidden("without API keys no page of another origin may call this; its Origin is foreign")
        if self.loopback and host is not None and not self._is_local(host):
            raise Forbidden(
                "without API keys only names of this machine may call this; its Host is foreign (http.allowed_hosts)"
            )

    def _is_local(self, host: str) -> bool:
        name, is_of_this_machine = _read_host(host)
        return is_of_this_machine or name in self.hosts


ANYONE = "anyone who can reach it: the network alone guards it"
OPEN = AccessPolicy(loopback=False, insecure=True, checks_browsers=False)
"""Everyone may call everything: for applications that check access themselves, and for tests."""


@functools.lru_cache(maxsize=256)
def _read_host(host: str) -> tuple[str, bool]:
    """The name in a Host header, and whether it is one of this machine. Callers send few different ones."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return "", False  # a name that nobody allowed
    return name, is_loopback(name) or name.endswith(".localhost")


def _presented_keys(authorization: str | None, api_key: str | None) -> list[str]:
    """The different keys in these headers: none, one, or two. An Authorization of another scheme is a proxy's."""
    scheme, _, credentials = (authorization or "").partition(" ")
    bearer = credentials.strip() if scheme.lower() == "bearer" else ""
    return [key for key in dict.fromkeys((bearer, (api_key or "").strip())) if key]
