"""The error table: complete, consistent, and true to the two contracts."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import grpc
import pytest

from scheduler import errors
from scheduler.api.status import STATUS_BY_ERROR, grpc_status, problem, retry_after_seconds, status_of
from scheduler.observability.metrics import status_label

EVERY_ERROR = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.SchedulerError) and value.__module__ == errors.__name__
]


def an_error(error_class: type[errors.SchedulerError]) -> errors.SchedulerError:
    if error_class is errors.NoNodes:
        return errors.NoNodes(2, {"unhealthy": 2})
    return error_class("what happened")


@pytest.mark.parametrize("error_class", EVERY_ERROR)
def test_every_error_class_has_a_row_of_its_own(error_class: type[errors.SchedulerError]) -> None:
    assert error_class in STATUS_BY_ERROR


@pytest.mark.parametrize("error_class", EVERY_ERROR)
def test_every_503_says_when_to_come_back_and_nothing_else_does(error_class: type[errors.SchedulerError]) -> None:
    status = STATUS_BY_ERROR[error_class]
    assert (status.http == 503) == (status.retry_after_seconds is not None)


@pytest.mark.parametrize("error_class", EVERY_ERROR)
def test_callers_refused_together_are_asked_back_over_seconds_never_sooner_than_the_least(
    error_class: type[errors.SchedulerError],
) -> None:
    least = STATUS_BY_ERROR[error_class].retry_after_seconds
    asked = [retry_after_seconds(an_error(error_class), lambda x=x: x / 100) for x in range(100)]  # type: ignore[misc]
    if least is None:
        assert set(asked) == {None}
        return
    pauses = [pause for pause in asked if pause is not None]
    assert min(pauses) == least
    assert max(pauses) < 2 * least + 4
    # At most a quarter of them read the same whole second, which is all that the header can say.
    whole = [int(pause) for pause in pauses]
    assert max(whole.count(second) for second in whole) <= 25


@pytest.mark.parametrize("error_class", EVERY_ERROR)
def test_the_metric_label_of_an_error_is_its_grpc_status(error_class: type[errors.SchedulerError]) -> None:
    labels = {"ok", "canceled", "invalid_argument", "not_found", "failed_precondition"} | {
        "unavailable",
        "deadline_exceeded",
        "internal",
    }
    name = STATUS_BY_ERROR[error_class].grpc.name.lower()
    assert status_label(an_error(error_class)) == (name if name in labels else "other")


@pytest.mark.parametrize(
    ("code", "http"),
    [
        ("malformed", 400),
        ("invalid_request", 422),
        ("unsupported_media_type", 415),
        ("payload_too_large", 413),
        ("head_too_large", 431),
        ("uri_too_long", 414),
        ("head_timeout", 408),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("not_found", 404),
        ("conflict", 409),
        ("no_nodes", 503),
        ("overloaded", 503),
        ("store_unavailable", 503),
        ("not_rebuilt", 503),
        ("deadline_exceeded", 504),
        ("internal", 500),
    ],
)
def test_a_code_has_one_http_status_whichever_class_carries_it(code: str, http: int) -> None:
    carriers = [error_class for error_class in EVERY_ERROR if error_class.code == code]
    assert carriers
    assert {STATUS_BY_ERROR[carrier].http for carrier in carriers} == {http}


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.NoNodes(0, {}), grpc.StatusCode.UNAVAILABLE, "no nodes available"),
        (errors.StoreUnavailable("no route"), grpc.StatusCode.UNAVAILABLE, "binding store unavailable"),
        (errors.NodeNotListed("node-x"), grpc.StatusCode.INVALID_ARGUMENT, "node is not in scheduler node list"),
        (errors.AssignmentRefused("node-x"), grpc.StatusCode.INVALID_ARGUMENT, "node is not in scheduler node list"),
        (errors.InstanceMismatch("other"), grpc.StatusCode.FAILED_PRECONDITION, "service instance mismatch"),
        (errors.InvalidRequest("sandbox_id is required"), grpc.StatusCode.INVALID_ARGUMENT, "sandbox_id is required"),
        (errors.NotFound("observed node not found"), grpc.StatusCode.NOT_FOUND, "observed node not found"),
        (errors.ScriptError("ARGV[3] was nil"), grpc.StatusCode.INTERNAL, "internal error"),
    ],
)
def test_grpc_texts_are_the_ones_agentenv_clients_know(
    error: errors.SchedulerError, code: grpc.StatusCode, text: str
) -> None:
    assert grpc_status(error) == (code, text)


def test_a_class_without_a_row_is_answered_as_the_one_above_it() -> None:
    class TooManyGroups(errors.Overloaded):
        pass

    assert status_of(TooManyGroups("later")) is STATUS_BY_ERROR[errors.Overloaded]


def test_a_problem_carries_the_facts_and_facts_never_replace_a_fixed_member() -> None:
    answer = problem(errors.Conflict("already confirmed", reservation={"reservation_id": "r1"}, status=200))
    assert answer["status"] == 409
    assert answer["code"] == "conflict"
    assert answer["reservation"] == {"reservation_id": "r1"}


def test_a_defect_of_ours_shows_nothing_of_its_inside() -> None:
    answer = problem(errors.ScriptError("EVALSHA 9f3c: attempt to index a nil value", keys=["secret"]))
    assert "nil" not in answer["detail"]
    assert "keys" not in answer


def test_the_errors_page_has_a_row_for_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \| (\d+) \| (\w+) \|", page, re.MULTILINE))
    shown = {(error.code, STATUS_BY_ERROR[error]) for error in EVERY_ERROR if error is not errors.ConfigurationError}
    # One row per code and gRPC status: a code whose classes differ there has a row for each.
    assert rows == {(code, str(status.http), status.grpc.name) for code, status in shown}
