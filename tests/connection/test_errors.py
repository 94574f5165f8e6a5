"""Foreign errors become ours in one place, completely, and say nothing secret."""

import inspect
import ssl
from pathlib import Path

import pytest
from redis import exceptions as redis_errors

from scheduler.connection.errors import TooFewReplicas, judge
from scheduler.connection.scripts import Origin, Script
from scheduler.errors import (
    CommandsWithheld,
    InvalidRequest,
    SchedulerError,
    ScriptError,
    StoreUnavailable,
    StoreUnusable,
    WritesRefused,
)

WHERE = "redis://user:***@h:1"
SHA = "0123456789abcdef0123456789abcdef01234567"
SCRIPT = Script(
    "place_one",
    "local a\nlocal b\n",
    (Origin("lua/include/x.lua", 7), Origin("lua/place_one.lua", 12)),
    Path("place_one.lua"),
)


@pytest.mark.parametrize(
    ("error", "expected", "retry", "relocate"),
    [
        (redis_errors.ConnectionError("Connection refused"), StoreUnavailable, True, True),
        (redis_errors.ConnectionError("max number of clients reached"), StoreUnavailable, True, True),
        (redis_errors.TimeoutError("Timeout reading"), StoreUnavailable, True, True),
        (TimeoutError(), StoreUnavailable, True, True),
        (OSError(113, "No route to host"), StoreUnavailable, True, True),
        (redis_errors.BusyLoadingError("loading"), StoreUnavailable, True, False),
        (redis_errors.ReadOnlyError("You can't write"), StoreUnavailable, True, True),
        (redis_errors.MovedError("3 127.0.0.1:7000"), StoreUnavailable, True, True),
        (redis_errors.AskError("3 127.0.0.1:7000"), StoreUnavailable, True, False),
        (redis_errors.TryAgainError("Multiple keys"), StoreUnavailable, True, False),
        (redis_errors.ClusterDownError("The cluster is down"), StoreUnavailable, True, True),
        (redis_errors.MasterDownError("Link with MASTER is down"), StoreUnavailable, True, True),
        (redis_errors.NoScriptError("No matching script"), StoreUnavailable, True, False),
        (redis_errors.ResponseError("BUSY Redis is busy running a script"), StoreUnavailable, True, False),
        (redis_errors.ResponseError("NOREPLICAS Not enough good replicas"), WritesRefused, True, False),
        (redis_errors.ResponseError("UNBLOCKED force unblock"), StoreUnavailable, True, True),
        (redis_errors.ResponseError("MISCONF Redis is configured to save"), WritesRefused, False, False),
        (redis_errors.OutOfMemoryError("command not allowed"), WritesRefused, False, False),
        (TooFewReplicas(2), StoreUnavailable, True, False),
        (redis_errors.AuthenticationError("Authentication required."), StoreUnusable, False, False),
        (redis_errors.AuthenticationError("invalid username-password pair"), StoreUnusable, False, False),
        (redis_errors.NoPermissionError("no permissions to run the 'info' command"), CommandsWithheld, False, False),
        (redis_errors.InvalidResponse("Protocol Error"), StoreUnusable, False, False),
        (redis_errors.ClusterCrossSlotError("Keys in request"), ScriptError, False, False),
        (redis_errors.ResponseError("WRONGTYPE Operation against a key"), ScriptError, False, False),
        (redis_errors.ResponseError("unknown command 'FOO'"), ScriptError, False, False),
        (redis_errors.DataError("Invalid input of type"), ScriptError, False, False),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), InvalidRequest, False, False),
        (redis_errors.RedisError("something new"), ScriptError, False, False),
    ],
)  # fmt: skip
def test_every_foreign_error_has_its_verdict(
    error: Exception, expected: type[SchedulerError], retry: bool, relocate: bool
) -> None:
    verdict = judge(error, WHERE)
    assert type(verdict.error) is expected
    assert (verdict.retry, verdict.relocate) == (retry, relocate)


def test_every_error_class_of_the_client_library_is_judged() -> None:
    # Whatever a new version of the library brings gets a verdict, and never one that hides a retryable failure.
    for _, error_class in inspect.getmembers(redis_errors, inspect.isclass):
        error: Exception
        if issubclass(error_class, redis_errors.AskError):
            error = error_class("3 127.0.0.1:7000")
        elif issubclass(error_class, Exception):
            error = error_class("text")
        else:
            continue
        verdict = judge(error, WHERE)
        assert isinstance(verdict.error, SchedulerError)
        if issubclass(error_class, redis_errors.ConnectionError):
            assert verdict.retry is not issubclass(error_class, redis_errors.AuthenticationError), error_class


