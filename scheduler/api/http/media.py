"""Reads bodies and writes answers as JSON or MessagePack, within size limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
from pydantic import TypeAdapter
from pydantic_core import ValidationError, to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Send

from scheduler import deadline
from scheduler.api.http.header_fields import HeaderFields
from scheduler.api.http.problems import invalid_body
from scheduler.errors import DeadlineExceeded, Malformed, Overloaded, PayloadTooLarge, UnsupportedMediaType

JSON = "application/json"
MSGPACK = "application/msgpack"
PROBLEM_JSON = "application/problem+json"
# So many bodies of the largest size may be unfinished at once, or more of smaller ones.
LARGEST_UNFINISHED = 16
# In Accept: a format that the caller cannot read.
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)", re.IGNORECASE)
_MSGPACK_NAMES = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})


def media_type(header: str | None) -> str:
    """The bare media type of a Content-Type header, in lower case."""
    return "" if header is None else header.partition(";")[0].strip().lower()


def body_is_msgpack(request: Request, *, must_say: bool) -> bool:
    """The body's format. Without a Content-Type it is JSON, unless the caller `must_say`: pages of other sites can
    send requests without one. Raises UnsupportedMediaType for anything else."""
    fields = HeaderFields.of(request.scope)
    first, repeated = fields.first(b"content-type"), fields.is_repeated(b"content-type")
    if first == JSON and not repeated:
        return False  # nearly always
    given = media_type(first)
    if not repeated:
        if given == JSON or (not given and not must_say):
            return False
        if given in _MSGPACK_NAMES:
            return True
    found = ", ".join(fields.all(b"content-type"))[:100] or None
    raise UnsupportedMediaType(f"send Content-Type {JSON} or {MSGPACK}, once", found=found, allowed=[JSON, MSGPACK])


def check_encoding(request: Request) -> None:
    """Raises UnsupportedMediaType for a compressed body, whose size cannot be limited before it is unpacked."""
    for encoding in HeaderFields.of(request.scope).all(b"content-encoding"):
        if encoding.strip().lower() not in {"", "identity"}:
            raise UnsupportedMediaType("send the body as it is, without Content-Encoding", found=encoding[:100])


def wants_msgpack(request: Request) -> bool:
    """Whether to answer in MessagePack: the first format in Accept that is not refused there (`q=0`), else that of the
    request's body."""
    headers = HeaderFields.of(request.scope)
    accept = headers.first(b"accept")
    if accept is not None and accept != "*/*":
        for wanted in accept.split(","):
            name = media_type(wanted)
            if _REFUSED.search(wanted):
                continue
            if name in _MSGPACK_NAMES:
                return True
            if name in {JSON, PROBLEM_JSON}:
                return False
    given = headers.first(b"content-type")
    return given != JSON and media_type(given) in _MSGPACK_NAMES


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The complete body, counted while it arrives, so that nothing larger is held. Raises PayloadTooLarge, and
    Overloaded when too much of other bodies waits for the rest of them."""
    check_encoding(request)
    announced = HeaderFields.of(request.scope).first(b"content-length")
    if announced is not None and announced.isdecimal() and int(announced[:20]) > most_bytes:
        raise _too_large(most_bytes)
    if _has_arrived(request):
        return await _parts(request, most_bytes)
    try:
        # A body that arrives slowly, or not at all, counts against the request's deadline.
        async with asyncio.timeout(deadline.remaining_ms(default=60_000) / 1000):
            return await _unfinished.read(request, most_bytes)
    except TimeoutError:
        raise DeadlineExceeded("the body did not arrive within the request's deadline") from None


def _has_arrived(request: Request) -> bool:
    """Whether uvicorn has the whole body, as it has nearly always: then nothing is waited for, and needs no timer."""
    return getattr(getattr(request.receive, "__self__", None), "more_body", True) is False


async def _parts(request: Request, most_bytes: int, hold: Callable[[int], None] | None = None) -> bytes:
    """`hold` is told the bytes of each part."""
    parts, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size > most_bytes:
            raise _too_large(most_bytes)
        if hold is not None:
            hold(len(part))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _UnfinishedBodies:
    """What this process holds of bodies that have not arrived whole: each may be large, and all together only as large
    as a few of the largest, so that callers who never finish take no memory from others."""

    def __init__(self) -> None:
        self._held_bytes = 0

    async def read(self, request: Request, most_bytes: int) -> bytes:
        held_bytes = 0

        def hold(size: int) -> None:
            nonlocal held_bytes
            held_bytes += size
            self._held_bytes += size
            if self._held_bytes > LARGEST_UNFINISHED * most_bytes:
                raise Overloaded("too much of other requests' bodies has arrived and waits for the rest")

        try:
            return await _parts(request, most_bytes, hold)
        finally:
            self._held_bytes -= held_bytes


_unfinished = _UnfinishedBodies()


def _too_large(most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body may have at most {most_bytes} bytes", allowed_bytes=most_bytes)


def decode(adapter: TypeAdapter[Any], body: bytes, packed: bool) -> Any:
    """The body as the declared model. Raises Malformed when it is not JSON (or MessagePack), InvalidRequest when its
    content is not allowed."""
    try:
        if packed:
            return adapter.validate_python(_unpack(body), strict=True)
        return adapter.validate_json(body, strict=True)
    except ValidationError as error:
        raise invalid_body(error) from None


def _unpack(body: bytes) -> Any:
    # Invalid, truncated or too deeply nested MessagePack raises ValueError; an unhashable or binary map key raises
    # TypeError.
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
    """One answer in the format that the caller wants."""
    if packed:
        return Response(msgpack.packb(content), status, headers, media_type=MSGPACK)
    return Response(to_json(content), status, headers, media_type=PROBLEM_JSON if problem else JSON)


async def send_answer(content: Mapping[str, Any], send: Send, *, packed: bool) -> None:
    """Send the answer to a call that succeeded, without a Response object in between."""
    body, media = (
        (msgpack.packb(content), b"application/msgpack") if packed else (to_json(content), b"application/json")
    )
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", media)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
