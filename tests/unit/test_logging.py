"""One pipe for all logs: what a line holds, and what it never holds."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from scheduler.observability.logging import bound, configure_logging, get_logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where logs go during one test; afterwards logging is as pytest had it."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_how_bad_and_what_before_anything_else(stream: io.StringIO) -> None:
    configure_logging("info", "json", stream)
    get_logger("scheduler.test").info("node listed", node_id="nœud-a")
    [event] = events(stream)
    assert list(event)[:3] == ["timestamp", "level", "message"]
    assert event["message"] == "node listed"
    assert event["node_id"] == "nœud-a"
    assert event["logger"] == "scheduler.test"


def test_bound_fields_are_on_every_line_inside_and_on_none_outside(stream: io.StringIO) -> None:
    configure_logging("info", "json", stream)
    log = get_logger("scheduler.test")
    with bound(request_id="r-1", reservation_id=None):
        log.info("inside")
        logging.getLogger("some.library").warning("also inside")
    log.info("outside")
    assert [event.get("request_id") for event in events(stream)] == ["r-1", "r-1", None]
    assert "reservation_id" not in stream.getvalue()


def test_libraries_speak_through_the_same_pipe(stream: io.StringIO) -> None:
    configure_logging("info", "json", stream)
    logging.getLogger("uvicorn.error").error("no more %s", "sockets")
    [event] = events(stream)
    assert (event["level"], event["message"], event["logger"]) == ("error", "no more sockets", "uvicorn.error")


def test_a_request_is_logged_by_its_own_layer_not_by_uvicorn_as_well(stream: io.StringIO) -> None:
    configure_logging("debug", "json", stream)
    logging.getLogger("uvicorn.access").info("GET / 200")
    logging.getLogger("uvicorn.error").info("Started server process")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("level", "expected"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_is_kept_to(stream: io.StringIO, level: str, expected: int) -> None:
    configure_logging(level, "json", stream)
    log = get_logger("scheduler.test")
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert len(events(stream)) == expected


@pytest.mark.parametrize("name", ["password", "api_key", "Authorization", "redis_password", "registration_token"])
def test_a_field_named_like_a_secret_is_never_written(stream: io.StringIO, name: str) -> None:
    configure_logging("info", "json", stream)
    get_logger("scheduler.test").info("x", **{name: "hunter2", "headers": {name: "hunter2", "accept": "*/*"}})
    logging.getLogger("some.library").warning("y", extra={name: "hunter2"})
    assert "hunter2" not in stream.getvalue()
    assert events(stream)[0]["headers"]["accept"] == "*/*"


def test_the_file_of_keys_is_no_secret(stream: io.StringIO) -> None:
    configure_logging("info", "json", stream)
    get_logger("scheduler.test").info("x", api_keys_file="/etc/keys.json")
    assert events(stream)[0]["api_keys_file"] == "/etc/keys.json"


def test_a_trace_is_data_in_json(stream: io.StringIO) -> None:
    configure_logging("info", "json", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("scheduler.test").exception("request failed")
    [event] = events(stream)
    assert event["exception"][0]["exc_type"] == "ValueError"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_trace_does_not_show_the_values_of_variables(stream: io.StringIO, form: str) -> None:
    configure_logging("info", form, stream)
    key = f"hunter{1 + 1}"  # made up here, so that no line of source holds it
    try:
        raise ValueError(f"broken, {len(key)} characters")
    except ValueError:
        get_logger("scheduler.test").exception("request failed")
    assert "ValueError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_auto_is_json_where_there_is_no_terminal(stream: io.StringIO) -> None:
    configure_logging("info", "auto", stream)
    get_logger("scheduler.test").info("x")
    assert events(stream)


def test_console_is_for_people(stream: io.StringIO) -> None:
    configure_logging("info", "console", stream)
    get_logger("scheduler.test").info("node listed", node_id="a")
    assert "node listed" in stream.getvalue()
    assert "node_id=a" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
