"""Bodies and answers: JSON or MessagePack, read within a bound, written as the caller wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgpack
from pydantic import TypeAdapter
from pydantic_core import ValidationError, to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from scheduler import deadline
from scheduler.api.http.problems import invalid_body
from scheduler.errors import DeadlineExceeded, Malformed, PayloadTooLarge, UnsupportedMediaType

JSON = "application/json"
MSGPACK = "application/msgpack"
PROBLEM_JSON = "application/problem+json"
_MSGPACK_NAMES = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})


def media_type(header: str | None) -> str:
    """The bare media type of a Content-Type header, in lower case."""
    return "" if header is None else header.partition(";")[0].strip().lower()


def body_is_msgpack(request: Request, *, must_say: bool) -> bool:
    """How a body is written; without a Content-Type it is JSON, unless the caller `must_say`: what a foreign page may
    send without asking has none of ours. Raises UnsupportedMediaType for anything else."""
    headers = request.headers.getlist("content-type")
    given = media_type(headers[0] if headers else None)
    if len(headers) < 2:
        if given == JSON or (not given and not must_say):
            return False
        if given in _MSGPACK_NAMES:
            return True
    found = ", ".join(headers)[:100] or None
    raise UnsupportedMediaType(f"send Content-Type {JSON} or {MSGPACK}, once", found=found, allowed=[JSON, MSGPACK])


def check_encoding(request: Request) -> None:
    """Raises UnsupportedMediaType for a body that is compressed: it would have to be unpacked before it is bounded."""
    for encoding in request.headers.getlist("content-encoding"):
        if encoding.strip().lower() not in {"", "identity"}:
            raise UnsupportedMediaType("send the body as it is, without Content-Encoding", found=encoding[:100])


def wants_msgpack(request: Request) -> bool:
    """Whether to answer in MessagePack: what Accept names first, else what the request's own body is."""
    headers = request.headers
    accept = headers.get("accept")
    if accept is not None and accept != "*/*":
        for wanted in accept.split(","):
            name = media_type(wanted)
            if name in _MSGPACK_NAMES:
                return True
            if name in {JSON, PROBLEM_JSON}:
                return False
    return media_type(headers.get("content-type")) in _MSGPACK_NAMES


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The whole body, counted as it comes so that nothing larger is ever held. Raises PayloadTooLarge."""
    check_encoding(request)
    announced = request.headers.get("content-length")
    if announced is not None and announced.isdecimal() and int(announced[:20]) > most_bytes:
        raise _too_large(most_bytes)
    parts, size, more = [], 0, True
    try:
        # A sender that trickles its body, or never begins it, is held to the request's deadline like any other wait.
        async with asyncio.timeout(deadline.remaining_ms(default=60_000) / 1000):
            while more:
                message = await _next_part(request)
                part: bytes = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(part)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                parts.append(part)
    except TimeoutError:
        raise DeadlineExceeded("the body did not arrive within the request's deadline") from None
    return b"".join(parts)


async def _next_part(request: Request) -> Mapping[str, Any]:
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


def _too_large(most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body may have at most {most_bytes} bytes", allowed_bytes=most_bytes)


def decode(adapter: TypeAdapter[Any], body: bytes, packed: bool) -> Any:
    """The body as the declared model. Raises Malformed when it is not JSON (or MessagePack) at all,
    InvalidRequest when it is, but not what is allowed."""
    try:
        if packed:
            return adapter.validate_python(_unpack(body), strict=True)
        return adapter.validate_json(body, strict=True)
    except ValidationError as error:
        raise invalid_body(error) from None


def _unpack(body: bytes) -> Any:
    # Every way in which bytes fail to be MessagePack is a ValueError, absurd nesting included; a truncated
    # document is one too, and an unhashable or binary map key a TypeError.
    try:
        return msgpack.unpackb(body, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise Malformed(f"the body is not MessagePack ({type(error).__name__})") from None


def answer(
    content: Mapping[str, Any],
    *,
    packed: bool,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    problem: bool = False,
) -> Response:
    """One answer in the form the caller wants."""
    if packed:
        return Response(msgpack.packb(content), status, headers, media_type=MSGPACK)
    return Response(to_json(content), status, headers, media_type=PROBLEM_JSON if problem else JSON)
