"""The forms of `--redis-addr`. Addresses are shown without their secrets.

    embedded                                        inside this process (fakeredis)
    host:port                                       the same as redis://host:port
    redis://[user:password@]host[:port][/db]        rediss:// for TLS
    unix://[user:password@]/path/to.sock[?db=0]
    sentinel://[user:password@]host:port,…/master[/db][?tls=true&sentinel_username=…&sentinel_password=…]
    cluster://[user:password@]host:port,…[?tls=true]

User names and passwords are percent-encoded where they contain `/`, `?`, `%` or `@`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qsl, unquote

from scheduler.errors import ConfigurationError

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379

FORMS = (
    "embedded, host:port, redis://host:port/db, rediss://host:port/db, unix:///path/to.sock, "
    "sentinel://host:port,host:port/master, cluster://host:port,host:port"
)

_SECRET_OPTION = re.compile(r"(password=)[^&]*", re.IGNORECASE)


class Scheme(StrEnum):
    EMBEDDED = "embedded"
    REDIS = "redis"
    REDISS = "rediss"
    UNIX = "unix"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_OPTIONS = {
    Scheme.REDIS: {"db"},
    Scheme.REDISS: {"db"},
    Scheme.UNIX: {"db"},
    Scheme.SENTINEL: {"db", "tls", "sentinel_username", "sentinel_password"},
    Scheme.CLUSTER: {"tls"},
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The login. Its password is never printed."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """One parsed address. `text` is safe to show and log."""

    scheme: Scheme
    text: str
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    database: int = 0
    master_name: str = ""
    tls: bool = False
    credentials: Credentials = Credentials()
    sentinel_credentials: Credentials = Credentials()

    @property
    def alone(self) -> bool:
        """Whether no other server can take over, so that waiting helps only while this one restarts."""
        return self.scheme not in {Scheme.SENTINEL, Scheme.CLUSTER}

    def __str__(self) -> str:
        return self.text


def redact(address: str) -> str:
    """The address without its passwords."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "", address
    # The last @ ends the login, so a password that was not percent-encoded is hidden completely too.
    login, at, place = rest.rpartition("@")
    if at:
        user, colon, _ = login.partition(":")
        login = f"{user}:***" if colon else "***"
    return _SECRET_OPTION.sub(r"\1***", f"{scheme}{separator}{login}{at}{place}")


def parse_address(address: str) -> Address:
    """Raises ConfigurationError, without secrets, for any other form."""
    text = address.strip()
    if text.lower() == Scheme.EMBEDDED:
        return Address(Scheme.EMBEDDED, "embedded")
    if "://" not in text:
        text = f"redis://{text}"
    scheme_name, _, rest = text.partition("://")
    try:
        scheme = Scheme(scheme_name.lower())
    except ValueError:
        raise _refuse(address, f"unknown scheme; allowed are {FORMS}") from None
    if scheme is Scheme.EMBEDDED:
        raise _refuse(address, "the embedded ledger is written `embedded`")

    login, _, place = rest.rpartition("@")
    place, _, query = place.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS[scheme]:
            raise _refuse(address, f"unknown option {name}; allowed are {', '.join(sorted(_OPTIONS[scheme]))}")

    hosts, path = ("", place) if scheme is Scheme.UNIX else _split_place(place)
    segments = [unquote(segment) for segment in path.split("/") if segment] if scheme is not Scheme.UNIX else []
    master_name = ""
    if scheme is Scheme.SENTINEL:
        if not segments:
            raise _refuse(address, "a sentinel address names the master: sentinel://host:port,host:port/master")
        master_name = segments.pop(0)
    database_text = segments.pop(0) if segments else options.get("db", "0")
    if segments:
        raise _refuse(address, f"too many parts after the host; allowed are {FORMS}")
    if scheme is Scheme.UNIX and not path.startswith("/"):
        raise _refuse(address, "a unix address holds an absolute path: unix:///path/to.sock")
    database = _database(address, database_text)
    if scheme is Scheme.CLUSTER and database:
        raise _refuse(address, "a cluster has database 0 only")

    default_port = DEFAULT_SENTINEL_PORT if scheme is Scheme.SENTINEL else DEFAULT_PORT
    parsed_hosts = () if scheme is Scheme.UNIX else _hosts(address, hosts, default_port)
    if len(parsed_hosts) > 1 and scheme in (Scheme.REDIS, Scheme.REDISS):
        raise _refuse(address, "several hosts need sentinel:// or cluster://")
    return Address(
        scheme=scheme,
        text=redact(text),
        hosts=parsed_hosts,
        path=unquote(path) if scheme is Scheme.UNIX else "",
        database=database,
        master_name=master_name,
        tls=scheme is Scheme.REDISS or _truth(address, options.get("tls", "false")),
        credentials=_credentials(login),
        sentinel_credentials=Credentials(options.get("sentinel_username"), options.get("sentinel_password")),
    )


def _split_place(place: str) -> tuple[str, str]:
    hosts, _, path = place.partition("/")
    return hosts, path


def _credentials(login: str) -> Credentials:
    if not login:
        return Credentials()
    user, colon, password = login.partition(":")
    return Credentials(unquote(user) or None, unquote(password) if colon else None)


def _hosts(address: str, hosts: str, default_port: int) -> tuple[tuple[str, int], ...]:
    parsed = []
    for host_text in hosts.split(","):
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?", host_text.strip())
        if not match or not 0 < int(match[2] or default_port) < 65536:
            raise _refuse(address, f"every host is name, name:port or [IPv6]:port; allowed are {FORMS}")
        parsed.append((match[1].strip("[]"), int(match[2] or default_port)))
    return tuple(parsed)


def _database(address: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text):
        raise _refuse(address, "the database is a number, 0 or above")
    return int(text)


def _truth(address: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _refuse(address, "tls is true or false")
    return text.lower() == "true"


def _refuse(address: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"redis_addr {redact(address)!r}: {reason}")