@pytest.mark.parametrize(
    "text",
    [
        f"user_script:2: attempt to index a nil value script: {SHA}, on @user_script:2.",
        "user_script:2: attempt to index a nil value script: on @user_script:2.",
        f"Error running script (call to f_{SHA}): @user_script:2: user_script:2: attempt to index a nil value",
        f"Error running script (call to f_{SHA}): @user_script:?: user_script:2: attempt to index a nil value\nstack",
        f'Error running script (call to f_{SHA}): [string "<python>"]:2: attempt to index a nil value',
    ],
    ids=["redis 7", "valkey 9", "redis 6", "embedded", "embedded, other interpreter"],
)
def test_a_lua_error_is_reported_at_the_line_it_was_written(text: str) -> None:
    error = judge(redis_errors.ResponseError(text), WHERE, SCRIPT).error
    assert error.detail == "place_one: lua/place_one.lua:12: attempt to index a nil value"


def test_an_error_of_a_command_inside_a_script_is_reported_at_its_line() -> None:
    text = f"value is not an integer script: {SHA}, on @user_script:1."
    error = judge(redis_errors.ResponseError(text), WHERE, SCRIPT).error
    assert error.detail == "place_one: lua/include/x.lua:7: value is not an integer"


def test_a_replica_is_recognised_through_redis_six_wrapping() -> None:
    text = f"Error running script (call to f_{SHA}): @user_script:1: @user_script: 1: -READONLY You can't write"
    verdict = judge(redis_errors.ResponseError(text), WHERE, SCRIPT)
    assert verdict.retry
    assert verdict.relocate


def test_a_slot_on_the_move_seen_from_inside_a_script_is_waited_for() -> None:
    text = f"Script attempted to access a non local key in a cluster node script: {SHA}, on @user_script:1."
    assert judge(redis_errors.ResponseError(text), WHERE, SCRIPT).retry


def test_a_withheld_command_is_named() -> None:
    text = "User me has no permissions to run the 'zadd' command"
    assert judge(redis_errors.NoPermissionError(text), WHERE).error.detail.endswith("(zadd)")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The user executing the script can't run this command or subcommand", "(lua/place_one.lua:12)"),
        ("ACL failure in script: User me has no permissions to run the 'del' command", "(del)"),
    ],
    ids=["redis 7.0", "later"],
)
@pytest.mark.parametrize("trailer", [f" script: {SHA}, on @user_script:2.", " script: on @user_script:2."])
def test_a_command_withheld_from_a_script_is_named(text: str, told: str, trailer: str) -> None:
    error = judge(redis_errors.ResponseError(text + trailer), WHERE, SCRIPT).error
    assert type(error) is CommandsWithheld
    assert error.detail.endswith(told)


def test_an_untrusted_certificate_waits_for_a_person() -> None:
    error = redis_errors.ConnectionError("Error 1 connecting")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    verdict = judge(error, WHERE)
    assert type(verdict.error) is StoreUnusable
    assert "certificate is not trusted" in verdict.error.detail
    assert not verdict.retry


def test_an_error_of_ours_stays_as_it_is() -> None:
    ours = StoreUnavailable("said already")
    assert judge(ours, WHERE).error is ours


def test_what_is_no_error_of_redis_is_a_defect_named_by_its_class() -> None:
    assert judge(ZeroDivisionError("secret"), WHERE, SCRIPT).error.detail == "place_one: unexpected ZeroDivisionError"


@pytest.mark.parametrize(
    "told",
    [
        redis_errors.NoPermissionError("this user has no permissions to access one of the keys used as arguments"),
        redis_errors.NoPermissionError("No permissions to access a key"),
        redis_errors.ResponseError(
            "ACL failure in script: No permissions to access a key script: x, on @user_script:1."
        ),
        redis_errors.ResponseError(
            "The user executing the script can't access at least one of the keys mentioned in the command arguments"
        ),
    ],
)
def test_a_user_of_another_key_pattern_is_told_which_keys_it_lacks(told: redis_errors.ResponseError) -> None:
    error = judge(told, WHERE, SCRIPT, "aenv:{east}:shared_settings").error
    assert isinstance(error, CommandsWithheld)
    assert (
        error.detail
        == "the ledger: the server's ACL does not let this user read and write the ledger's keys, aenv:{east}:*"
    )
    assert judge(told, WHERE).error.detail.endswith("the ledger's keys")
