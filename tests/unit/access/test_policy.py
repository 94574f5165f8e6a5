"""The access rule of HTTP and gRPC: keys and roles, ports without keys, and requests of other sites' pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.access import KeyRing, Role, generate_key, hash_key
from scheduler.access.policy import OPEN, AccessPolicy
from scheduler.access.roles import FOR_ADMINS, FOR_EVERYONE, FOR_GATEWAYS, NOBODY
from scheduler.errors import Forbidden, Unauthorized

KEY = generate_key()


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "edge", "role": "gateway", "sha256": hash_key(KEY)}]}), "utf-8")
    return KeyRing(path)


@pytest.mark.parametrize(
    ("authorization", "api_key"),
    [(f"Bearer {KEY}", None), (f"bearer  {KEY} ", None), (None, KEY), ("Basic eA==", KEY)],
    # Names that are the same in every process of pytest-xdist, which the key is not.
    ids=["bearer", "bearer in lower case with spaces", "x-api-key", "x-api-key beside another scheme"],
)
def test_a_key_is_taken_from_either_place(keys: KeyRing, authorization: str | None, api_key: str | None) -> None:
    assert AccessPolicy(keys).identify(FOR_GATEWAYS, authorization, api_key).name == "edge"


def test_without_a_known_key_there_is_no_caller(keys: KeyRing) -> None:
    for given in ((None, None), ("Bearer", None), (None, ""), ("Bearer guessed", None), (None, hash_key(KEY))):
        with pytest.raises(Unauthorized):
            AccessPolicy(keys).identify(FOR_GATEWAYS, *given)


def test_a_role_reaches_its_calls_and_no_other(keys: KeyRing) -> None:
    with pytest.raises(Forbidden):
        AccessPolicy(keys).identify(FOR_ADMINS, None, KEY)
    assert (
        AccessPolicy(keys).identify(FOR_EVERYONE, None, None)
        == AccessPolicy(keys).identify(FOR_EVERYONE, None, "guessed")
        == NOBODY
    )
    assert AccessPolicy(keys).identify(FOR_EVERYONE, None, KEY).name == "edge"
    assert AccessPolicy().identify(FOR_ADMINS, None, "anything").role is Role.ADMIN


def test_beyond_loopback_our_api_needs_keys_certificates_or_insecure(keys: KeyRing) -> None:
    beyond = AccessPolicy(loopback=False)
    assert not beyond.serves_own_api
    for guarded in (
        AccessPolicy(),
        replace(beyond, keys=keys),
        replace(beyond, certificates=True),
        replace(beyond, insecure=True),
    ):
        assert guarded.serves_own_api


def test_the_log_says_who_is_let_in(keys: KeyRing) -> None:
    assert AccessPolicy(keys, certificates=True).callers == "by API key and by certificate (mTLS)"
    assert AccessPolicy().callers.startswith("anyone")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8090", "localhost:8090", "LOCALHOST", "[::1]:8090", "127.9.9.9", "a.localhost:1", "ours.test"]
)
def test_names_of_this_machine_may_call_a_port_on_loopback(host: str) -> None:
    AccessPolicy(hosts=frozenset({"ours.test"})).check_browser(host, f"http://{host}")
    AccessPolicy(hosts=frozenset({"ours.test"})).check_browser(host, None)


@pytest.mark.parametrize(
    "host", ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test:8090", "127.evil.test", "10.0.0.1", "[::1", ""]
)
def test_other_names_were_made_to_point_here(host: str) -> None:
    with pytest.raises(Forbidden):
        AccessPolicy().check_browser(host, None)


@pytest.mark.parametrize("origin", ["https://evil.test", "http://localhost:3000", "null", "file://", ""])
def test_a_page_of_another_origin_may_not_call(origin: str) -> None:
    for access in (AccessPolicy(), AccessPolicy(loopback=False, insecure=True)):
        with pytest.raises(Forbidden):
            access.check_browser("localhost:8090", origin)


def test_callers_that_are_no_browser_send_neither() -> None:
    AccessPolicy().check_browser(None, None)


def test_where_keys_are_asked_for_a_page_has_none_to_send(keys: KeyRing) -> None:
    for access in (AccessPolicy(keys), OPEN):
        access.check_browser("scheduler.example:8090", "https://elsewhere.example")
