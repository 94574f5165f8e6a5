"""The OpenAPI document: what FastAPI derives from the endpoints, completed by hand."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from scheduler.api.http.answers import ProblemAnswer
from scheduler.api.http.descriptions import describe
from scheduler.api.http.media import JSON, MSGPACK, PROBLEM_JSON

_PROBLEMS = {
    400: "Not JSON or MessagePack (`malformed`)",
    401: "No API key, or an unknown one (`unauthorized`)",
    403: "The key's role may not make this call (`forbidden`)",
    404: "`not_found`",
    409: "Another state is recorded (`conflict`)",
    413: "`payload_too_large`",
    415: "`unsupported_media_type`",
    422: "A field is not valid (`invalid_request`)",
    500: "A defect of the scheduler (`internal`)",
    503: "`no_nodes`, `overloaded`, `store_unavailable` or `not_rebuilt`; `Retry-After` says when to ask again",
    504: "`deadline_exceeded`",
}
# Under `default` FastAPI would not place the model among the components, so every status names it.
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "model": ProblemAnswer} for status, text in _PROBLEMS.items()
}
_RETRY_AFTER = {
    "description": "Seconds to wait before a retry; varied at random, so that callers do not return together",
    "schema": {"type": "integer"},
}
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def document(app: FastAPI) -> dict[str, Any]:
    """The document, built once per application."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_ABOUT)
        for path in found["paths"].values():
            for operation in path.values():
                _complete(operation)
        describe(found)
        found["components"]["securitySchemes"] = _SECURITY
        found["security"] = [{}, {"bearer": []}, {"key": []}]
        app.openapi_schema = found
    return app.openapi_schema


_ABOUT = "Placement and reservations for AgentENV clusters. JSON by default; MessagePack by Content-Type or Accept."


def _complete(operation: dict[str, Any]) -> None:
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if JSON not in content:
            continue
        if int(status) >= 400:
            content[PROBLEM_JSON] = content.pop(JSON)
            content[MSGPACK] = content[PROBLEM_JSON]
        else:
            content[MSGPACK] = content[JSON]
    operation["responses"]["503"]["headers"] = {"Retry-After": _RETRY_AFTER}
    body = operation.get("requestBody")
    if body is not None:
        body["content"][MSGPACK] = body["content"][JSON]
