"""What every gRPC call shares: the caller's identity and deadline, errors as statuses, one measurement.

A handler takes a request and returns a response; errors of `scheduler.errors` it raises are answered by the table in
`scheduler.api.status`. Any other exception is logged in full and answered "internal error", and the server
continues. A refusal that may be retried says when (`google.rpc.RetryInfo` in the status details), as `Retry-After`
does over HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import to_status

from scheduler import errors
from scheduler.access.policy import AccessPolicy
from scheduler.access.roles import ANONYMOUS, Principal, Role
from scheduler.api.grpc.intake import Intake
from scheduler.api.grpc.options import GrpcOptions
from scheduler.api.grpc.spans import traced
from scheduler.api.status import grpc_status, retry_after_seconds
from scheduler.deadline import within
from scheduler.observability.logging import get_logger
from scheduler.service.checks import trim

log = get_logger(__name__)

_CREDENTIALS = ("authorization", "x-api-key")

Handler = Callable[[Any], Awaitable[Message]]
Metadata = Sequence[tuple[str, str | bytes]]

# AgentENV measures these RPCs, and not its P2P calls; health and our own service are none of its RPCs.
MEASURED = frozenset(
    {
        "Schedule",
        "ListNodes",
        "LookupNode",
        "RecordAssignment",
        "Heartbeat",
        "ListObservedNodes",
        "ReportSandboxEvent",
        "GetNode",
        "UnregisterNode",
    }
)

STATUS_LABELS = {
    grpc.StatusCode.OK: "ok",
    grpc.StatusCode.CANCELLED: "canceled",
    grpc.StatusCode.INVALID_ARGUMENT: "invalid_argument",
    grpc.StatusCode.NOT_FOUND: "not_found",
    grpc.StatusCode.FAILED_PRECONDITION: "failed_precondition",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline_exceeded",
    grpc.StatusCode.INTERNAL: "internal",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal to send. `metadata` carries rich details, if any."""

    code: grpc.StatusCode
    text: str
    metadata: Metadata = ()


class Refused(Exception):
    """Raised by a handler to answer with a status and text of its own."""

    def __init__(self, code: grpc.StatusCode, text: str, metadata: Metadata = ()) -> None:
        super().__init__(text)
        self.answer = Answer(code, text, metadata)


def invalid(text: str) -> Refused:
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, text)


Translator = Callable[[errors.SchedulerError], Answer]


def plain_answer(error: errors.SchedulerError) -> Answer:
    return detailed_answer(error, *grpc_status(error))


def detailed_answer(
    error: errors.SchedulerError, code: grpc.StatusCode, text: str, details: Sequence[Message] = ()
) -> Answer:
    """An answer with these details, and with the time to wait when a retry can help."""
    pause = retry_after_seconds(error)
    if pause is not None:
        retry = RetryInfo()
        retry.retry_delay.FromMilliseconds(int(pause * 1000))
        details = [*details, retry]
    if not details:
        return Answer(code, text)
    packed = [AnyMessage() for _ in details]
    for slot, detail in zip(packed, details, strict=True):
        slot.Pack(detail)
    # A StatusCode's value is (number, name).
    rich = to_status(Status(code=code.value[0], message=text, details=packed))
    return Answer(code, text, tuple(rich.trailing_metadata))


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its handler, the request type, and the roles that may call it. `for_node`: the caller must be allowed
    to act for the request's `node_id`."""

    handler: Handler
    request_type: type[Message]
    roles: frozenset[Role]
    for_node: bool = False


_principal: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)


def caller() -> Principal:
    """The caller of the present call."""
    return _principal.get()


