"""Finds the endpoint of a request without trying one route after the other.

Routes are found by method and path, and by the places at which their paths have parameters. What is not found so, an
unknown path or method among it, goes the framework's way, which says why.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.convertors import StringConvertor
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

# Method, number of segments; the segments with "" for parameters.
_Shape = tuple[str, int]


class Dispatch:
    """Calls the endpoint of a request, or `otherwise` (the whole application) when it knows none."""

    def __init__(self, routes: Iterable[BaseRoute], otherwise: ASGIApp) -> None:
        self._otherwise = otherwise
        self._exact: dict[tuple[str, str], ASGIApp] = {}
        self._places: dict[_Shape, list[tuple[int, ...]]] = {}
        self._by_literals: dict[tuple[str, tuple[str, ...]], tuple[ASGIApp, tuple[str, ...]]] = {}
        for route in routes:
            if isinstance(route, Route):
                self._add(route)

    def _add(self, route: Route) -> None:
        methods = route.methods or set()
        if not route.param_convertors:
            for method in methods:
                self._exact.setdefault((method, route.path), route.app)
            return
        if any(type(convertor) is not StringConvertor for convertor in route.param_convertors.values()):
            return
        segments = route.path.split("/")
        places = tuple(place for place, segment in enumerate(segments) if "{" in segment)
        if any(segments[place] != f"{{{segments[place][1:-1]}}}" for place in places):
            return  # a parameter that is a part of a segment
        literals = tuple("" if place in places else segment for place, segment in enumerate(segments))
        names = tuple(segments[place][1:-1] for place in places)
        for method in methods:
            known = self._places.setdefault((method, len(segments)), [])
            if places not in known:
                known.append(places)
            self._by_literals.setdefault((method, literals), (route.app, names))

    def find(self, method: str, path: str) -> tuple[ASGIApp, dict[str, str]] | None:
        """The endpoint's application and its path parameters as they were sent."""
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact, {}
        segments = path.split("/")
        for places in self._places.get((method, len(segments)), ()):
            literals = segments.copy()
            for place in places:
                literals[place] = ""
            found = self._by_literals.get((method, tuple(literals)))
            if found is not None:
                values = [segments[place] for place in places]
                return (found[0], dict(zip(found[1], values, strict=True))) if all(values) else None
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope["method"], scope["path"])
        if found is None:
            await self._otherwise(scope, receive, send)
            return
        endpoint, scope["path_params"] = found
        await endpoint(scope, receive, send)
