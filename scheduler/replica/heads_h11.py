"""The bounded protocol on h11, for systems without httptools."""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from scheduler.replica.connections import ConnectionLimits
from scheduler.replica.heads import SLICE_BYTES, BoundedProtocol


class _ObservedConnection(h11.Connection):
    """h11's connection, which reports its events to the protocol."""

    def __init__(self, owner: BoundedH11, head_bytes_max: int) -> None:
        super().__init__(h11.SERVER, head_bytes_max + SLICE_BYTES)
        self._owner = owner

    def next_event(self) -> Any:
        event = super().next_event()
        self._owner.on_event(event)
        return event


class BoundedH11(BoundedProtocol, H11Protocol):
    """Counts the parser's events; an error raised while handling one ends the connection with its problem."""

    conn: _ObservedConnection

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*arguments, limits=limits, **more)
        self.conn = _ObservedConnection(self, limits.head_bytes_max)
        self._paused = False

    def on_event(self, event: Any) -> None:
        """Raises RemoteProtocolError, as the parser itself does, for more headers than allowed."""
        self._paused = event is h11.PAUSED
        if isinstance(event, h11.Request | h11.EndOfMessage):
            self._went_on()
            if len(event.headers) > self._limits.headers_max:
                self._fault = self._too_many_headers()
                raise h11.RemoteProtocolError(self._fault.detail, error_status_hint=431)
        elif isinstance(event, h11.Data):
            self._went_on()

    @property
    def _between_messages(self) -> bool:
        return self.conn.their_state in {h11.IDLE, h11.DONE} and not self.conn.trailing_data[0]

    @property
    def _in_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    @property
    def _another_waits(self) -> bool:
        return self._paused

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered()
