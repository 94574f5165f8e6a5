"""Reads an endpoint's declared parameters from the request and writes its answer.

Endpoints are declared as FastAPI reads them, so the OpenAPI document comes from their signatures:

    @reach(FOR_GATEWAYS)
    async def confirm(call: Call, reservation_id: PathId, body: ConfirmBody) -> dict[str, Any]: ...

The reading is our own for three reasons: a body is JSON or MessagePack and never coerced, broken JSON (400) is
distinguished from an invalid field (422), and the hot path validates bytes straight into the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote, unquote_to_bytes

from fastapi import APIRouter, params
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from pydantic_core import ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scheduler import deadline
from scheduler.access.policy import AccessPolicy
from scheduler.access.roles import NOBODY, Principal, Role
from scheduler.api.http.access import check_browser, identify, single_header
from scheduler.api.http.fields import Body
from scheduler.api.http.media import answer, body_is_msgpack, decode, read_body, send_answer, wants_msgpack
from scheduler.api.http.openapi import PROBLEM_RESPONSES
from scheduler.api.http.options import HttpOptions
from scheduler.api.http.problems import ERRORS_SHOWN, invalid_parameter
from scheduler.api.http.recent import RecentAnswers
from scheduler.api.status import problem, retry_after_seconds, status_of
from scheduler.api.views import reservation_view
from scheduler.domain.duration import DURATION_FORM, parse_duration
from scheduler.domain.reservation import Reservation
from scheduler.errors import FieldError, InvalidRequest, Malformed, SchedulerError, forget_frames
from scheduler.observability.logging import get_logger
from scheduler.service import Services
from scheduler.service.checks import ID_FORM, clean_id, refuse, shown, trim

log = get_logger("scheduler.http")

Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Any]])
TIMEOUT_HEADER = "X-Request-Timeout"


@dataclass(frozen=True, slots=True)
class Provided:
    """What the application provides to every endpoint."""

    services: Services
    options: HttpOptions
    access: AccessPolicy
    recent: RecentAnswers = field(default_factory=RecentAnswers)


class Call(Request):
    """One request, with what the application provides to endpoints."""

    principal: Principal = NOBODY

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        provided: Provided = scope["app"].provided
        self.services = provided.services
        self.options = provided.options
        self.access = provided.access
        self.recent = provided.recent

    @property
    def request_id(self) -> str:
        request_id: str = self.scope["request_id"]
        return request_id

    def act_for(self, node_id: str) -> None:
        """Raises Forbidden when the caller's key is bound to another node."""
        self.principal.act_for(trim(node_id))


def reach(roles: frozenset[Role]) -> Callable[[Endpoint], Endpoint]:
    """Declares who may call the endpoint. Every endpoint must, or the application does not start."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.roles = roles  # type: ignore[attr-defined]  # read back by SchedulerRoute alone
        return endpoint

    return mark


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A query parameter or header: its Python name, its wire name, and how it is read."""

    name: str
    wire_name: str
    adapter: TypeAdapter[Any]
    default: Any


@dataclass(frozen=True, slots=True)
class _Plan:
    """The parameters of an endpoint, computed once. An endpoint open to everyone ignores unknown parameters, because
    probes and scrapers add their own."""

    roles: frozenset[Role]
    path: tuple[str, ...]
    query: tuple[_Parameter, ...]
    headers: tuple[_Parameter, ...]
    body_name: str | None
    body: TypeAdapter[Any] | None
    body_required: bool


class SchedulerRoute(APIRoute):
    """A route whose endpoint returns a plain mapping (or a Response), and whose errors are problems."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **declared: Any) -> None:
        super().__init__(path, endpoint, **declared)
        answer_of = self._answer_of()

        # Our endpoints have no dependencies, so FastAPI's exit stacks are not needed.
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            call = Call(scope, receive)
            content = await answer_of(call)
            if isinstance(content, Response):
                await content(scope, receive, send)
            else:
                await send_answer(content, send, packed=wants_msgpack(call))

        self.app = serve

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI asks for one; `serve` takes its place."""

        async def unused(request: Request) -> Response:
            raise NotImplementedError

        return unused

    def _answer_of(self) -> Callable[[Call], Coroutine[Any, Any, Response | Mapping[str, Any]]]:
        endpoint, template = self.endpoint, self.path_format
        roles: frozenset[Role] = endpoint.roles  # type: ignore[attr-defined]  # set by `reach`
        plan = _plan(endpoint, roles, set(self.param_convertors))

        async def handle(call: Call) -> Response | Mapping[str, Any]:
            call.scope["route_template"] = template
            try:
                check_browser(call, call.access)
                call.principal = identify(call, call.access, roles)
                with deadline.within(_seconds_for(call)):
                    arguments = await _read(plan, call)
                    content: Response | Mapping[str, Any] = await endpoint(call, **arguments)
            except SchedulerError as error:
                if not status_of(error).shows_detail:
                    log.exception("a call failed inside the scheduler", route=template, detail=error.full_detail)
                forget_frames(error)
                return problem_response(error, call, to_operator=call.principal.role is Role.ADMIN)
            return content

        return handle


def noun_router(noun: str) -> APIRouter:
    """A router for the endpoints of one noun; each may answer any problem. An operation is named after its function,
    which is named after the ledger's script where it has one."""
    return APIRouter(
        route_class=SchedulerRoute,
        tags=[noun],
        responses=PROBLEM_RESPONSES,
        generate_unique_id_function=lambda route: route.name,
    )