class Answering:
    """Builds the handlers of one port, which share the count of calls in progress."""

    def __init__(self, options: GrpcOptions) -> None:
        self._options = options
        self._metrics = options.metrics
        self._intake = Intake()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._leaving = False

    async def leave(self, grace_seconds: float) -> None:
        """Refuse every new call from now on. Returns when the calls in progress are answered, or after
        `grace_seconds`."""
        self._leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()

    def generic_handler(
        self, service: str, methods: Mapping[str, Method], access: AccessPolicy, translate: Translator = plain_answer
    ) -> grpc.GenericRpcHandler:
        """All methods of one service, by their exact wire names, for callers that `access` allows."""
        return grpc.method_handlers_generic_handler(
            service,
            {
                # A unary call looks the same on the wire. As a stream, the handler runs before the message is
                # received, so a message of a refused caller takes no memory. The handler gets bytes, so that an
                # unreadable message has a status and a measurement too.
                name: grpc.stream_unary_rpc_method_handler(
                    self._traced(f"{service}/{name}", self._answering(_Served(name, method, access, translate))),
                    response_serializer=_serialized,
                )
                for name, method in methods.items()
            },
        )

    def _traced(self, path: str, answer: Any) -> Any:
        tracing = self._options.tracing
        return answer if tracing is None else traced(tracing, path, answer)

    def _answering(self, served: _Served) -> Any:
        name = served.name
        observe = self._metrics.observe_rpc if name in MEASURED else None

        async def answer(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
            self._begun(context)
            with _Measured(name, observe) as measured, within(self._seconds_left(context)):
                outcome = await self._outcome(served, context)
                if isinstance(outcome, Answer):
                    measured.code = outcome.code
            if isinstance(outcome, Answer):
                await context.abort(outcome.code, outcome.text, tuple(outcome.metadata))
            return outcome

        return answer

    def _begun(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._in_flight += 1
        self._metrics.set_grpc_in_flight(self._in_flight)
        self._idle.clear()
        # Called however the call ends, after its answer has been sent.
        context.add_done_callback(self._ended)  # type: ignore[arg-type]  # the stubs want a class of their own

    def _ended(self, _: Any) -> None:
        self._in_flight -= 1
        self._metrics.set_grpc_in_flight(self._in_flight)
        if self._in_flight == 0:
            self._idle.set()

    async def _outcome(self, served: _Served, context: grpc.aio.ServicerContext[Any, Any]) -> Message | Answer:
        name, method = served.name, served.method
        try:
            if self._leaving:
                raise errors.Overloaded("draining: this replica is leaving")
            if self._in_flight > self._options.in_flight_max:
                # Refused at once, so that the caller can try another replica within its deadline.
                self._metrics.count_grpc_shed()
                raise errors.Overloaded("too many calls at once; ask again")
            principal = served.identify(context)
            async with self._intake.message(context) as frame:
                request = method.request_type.FromString(frame)
                if method.for_node:
                    principal.act_for(trim(request.node_id))  # type: ignore[attr-defined]  # so says `for_node`
                _principal.set(principal)
                return await method.handler(request)
        except DecodeError:
            # grpc-go answers INTERNAL to a message it cannot read.
            return Answer(grpc.StatusCode.INTERNAL, f"the frame is no {method.request_type.DESCRIPTOR.full_name}")
        except Refused as refused:
            return refused.answer
        except errors.SchedulerError as error:
            answer = served.translate(error)
            if answer.code is grpc.StatusCode.INTERNAL:
                log.exception("a call failed inside the scheduler", rpc=name)
            errors.forget_frames(error)
            return answer
        except Exception:  # a defect of a handler must not stop the server
            log.exception("a handler raised an unexpected error", rpc=name)
            return Answer(grpc.StatusCode.INTERNAL, "internal error")

    def _seconds_left(self, context: grpc.aio.ServicerContext[Any, Any]) -> float:
        # The stubs say float; without a deadline grpc returns None.
        remaining: float | None = context.time_remaining()
        return self._options.default_deadline_seconds if remaining is None else remaining


@dataclass(frozen=True, slots=True)
class _Served:
    """One RPC of one service: its name, its handler, who may call it, and how its errors are translated."""

    name: str
    method: Method
    access: AccessPolicy
    translate: Translator

    def identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> Principal:
        """The caller, before the message is received. Raises Unauthorized or Forbidden."""
        if self.access.keys is None:
            return ANONYMOUS
        given: dict[str, str] = {}
        for key, value in context.invocation_metadata() or ():
            if key in _CREDENTIALS:
                if key in given:
                    raise errors.Unauthorized(f"{key} is given twice; send one API key")
                given[key] = value if isinstance(value, str) else ""
        return self.access.identify(self.method.roles, *(given.get(key) for key in _CREDENTIALS))


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


class _Measured:
    """One observation per call, however it ends; a cancelled call counts as canceled. `observe` takes the method's
    name, a status label, seconds."""

    def __init__(self, name: str, observe: Callable[[str, str, float], None] | None) -> None:
        self._name = name
        self._observe = observe
        self.code = grpc.StatusCode.OK

    def __enter__(self) -> _Measured:
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._observe is not None:
            code = self.code if kind is None else grpc.StatusCode.CANCELLED
            self._observe(self._name, STATUS_LABELS.get(code, "other"), time.perf_counter() - self._started)
