"""What every call has in common: who calls, the caller's deadline, errors as statuses, one measurement.

A handler takes a request and returns a response; whatever it raises of `scheduler.errors` is
told by the one table in `scheduler.api.status`. Anything else is a defect: logged in full, told
as "internal error", and the server lives on. A refusal that may be asked again says after how long
(`google.rpc.RetryInfo` in the status details), as `Retry-After` does over HTTP.
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
from scheduler.api.grpc.options import GrpcOptions, RpcObserver
from scheduler.api.grpc.spans import traced
from scheduler.api.status import grpc_status, retry_after_seconds
from scheduler.deadline import within
from scheduler.observability.logging import get_logger
from scheduler.service.checks import trim

log = get_logger(__name__)

_CREDENTIALS = ("authorization", "x-api-key")

Handler = Callable[[Any], Awaitable[Message]]
Metadata = Sequence[tuple[str, str | bytes]]

# Upstream does not measure the P2P calls, and neither health nor our own service is one of its RPCs.
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
    """A refusal ready for the wire. `metadata` carries rich details, when there are any."""

    code: grpc.StatusCode
    text: str
    metadata: Metadata = ()


class Refused(Exception):
    """Raised by a handler whose method has a status and text of its own."""

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
    """An answer with these details, and with when to ask again where that helps."""
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
    """One RPC: its handler, the type its request is read as, and the roles that reach it. `for_node`: the request's
    `node_id` says for which node the caller speaks."""

    handler: Handler
    request_type: type[Message]
    roles: frozenset[Role]
    for_node: bool = False


_principal: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)


def caller() -> Principal:
    """Who made the call that is being answered."""
    return _principal.get()


class Answering:
    """Makes handlers of one port; they share its measure of how much is under way."""

    def __init__(self, options: GrpcOptions) -> None:
        self._options = options
        self._intake = Intake()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._leaving = False

    async def leave(self, grace_seconds: float) -> None:
        """From now on every call is told to look elsewhere. Returns when those under way are answered, or after
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
                # On the wire a call with one message is the same either way. Here the handler runs before the message
                # is received, so that nobody is served, or held in memory, who is not let in. Bytes in: reading them
                # is part of the answer, so that garbage has a status and a measurement.
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
        observe = self._options.observe if name in MEASURED else None

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
        self._idle.clear()
        # Called however the call ends, and after its answer has been sent.
        context.add_done_callback(self._ended)  # type: ignore[arg-type]  # the stubs want a class of their own

    def _ended(self, _: Any) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            self._idle.set()

    async def _outcome(self, served: _Served, context: grpc.aio.ServicerContext[Any, Any]) -> Message | Answer:
        name, method = served.name, served.method
        try:
            if self._leaving:
                raise errors.Overloaded("draining: this replica is leaving")
            if self._in_flight > self._options.in_flight_max:
                # Early, so that the caller can go elsewhere: a queue longer than a deadline serves nobody.
                raise errors.Overloaded("too many calls at once; ask again")
            principal = served.identify(context)
            async with self._intake.message(context) as frame:
                request = method.request_type.FromString(frame)
                if method.for_node:
                    principal.act_for(trim(request.node_id))  # type: ignore[attr-defined]  # so says `for_node`
                _principal.set(principal)
                return await method.handler(request)
        except DecodeError:
            # INTERNAL is what grpc-go answers to a frame it cannot read.
            return Answer(grpc.StatusCode.INTERNAL, f"the frame is no {method.request_type.DESCRIPTOR.full_name}")
        except Refused as refused:
            return refused.answer
        except errors.SchedulerError as error:
            answer = served.translate(error)
            if answer.code is grpc.StatusCode.INTERNAL:
                log.exception("a call failed inside the scheduler", rpc=name)
            return answer
        except Exception:  # the server must outlive any defect of a handler
            log.exception("a call met a defect", rpc=name)
            return Answer(grpc.StatusCode.INTERNAL, "internal error")

    def _seconds_left(self, context: grpc.aio.ServicerContext[Any, Any]) -> float:
        # The stubs say float; without a deadline grpc hands out None.
        remaining: float | None = context.time_remaining()
        return self._options.default_deadline_seconds if remaining is None else remaining


@dataclass(frozen=True, slots=True)
class _Served:
    """One RPC as it is served: under which name, to whom, and how its errors are told."""

    name: str
    method: Method
    access: AccessPolicy
    translate: Translator

    def identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> Principal:
        """Before the message is received. Raises Unauthorized or Forbidden."""
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
    """One observation per call, whichever way it ends; leaving by cancellation counts as canceled."""

    def __init__(self, name: str, observe: RpcObserver | None) -> None:
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