def problem_response(error: SchedulerError, request: Request, *, to_operator: bool = False) -> Response:
    """The answer to an error, in the caller's format; only operators are shown the ledger's address."""
    status = status_of(error)
    headers: dict[str, str] = {}
    pause = retry_after_seconds(error)
    if pause is not None:
        headers["Retry-After"] = str(int(pause))  # the header allows whole seconds only
    if status.http == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="agentenv-scheduler"'
    members = problem(error, to_operator=to_operator)
    recorded = members.get("reservation")
    if isinstance(recorded, Reservation):
        members["reservation"] = reservation_view(recorded)
    return answer(members, packed=wants_msgpack(request), status=status.http, headers=headers or None, problem=True)


def _seconds_for(call: Call) -> float:
    """The time limit of this request: the operator's, or a shorter one that the caller asks for."""
    most_ms = call.options.request_timeout_ms
    wanted = single_header(call, TIMEOUT_HEADER)
    if wanted is None:
        return most_ms / 1000
    try:
        wanted_ms = parse_duration(wanted)
    except ValueError:
        raise refuse("X-Request-Timeout", wanted, DURATION_FORM) from None
    if wanted_ms <= 0:
        raise refuse("X-Request-Timeout", wanted, "a duration above 0")
    return min(wanted_ms, most_ms) / 1000


def _plan(endpoint: Callable[..., Any], roles: frozenset[Role], path_names: set[str]) -> _Plan:
    hints = get_type_hints(endpoint, include_extras=True)
    path, query, headers = [], [], []
    body_name, body, body_required = None, None, False
    for name, parameter in list(inspect.signature(endpoint).parameters.items())[1:]:
        hint, default = hints[name], parameter.default
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        header = next((mark for mark in marks if isinstance(mark, params.Header)), None)
        if name in path_names:
            path.append(name)
        elif _is_body(hint):
            body_name, body, body_required = name, TypeAdapter(hint), default is inspect.Parameter.empty
        elif header is not None:
            headers.append(_Parameter(name, str(header.alias), TypeAdapter(hint), default))
        else:
            query.append(_Parameter(name, name, TypeAdapter(hint), default))
    return _Plan(roles, tuple(path), tuple(query), tuple(headers), body_name, body, body_required)


def _is_body(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_body(get_args(hint)[0])
    if get_origin(hint) in {Union, UnionType}:
        return all(member is NoneType or _is_body(member) for member in get_args(hint))
    return inspect.isclass(hint) and issubclass(hint, Body)


async def _read(plan: _Plan, call: Call) -> dict[str, Any]:
    """The endpoint's arguments. Raises InvalidRequest, Malformed, PayloadTooLarge, UnsupportedMediaType."""
    arguments: dict[str, Any] = {name: _path_text(name, call.path_params[name]) for name in plan.path}
    if plan.query or (plan.roles and call.scope["query_string"]):
        _check_query_text(call.scope["query_string"])
        _read_query(plan, call.query_params, arguments)
    for parameter in plan.headers:
        given = single_header(call, parameter.wire_name)
        arguments[parameter.name] = parameter.default if given is None else _value(parameter, given)
    if plan.body is not None and plan.body_name is not None:
        raw = await read_body(call, call.options.body_bytes_max)
        if raw:
            packed = body_is_msgpack(call, must_say=call.access.exposed_to_browsers)
            arguments[plan.body_name] = decode(plan.body, raw, packed)
        elif plan.body_required:
            raise Malformed("the body is empty", [FieldError("body", None, "a JSON or MessagePack object")])
        else:
            arguments[plan.body_name] = None
    return arguments


def _check_query_text(query: bytes) -> None:
    """Raises InvalidRequest for parameters that are not UTF-8, which would be read as something else."""
    if b"%" not in query:
        return
    for part in query.split(b"&"):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            name = part.partition(b"=")[0].decode("ascii", "replace")
            raise InvalidRequest.field(name, shown(part.decode("ascii", "replace")), "text in UTF-8") from None


def _read_query(plan: _Plan, given: QueryParams, arguments: dict[str, Any]) -> None:
    known = {parameter.wire_name for parameter in plan.query}
    items = given.multi_items()
    # A mistyped filter would silently be ignored, and a mistyped `remove` would unregister.
    wrong = [
        FieldError(name, shown(text), "absent: there is no such parameter") for name, text in items if name not in known
    ]
    names = [name for name, _ in items]
    wrong += [FieldError(name, shown(given[name]), "given once") for name in known if names.count(name) > 1]
    if wrong:
        raise InvalidRequest("not valid: query parameters", wrong[:ERRORS_SHOWN])
    for parameter in plan.query:
        text = given.get(parameter.wire_name, "")
        # Blank, or blank space alone, counts as absent, except for a switch.
        if trim(text) or (isinstance(parameter.default, bool) and parameter.wire_name in given):
            arguments[parameter.name] = _value(parameter, text)
        elif parameter.default is inspect.Parameter.empty:
            raise InvalidRequest.field(parameter.wire_name, None, "present: this parameter is required")
        else:
            arguments[parameter.name] = parameter.default


def _value(parameter: _Parameter, text: str) -> Any:
    try:
        return parameter.adapter.validate_python(text)
    except ValidationError as error:
        raise invalid_parameter(parameter.wire_name, error) from None


def _path_text(name: str, raw: str) -> str:
    """A path segment as an id. It is unescaped here, so that an id may contain a slash."""
    try:
        return clean_id(name, unquote(raw, errors="strict") if "%" in raw else raw)
    except UnicodeDecodeError:
        raise refuse(name, raw, ID_FORM) from None
