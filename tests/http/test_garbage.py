"""What a request leaves behind: the collector of circles runs seldom, so no request may wait for it with its body."""

from __future__ import annotations

import gc
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from starlette.types import ASGIApp

from scheduler.api.http import HttpOptions, create_app
from scheduler.connection.options import StoreOptions
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.service import build_services

COLD = {"kind": "cold_sandbox", "cpu_count": 2, "memory_mb": 4096}


async def _status(app: ASGIApp, method: str, path: str, body: bytes) -> int:
    """The answer's status. Asked without a client's library, which leaves circles of its own."""
    answers: list[int] = []
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "server": None, "client": None}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answers.append(message["status"])

    await app(scope, receive, send)
    (status,) = answers
    return status


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/schedule", {"hint": COLD}, 503),
        ("POST", "/v1/schedule/batch", {"hint": COLD, "count": 3, "all": True}, 503),
        ("POST", "/v1/schedule", {"hint": COLD | {"cpu_count": -1}}, 422),
        ("POST", "/v1/schedule", "not an object", 422),
        ("POST", "/v1/reservations/none/confirm", {"sandbox_id": "s"}, 404),
        ("POST", "/v1/nodes/none/heartbeat", {"service_instance_id": "i", "snapshot": {"status": "ready"}}, 404),
        ("PUT", "/v1/nodes/a", {"endpoint": "x" * 5000}, 413),
        ("GET", "/nowhere", None, 404),
    ],
)
async def test_no_refused_request_waits_for_the_collector(
    embedded_ledger: Ledger, method: str, path: str, body: Any, status: int
) -> None:
    app = create_app(build_services(embedded_ledger), options=HttpOptions(body_bytes_max=4096))
    sent = b"" if body is None else json.dumps(body).encode()
    assert await _status(app, method, path, sent) == status
    with _garbage() as left:
        await _status(app, method, path, sent)
    assert left == []


async def test_nor_does_one_whose_ledger_cannot_be_reached() -> None:
    options = StoreOptions(operation_timeout_ms=300, refused_timeout_ms=50)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ledger = await open_ledger(f"redis://127.0.0.1:{port}", options=options)
    try:
        app = create_app(build_services(ledger))
        body = json.dumps({"hint": COLD}).encode()
        assert await _status(app, "POST", "/v1/schedule", body) == 503
        with _garbage() as left:
            await _status(app, "POST", "/v1/schedule", body)
    finally:
        await ledger.close()
    assert left == []


@contextmanager
def _garbage() -> Iterator[list[Any]]:
    """Errors and frames that the block leaves to the collector."""
    left: list[Any] = []
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        left += [each for each in gc.garbage if isinstance(each, (BaseException, FrameType))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
