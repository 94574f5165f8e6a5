"""A problem as the bytes of a complete HTTP answer, for refusals before there is a request."""

from __future__ import annotations

import http
import json
import math
import secrets

from scheduler.api.status import problem, retry_after_seconds, status_of
from scheduler.errors import SchedulerError


def raw_problem(error: SchedulerError) -> bytes:
    """Status line, headers and body; the answer closes its connection."""
    status = status_of(error)
    body = json.dumps(problem(error)).encode()
    lines = [
        f"HTTP/1.1 {status.http} {http.HTTPStatus(status.http).phrase}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        f"x-request-id: {secrets.token_hex(16)}",
        "connection: close",
    ]
    pause = retry_after_seconds(error)
    if pause is not None:
        lines.append(f"retry-after: {math.ceil(pause)}")
    return "\r\n".join([*lines, "", ""]).encode() + body
