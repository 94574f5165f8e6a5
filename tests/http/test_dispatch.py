"""Finding an endpoint in one step: the same one that the framework would find, or none."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.convertors import StringConvertor
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from scheduler.api.http import create_app
from scheduler.api.http.dispatch import Dispatch
from scheduler.service import build_services
from tests.support.embedded import unopened_ledger

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(build_services(unopened_ledger()))


def paths_of(app: FastAPI) -> set[str]:
    """Every path with an id, with one that looks like a word of another path, with an empty one, and a few more."""
    written = {route.path for route in app.router.routes if isinstance(route, Route)}
    words = {segment for path in written for segment in path.split("/") if segment and "{" not in segment}
    filled = set(written) | {"/", "", "//", "/v1", "/nowhere"}
    for path in written:
        segments = path.split("/")
        for value in ("node-a", "a%2Fb", "", *words):
            filled.add("/".join(value if "{" in segment else segment for segment in segments))
        filled |= {f"{path}/", f"/{path}", path.replace("/v1", "/v2")}
    return filled


def of_framework(app: FastAPI, method: str, path: str) -> tuple[ASGIApp, dict[str, str]] | None:
    for route in app.router.routes:
        match, scope = route.matches({"type": "http", "method": method, "path": path})
        if match is Match.FULL:
            assert isinstance(route, Route)
            if any(type(convertor) is not StringConvertor for convertor in route.param_convertors.values()):
                return None  # left to the framework
            return route.app, dict(scope["path_params"])
    return None


def test_a_request_reaches_the_endpoint_that_the_framework_would_find(app: FastAPI) -> None:
    async def otherwise(*_: object) -> None:
        raise AssertionError("only find is asked here")

    dispatch = Dispatch(app.router.routes, otherwise)
    found = 0
    for path in paths_of(app):
        for method in METHODS:
            expected = of_framework(app, method, path)
            assert dispatch.find(method, path) == expected, (method, path)
            found += expected is not None
    assert found > 100
