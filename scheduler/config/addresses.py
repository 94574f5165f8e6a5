"""Addresses among the configuration values: where to listen, where the ledger is, and how they are shown."""

from __future__ import annotations

import re

from scheduler.config.groups import ListenAddress
from scheduler.config.kinds import Kind, Unacceptable


def listen_address() -> Kind[ListenAddress]:
    """Go's spelling: `host:port`, `:port` for every interface, `[::1]:port` for IPv6."""
    allowed = "an address such as 127.0.0.1:9090, [::1]:9090 or :9090 (every interface)"
    form = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/]*)):([0-9]{1,5})")

    def read(raw: object) -> ListenAddress:
        match = form.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match is None or int(match[3]) > 65535:
            raise Unacceptable(allowed)
        return ListenAddress(match[1] or match[2] or "", int(match[3]))

    return Kind(allowed, read, show=str)


_LEDGER_SCHEMES = ("redis", "rediss", "unix", "sentinel", "cluster")


def ledger_address() -> Kind[str]:
    """Checks the form only; the client parses the rest of the URL."""
    allowed = "embedded, host:port, or a URL with redis://, rediss://, unix://, sentinel:// or cluster://"

    def read(raw: object) -> str:
        if not isinstance(raw, str):
            raise Unacceptable(allowed)
        address = raw.strip()
        if address.lower() == "embedded":
            return "embedded"
        scheme, separator, rest = address.partition("://")
        if separator:
            if scheme.lower() not in _LEDGER_SCHEMES or not rest.strip("/"):
                raise Unacceptable(allowed)
            return address
        listening = listen_address().read(address)
        if not listening.host or listening.port == 0:
            raise Unacceptable(allowed)
        return address

    def read_or_refuse(raw: object) -> str:
        try:
            return read(raw)
        except Unacceptable:
            raise Unacceptable(allowed) from None

    return Kind(allowed, read_or_refuse, show=redact_url)


def redact_url(address: str) -> str:
    """The address without its passwords."""
    scheme, separator, rest = address.partition("://")
    if not separator:  # the scheme was forgotten; the password was not
        scheme, rest = "", address
    login, at, place = rest.rpartition("@")  # the last @, so that a password holding one is hidden whole
    user, colon, _ = login.partition(":")
    login = f"{user}:***" if colon else "***" if at else ""
    place = re.sub(r"(?i)(password=)[^&]*", r"\1***", place)
    return f"{scheme}{separator}{login}{at}{place}"


def holds_password(address: str) -> bool:
    """Whether the address contains a password, of the server or of its sentinels."""
    _, separator, rest = address.partition("://")
    login, at, place = (rest if separator else address).rpartition("@")
    return bool(at and ":" in login) or re.search(r"(?i)[?&]\w*password=.", place) is not None
