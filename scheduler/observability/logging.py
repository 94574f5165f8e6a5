"""Structured logs: one event name, then fields, in one format for every library.

    log = get_logger(__name__)
    log.info("reservation confirmed", reservation_id=…, sandbox_id=…)

`bound(request_id=…)` adds fields to everything logged inside it, in this task and those it starts. A field whose
name says that it is secret is never written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

import structlog

Event = MutableMapping[str, Any]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the HTTP request being answered; written with everything that is logged meanwhile."""

_SECRET_FIELDS = ("password", "secret", "token", "authorization", "api_key", "x-api-key", "cookie")
_HIDDEN = "***"


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger of the standard library's tree, so that levels and capturing work as usual."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Adds fields to every event logged inside; None values are left out."""
    with structlog.contextvars.bound_contextvars(
        **{name: value for name, value in fields.items() if value is not None}
    ):
        yield


def configure_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """Call once per process. `form`: json, console, or auto (console on a terminal, else JSON).

    Logs go to standard error, because standard output belongs to a command's result."""
    stream = stream or sys.stderr
    on_terminal = stream.isatty()
    as_json = form == "json" or (form == "auto" and not on_terminal)
    shared = _processors()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(as_json, on_terminal)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    _tame_libraries()


def set_level(level: str) -> None:
    """Change the level of a process that logs already."""
    logging.getLogger().setLevel(level.upper())


def writes_debug() -> bool:
    """Whether a line at debug would be written; asked where even preparing one costs too much."""
    first = structlog.get_config()["processors"][:1]
    return first != [structlog.stdlib.filter_by_level] or logging.root.isEnabledFor(logging.DEBUG)


def _add_request_id(_: Any, __: str, event: Event) -> Event:
    request_id = REQUEST_ID.get()
    if request_id is not None:
        event.setdefault("request_id", request_id)
    return event


def _processors() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        _add_request_id,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]


def _rendering(as_json: bool, on_terminal: bool) -> list[Any]:
    if not as_json:
        return [structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=structlog.dev.plain_traceback)]
    # Without the values of local variables, which may hold what no log should.
    traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [
        structlog.processors.ExceptionRenderer(traces),
        structlog.processors.EventRenamer("message"),
        _lead_with_what_happened,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _lead_with_what_happened(_: Any, __: str, event: Event) -> Event:
    """Put time, level and message first, for people who read the lines."""
    leading = {name: event.pop(name) for name in ("timestamp", "level", "message") if name in event}
    return leading | dict(event)


def hide_secrets(_: Any, __: str, event: Event) -> Event:
    """Hides fields by name, at any depth; a safety net, because values are made safe where they arise."""
    for name, value in event.items():
        event[name] = _hidden(name, value)
    return event


def _hidden(name: str, value: Any) -> Any:
    if any(secret in name.lower() for secret in _SECRET_FIELDS) and not name.endswith(("_file", "_count")):
        return _HIDDEN
    if isinstance(value, Mapping):
        return {inner: _hidden(str(inner), content) for inner, content in value.items()}
    return value


def _tame_libraries() -> None:
    """Route the libraries' loggers through the root handler, and silence what others log already."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "grpc", "asyncio", "kubernetes_asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
    # Requests are logged by the HTTP layer with their request id; start and stop by the replica.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
