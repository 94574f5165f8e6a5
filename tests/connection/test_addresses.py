"""Address forms, and that no secret leaves an address."""

import pytest

from scheduler.connection.address import Scheme, parse_address, redact
from scheduler.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "scheme", "hosts", "database"),
    [
        ("localhost:7000", Scheme.REDIS, (("localhost", 7000),), 0),
        ("redis", Scheme.REDIS, (("redis", 6379),), 0),
        ("redis://h", Scheme.REDIS, (("h", 6379),), 0),
        ("redis://h:1/3", Scheme.REDIS, (("h", 1),), 3),
        ("redis://h:1?db=4", Scheme.REDIS, (("h", 1),), 4),
        ("rediss://[::1]:6380/0", Scheme.REDISS, (("::1", 6380),), 0),
        ("sentinel://a:1,b/primary/2", Scheme.SENTINEL, (("a", 1), ("b", 26379)), 2),
        ("cluster://a:1,b:2,c", Scheme.CLUSTER, (("a", 1), ("b", 2), ("c", 6379)), 0),
    ],
)
def test_every_form_is_read(text: str, scheme: Scheme, hosts: tuple[tuple[str, int], ...], database: int) -> None:
    address = parse_address(text)
    assert (address.scheme, address.hosts, address.database) == (scheme, hosts, database)
    assert address.tls is (scheme is Scheme.REDISS)


@pytest.mark.parametrize("text", ["embedded", " Embedded "])
def test_embedded_needs_no_host(text: str) -> None:
    assert parse_address(text).scheme is Scheme.EMBEDDED


def test_a_unix_address_holds_a_path() -> None:
    address = parse_address("unix://me:secret@/run/redis%20x.sock?db=2")
    assert (address.path, address.database) == ("/run/redis x.sock", 2)
    assert address.credentials.username == "me"


def test_credentials_are_decoded() -> None:
    credentials = parse_address("redis://a%40b:p%2Fq%3A@h").credentials
    assert (credentials.username, credentials.password) == ("a@b", "p/q:")


def test_a_password_needs_no_user() -> None:
    credentials = parse_address("redis://:secret@h").credentials
    assert (credentials.username, credentials.password) == (None, "secret")


def test_sentinels_may_have_credentials_and_tls_of_their_own() -> None:
    address = parse_address("sentinel://u:p@a:1/m?tls=true&sentinel_username=s&sentinel_password=q")
    assert address.tls
    assert address.master_name == "m"
    assert address.sentinel_credentials.password == "q"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://h", "unknown scheme"),
        ("embedded://", "written `embedded`"),
        ("", "every host is"),
        ("redis://", "every host is"),
        ("redis://h:99999", "every host is"),
        ("redis://h:0", "every host is"),
        ("redis://h:x", "every host is"),
        ("redis://h/x", "database is a number"),
        ("redis://h/1/2", "too many parts"),
        ("redis://a,b", "several hosts"),
        ("redis://h?timeout=3", "unknown option timeout"),
        ("sentinel://h", "names the master"),
        ("cluster://h/1", "database 0 only"),
        ("cluster://h?tls=maybe", "tls is true or false"),
        ("unix://relative.sock", "absolute path"),
    ],
)
def test_a_form_that_is_none_is_refused_with_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:hunter2@h:1/0", "redis://user:***@h:1/0"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("redis://hunter2@h", "redis://***@h"),
        ("redis://user:hun/ter2@x@h", "redis://user:***@h"),
        ("user:hunter2@h:1", "user:***@h:1"),
        ("sentinel://:hunter2@a,b/m?sentinel_password=hunter2&tls=true", "sentinel://:***@a,b/m?sentinel_password=***&tls=true"),
        ("h:1", "h:1"),
        ("embedded", "embedded"),
    ],
)  # fmt: skip
def test_what_is_shown_holds_no_password(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@h:nonsense",
        "redis://user:hunter2@h/x",
        "redis://user:hun?ter2@h:x",
        "ftp://user:hunter2@h",
        "cluster://user:hunter2@h/7",
        "sentinel://user:hunter2@h?sentinel_password=hunter2",
    ],
)
def test_a_refusal_holds_no_password(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_address(text)
    assert "hunter2" not in str(refusal.value)
    assert "ter2" not in str(refusal.value)


def test_a_parsed_address_shows_no_password() -> None:
    address = parse_address("sentinel://user:hunter2@a/m?sentinel_password=hunter2")
    assert "hunter2" not in f"{address!r} {address} {address.credentials!r} {address.sentinel_credentials}"
