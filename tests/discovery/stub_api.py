"""A Kubernetes API server as far as discovery needs one: two lists with real watch streams.

Tests change objects with `put` and `delete`, and break things with `compact` (old versions become
410 Gone), `cut` (connections drop mid-stream), `refuse` (the next calls fail) and `bookmark`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Object = dict[str, Any]

SLICES = "endpointslices"
PODS = "pods"


class StubApi:
    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.history: deque[tuple[int, str, str, Object]] = deque()
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.refusals: deque[int] = deque()
        self.gone_as_event = False
        self._moved = asyncio.Event()
        self._streams: set[asyncio.Task[Any]] = set()
        self._transports: set[asyncio.Transport] = set()
        self._bookmarked = 0

    # What tests do to it

    def put(self, kind: str, item: Object) -> None:
        name = item["metadata"]["name"]
        change = "MODIFIED" if (kind, name) in self.objects else "ADDED"
        self.version += 1
        stored = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self.objects[kind, name] = stored
        self._record(change, kind, stored)

    def delete(self, kind: str, name: str) -> None:
        item = self.objects.pop((kind, name))
        self.version += 1
        self._record("DELETED", kind, {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}})

    def compact(self) -> None:
        """Whoever watches from before now is told 410."""
        self.oldest = self.version
        self.history.clear()

    def bookmark(self) -> None:
        """Versions move on without an object of ours having changed."""
        self.version += 10
        self._bookmarked = self.version
        self._wake()

    def cut(self) -> None:
        """Drop every open watch in the middle of its stream."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    def refuse(self, *statuses: int) -> None:
        self.refusals.extend(statuses)

    def lists(self, kind: str) -> int:
        return sum(1 for called, query in self.calls if called == kind and "watch" not in query)

    def watches(self, kind: str) -> list[str]:
        return [query["resourceVersion"] for called, query in self.calls if called == kind and "watch" in query]

    # What it serves

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", self._slices)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods", self._pods)
        return app

    async def _slices(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(SLICES, request)

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(PODS, request)

    async def _serve(self, kind: str, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.calls.append((kind, query))
        if self.refusals:
            return web.json_response({"kind": "Status"}, status=self.refusals.popleft())
        if "watch" in query:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            with contextlib.suppress(ConnectionResetError):  # cut in the middle
                return await self._watch(kind, request, query, response)
            return response
        items = [item for item in self._of(kind) if selected(item, query.get("labelSelector", ""))]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(
        self, kind: str, request: web.Request, query: dict[str, str], response: web.StreamResponse
    ) -> web.StreamResponse:
        seen = int(query["resourceVersion"])
        if seen < self.oldest and not self.gone_as_event:
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        await response.prepare(request)
        assert request.transport is not None
        self._transports.add(request.transport)
        ends_at = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        while (left := ends_at - asyncio.get_running_loop().time()) > 0:
            moved = self._moved
            if seen < self.oldest:
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                await self._send(response, "ERROR", status)
                break
            for version, change, changed_kind, item in list(self.history):
                if version > seen and changed_kind == kind and selected(item, query.get("labelSelector", "")):
                    await self._send(response, change, item)
                seen = max(seen, version)
            # Also one from before the watch began: whoever watches from an older version is told.
            if self._bookmarked > seen:
                seen = self.version
                await self._send(response, "BOOKMARK", {"metadata": {"resourceVersion": str(seen)}})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await moved.wait()
        self._transports.discard(request.transport)
        return response

    async def _send(self, response: web.StreamResponse, change: str, item: Object) -> None:
        await response.write(json.dumps({"type": change, "object": item}).encode() + b"\n")

    def _of(self, kind: str) -> Iterator[Object]:
        return (item for (of_kind, _), item in self.objects.items() if of_kind == kind)

    def _record(self, change: str, kind: str, item: Object) -> None:
        self.history.append((self.version, change, kind, item))
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


@asynccontextmanager
async def served(api: StubApi) -> AsyncIterator[str]:
    """Its address, on a free loopback port."""
    runner = web.AppRunner(api.app(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        api.cut()
        await runner.cleanup()


def selected(item: Object, selector: str) -> bool:
    """Equality only; that is all the tests use."""
    labels = item["metadata"].get("labels", {})
    pairs = (part.split("=", 1) for part in selector.split(",") if part)
    return all(labels.get(key.strip()) == value.strip() for key, value in pairs)


# Objects


def endpoint(pod: str, *addresses: str, serving: bool | None = True, terminating: bool = False) -> Object:
    return {
        "addresses": list(addresses),
        "conditions": {"ready": False, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "name": pod},
    }


def endpoint_slice(name: str, *endpoints: Object, port: int = 8000, family: str = "IPv4") -> Object:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "nodes"}},
        "addressType": family,
        "ports": [{"name": "metrics", "port": 9100}, {"name": "http", "port": port}],
        "endpoints": list(endpoints),
    }


def pod(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}
