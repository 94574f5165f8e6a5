"""An HTTP client on the application over both ledgers, and a second one over the embedded ledger alone.

Whatever a test asks, the answer is also held to the shape that the OpenAPI document gives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import msgpack
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Match

from scheduler.access.policy import AccessPolicy
from scheduler.api.http import HttpOptions, create_app
from scheduler.api.http.answers import ProblemAnswer
from scheduler.ledger.ledger import Ledger
from scheduler.service import Services, build_services

OpenApi = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def hold_to_document(app: FastAPI, response: httpx.Response) -> None:
    """The answer has the shape the document promises for its route, and the form its Content-Type names."""
    packed = response.headers["content-type"] == "application/msgpack"
    content = msgpack.unpackb(response.content) if packed else None
    if response.status_code >= 400:
        assert response.headers["content-type"] in {"application/problem+json", "application/msgpack"}
        problem = ProblemAnswer.model_validate(content if packed else response.json())
        assert problem.status == response.status_code
        assert ("retry-after" in response.headers) == (response.status_code == 503)
        return
    for route in app.router.routes:
        scope = {"type": "http", "method": response.request.method, "path": response.request.url.raw_path.decode()}
        scope["path"] = scope["path"].partition("?")[0]
        if isinstance(route, APIRoute) and route.include_in_schema and route.matches(scope)[0] is Match.FULL:
            shape: TypeAdapter[Any] = TypeAdapter(route.response_model)
            if packed:
                shape.validate_python(content)
            else:
                shape.validate_json(response.content)


@asynccontextmanager
async def open_client(
    services: Services, options: HttpOptions | None = None, access: AccessPolicy | None = None, **client: Any
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(services, options=options, access=access)

    async def judge(response: httpx.Response) -> None:
        await response.aread()
        hold_to_document(app, response)

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    hooks = {"response": [judge]}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://scheduler", event_hooks=hooks, **client
    ) as opened:
        yield opened


@pytest.fixture
async def api(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    """The API over a ledger with default settings, embedded and real."""
    async with open_client(services) as opened:
        yield opened


@pytest.fixture
async def embedded_api(embedded_ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    """For what happens before a ledger is asked, or when it fails."""
    async with open_client(build_services(embedded_ledger)) as opened:
        yield opened


COLD_2_CPU = {"kind": "cold_sandbox", "cpu_count": 2, "memory_mb": 4096}


@pytest.fixture
async def node_a(api: httpx.AsyncClient) -> str:
    """A listed node of 4 CPUs and 8 GiB that has reported."""
    await list_node(api, "node-a", cpu_count=4, memory_gib=8)
    return "node-a"


async def list_node(api: httpx.AsyncClient, node_id: str, cpu_count: int = 4, memory_gib: int = 8) -> None:
    listed = await api.put(f"/v1/nodes/{node_id}", json={"endpoint": f"http://{node_id}:8000"})
    assert listed.status_code == 200
    reported = await report(api, node_id, cpu_count=cpu_count, memory_total_bytes=memory_gib * 2**30)
    assert reported.status_code == 200


async def report(
    api: httpx.AsyncClient, node_id: str, sandbox_ids: list[str] | None = None, **figures: Any
) -> httpx.Response:
    body: dict[str, Any] = {
        "service_instance_id": f"svc-{node_id}",
        "cluster_id": "c1",
        "snapshot": {"status": "ready", **figures},
    }
    if sandbox_ids is not None:
        body["sandbox_ids"] = sandbox_ids
    return await api.post(f"/v1/nodes/{node_id}/heartbeat", json=body)
