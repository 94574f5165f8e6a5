"""uvicorn's two HTTP protocols, with limits on everything that comes before a request is known.

A head (request line and headers) is limited in bytes, headers and time; so are the trailers of a chunked body. Bytes
reach the parser in slices, and a slice that completes no head, no part of a body and no body counts against the
limit, so endless input is refused however it is split. Pipelined requests wait unparsed until their turn.

    opened ──▶ head ──▶ busy ──▶ kept alive ──▶ head …          every arrow but the second has a time limit
                 └─────────┴──▶ refused ──▶ closed              the answer is sent first, later input is discarded
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from scheduler.errors import HeadTimeout, HeadTooLarge, Malformed, SchedulerError, UriTooLong
from scheduler.replica.connections import Connection, ConnectionLimits, Connections
from scheduler.replica.problems import raw_problem

SLICE_BYTES = 4096
# How long, and how much, a refused sender's input is still read, so that it gets the answer instead of a reset.
_DISCARD_SECONDS = 1.0
_DISCARD_BYTES = 1024 * 1024


class BoundedProtocol(Connection):
    """The limits that both protocols share. Stands before uvicorn's class in the order of inheritance."""

    loop: asyncio.AbstractEventLoop
    flow: FlowControl
    cycle: Any
    timeout_keep_alive: int
    timeout_keep_alive_task: asyncio.TimerHandle | None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)  # type: ignore[call-arg]  # uvicorn's class is next
        self.timeout_keep_alive = limits.idle_seconds  # type: ignore[assignment]  # uvicorn accepts fractions too
        self._limits = limits
        self._connections = connections
        self._began_at = self.loop.time()
        self._progress = 0
        self._head_bytes = 0
        self._line_ended = False
        self._fault: SchedulerError | None = None
        self._held = b""
        self._refused = False
        self._discard_bytes = _DISCARD_BYTES
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # Called for the parsers' events.

    def _went_on(self) -> None:
        """The parser completed a head, a part of a body, or a body."""
        self._progress += 1
        self._head_bytes = 0
        self._line_ended = False

    def _too_many_headers(self) -> HeadTooLarge:
        most = self._limits.headers_max
        return HeadTooLarge(f"a request may have at most {most} headers", allowed_headers=most)

    @property
    def _between_messages(self) -> bool:
        """Whether the parser stands before the first byte of a head."""
        raise NotImplementedError

    @property
    def _in_body(self) -> bool:
        raise NotImplementedError

    @property
    def _another_waits(self) -> bool:
        """Whether a pipelined request is parsed, or about to be, before its turn."""
        raise NotImplementedError

    # Bytes.

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._discard_bytes -= len(data)
            if self._discard_bytes < 0:
                self.transport.abort()
        elif self._held:
            # The application resumes reading for the rest of a body; what comes after the body still waits.
            self._held += data
            self.flow.pause_reading()
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self._refused and not self.transport.is_closing():
            if self._another_waits:
                self.flow.pause_reading()
                self._held = data[start:]
                break
            part = data[start : start + min(SLICE_BYTES, self._limits.head_bytes_max - self._head_bytes)]
            start += len(part)
            self._feed_slice(part)
        self._attend()

    def _feed_slice(self, part: bytes) -> None:
        progress = self._progress
        super().data_received(part)
        if self._progress != progress:
            return
        self._head_bytes += len(part)
        self._line_ended = self._line_ended or b"\n" in part
        if self._head_bytes >= self._limits.head_bytes_max and not self._refused:
            most = self._limits.head_bytes_max
            if self._line_ended or self._in_progress:
                self._refuse(HeadTooLarge(f"a request's head may have at most {most} bytes", allowed_bytes=most))
            else:
                self._refuse(UriTooLong(f"a request line may have at most {most} bytes", allowed_bytes=most))

    # Time.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.opened(self)
        self._head_timer = self.loop.call_at(self._began_at + self._limits.head_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.lost(self)
        self._stop_head_timer()
        self._stop_write_timer()
        self._held = b""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    @property
    def _in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _attend(self) -> None:
        """Set the timer that fits the state, and mark the connection busy or idle."""
        if self._refused:
            return
        if self._in_progress:
            self._stop_head_timer()
            self._connections.mark_busy(self)
        elif self.transport.is_closing():
            self._stop_head_timer()
        elif self._between_messages and self._head_bytes == 0:
            self._stop_head_timer()
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
        else:
            # In the middle of a head, or of a body that nobody reads any more: no byte prolongs this.
            if self.timeout_keep_alive_task is not None:
                self.timeout_keep_alive_task.cancel()
                self.timeout_keep_alive_task = None
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _answered(self) -> None:
        """A response is complete."""
        if self._refused:
            return
        if self.transport.is_closing():
            self._connections.mark_idle(self)
            if self._write_timer is None and self.transport.get_write_buffer_size():
                self._watch_writing()
            return
        held, self._held = self._held, b""
        if held:
            self._feed(held)
        else:
            self._attend()
        if not self._in_progress:
            self._connections.mark_idle(self)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._in_body or (self._between_messages and self._head_bytes == 0):
            self.transport.abort()
        else:
            seconds = self._limits.head_seconds
            self._refuse(HeadTimeout(f"the request's head was not whole within {seconds:g} s"))

    def timeout_keep_alive_handler(self) -> None:
        """Abort instead of closing when the peer has not read its last answer, which closing would wait for."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # A peer that does not read its answer.

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._watch_writing()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def _watch_writing(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self._limits.head_seconds, self._writing_is_late, unsent)

    def _writing_is_late(self, unsent_before: int) -> None:
        if self.transport.get_write_buffer_size() >= unsent_before:
            self.transport.abort()
        else:
            self._watch_writing()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # Refusing.

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this for whatever its parser does not accept."""
        self._refuse(self._fault or Malformed("this is not HTTP/1.1"))

    def _refuse(self, error: SchedulerError) -> None:
        """Answer with the problem, if the peer can still read an answer, and close."""
        self._refused = True
        self._held = b""
        self._stop_head_timer()
        if not self._in_progress:
            self._answer_and_close(error)
        elif not self.cycle.more_body:
            # The fault comes after a request that is being answered: that answer is the last one.
            self.cycle.keep_alive = False
        elif self.cycle.response_started or self._another_waits:
            self.transport.abort()
        else:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._answer_and_close(error)

    def _answer_and_close(self, error: SchedulerError) -> None:
        transport = self.transport
        if transport.is_closing():
            return
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        self._connections.mark_idle(self)
        transport.write(raw_problem(error))
        self.flow.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
            self._head_timer = self.loop.call_later(_DISCARD_SECONDS, transport.abort)
        else:
            # Over TLS, closing sends the end of the stream by itself; the timer bounds how long that takes.
            transport.close()
            self._head_timer = self.loop.call_later(self._limits.head_seconds, transport.abort)
