"""The bounded protocol on httptools; a separate module, because httptools does not install everywhere."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from scheduler.errors import Malformed
from scheduler.replica.heads import BoundedProtocol


class BoundedHttpTools(BoundedProtocol, HttpToolsProtocol):
    """The parser calls back for each part it finds; an exception raised there ends the connection with its problem."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_message = False
        self._head_whole = False
        self._header_count = self._host_count = 0

    def on_message_begin(self) -> None:
        self._in_message, self._head_whole = True, False
        self._header_count = self._host_count = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > self._limits.headers_max:
            self._fault = self._too_many_headers()
            raise self._fault
        # Trailers arrive through the same callback; they are counted and dropped.
        if self._head_whole:
            return
        if len(name) == 4 and name.lower() == b"host":
            self._host_count += 1
            if self._host_count > 1:  # a proxy may have looked at the other one (RFC 9112, 3.2)
                self._fault = Malformed("a request may name one Host")
                raise self._fault
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_whole = True
        self._went_on()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._went_on()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._went_on()
        super().on_message_complete()

    @property
    def _between_messages(self) -> bool:
        return not self._in_message

    @property
    def _in_body(self) -> bool:
        return self._in_message and self._head_whole

    @property
    def _another_waits(self) -> bool:
        return bool(self.pipeline)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered()
