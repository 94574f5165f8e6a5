"""The one rule of every door: who a caller is, what its role reaches, and where nobody is asked.

                       with API keys           without
    on loopback        the role of the key     everyone may do everything; browsers from this machine alone (HTTP)
    beyond loopback    the role of the key     nobody may do anything of ours, unless callers show certificates or the
                                               operator says `insecure`

AgentENV's gateway and nodes send no metadata, so `scheduler.v1` is the exception: it asks for keys only where
`grpc.api_keys` says so, and is guarded by the network, or by certificates, where it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from scheduler.access.keys import KeyRing
from scheduler.access.roles import ANONYMOUS, FOR_EVERYONE, NOBODY, Principal, Role
from scheduler.domain.address import is_loopback
from scheduler.errors import Forbidden, Unauthorized


@dataclass(frozen=True, slots=True)
class Door:
    """What stands between a stranger and one port.

    `loopback`: it listens where only this machine reaches it. `certificates`: callers show one (mTLS).
    `insecure`: the operator says that it shall be open to whoever reaches it. `hosts`: names by which browsers may
    call a door without keys, beside those of loopback. `heeds_browsers`: nothing else keeps foreign pages away."""

    keys: KeyRing | None = None
    loopback: bool = True
    certificates: bool = False
    insecure: bool = False
    hosts: frozenset[str] = frozenset()
    heeds_browsers: bool = True

    @property
    def wary(self) -> bool:
        """Whether a request may have been sent by a page that knows no more than the address."""
        return self.heeds_browsers and self.keys is None

    @property
    def is_guarded(self) -> bool:
        """Whether our own calls may be served here at all."""
        return self.keys is not None or self.loopback or self.certificates or self.insecure

    @property
    def callers(self) -> str:
        """Who is let in, in words for the log."""
        ways = ["by API key"] if self.keys is not None else []
        ways += ["by certificate (mTLS)"] if self.certificates else []
        return " and ".join(ways) or ANYONE

    def identify(self, roles: frozenset[Role], authorization: str | None, api_key: str | None) -> Principal:
        """The caller of a call that these roles reach; both texts as they came, in header or metadata. Whoever needs
        no key is told apart by it all the same, when one is sent.

        Raises Unauthorized without a key we know, Forbidden when its role does not reach this call."""
        if self.keys is None:
            return ANONYMOUS
        presented = _presented_key(authorization, api_key)
        if roles == FOR_EVERYONE:
            known = None if presented is None else self.keys.authenticate(presented)
            return known or NOBODY
        if presented is None:
            raise Unauthorized("send an API key as `Authorization: Bearer …` or `X-API-Key`")
        principal = self.keys.authenticate(presented)
        if principal is None:
            raise Unauthorized("this API key is not known")
        if principal.role not in roles:
            raise Forbidden(f"a key of role {principal.role} does not reach this call", role=principal.role)
        return principal

    def check_browser(self, host: str | None, origin: str | None) -> None:
        """Raises Forbidden for what only a browser sends, on behalf of a page that is not ours.

        A page anywhere may send requests to a port of the machine that shows it, and behind a name that was made to
        point there (DNS rebinding) read the answers too. It knows no API key, so with keys nothing is refused here."""
        if not self.wary:
            return
        if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
            raise Forbidden("without API keys no page of another origin may call this; its Origin is foreign")
        if self.loopback and host is not None and not self._is_local(host):
            raise Forbidden(
                "without API keys only names of this machine may call this; its Host is foreign (http.allowed_hosts)"
            )

    def _is_local(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name.endswith(".localhost") or name in self.hosts


ANYONE = "anyone who can reach it: the network alone guards it"
OPEN = Door(loopback=False, insecure=True, heeds_browsers=False)
"""Guarded by whoever put it there."""


def _presented_key(authorization: str | None, api_key: str | None) -> str | None:
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and credentials.strip():
        return credentials.strip()
    return api_key or None
