"""The OpenAPI document: complete, and true when a machine takes it at its word."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, get_args
from urllib.parse import unquote

import fakeredis
import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode

from scheduler.api.http import HttpOptions, answers, create_app
from scheduler.api.http.descriptions import MEANINGS
from scheduler.api.http.routes import heartbeats, nodes, reservations
from scheduler.connection.client import StoreOptions
from scheduler.domain.limits import ID_BYTES_MAX, SAFE_INTEGER_MAX
from scheduler.domain.node import DiscoveryState, NodeStatus
from scheduler.domain.reservation import Lifecycle, ReservationState
from scheduler.domain.sandbox import SandboxEventType
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import open_ledger
from scheduler.ledger.node_pages import SORTS
from scheduler.service import build_services
from scheduler.service.checks import trim

DURATIONS = st.integers(1, 86_400_000).map(lambda value: f"{value}ms") | st.sampled_from(["30s", "1m30s", "24h"])
schemathesis.openapi.format("duration-go", DURATIONS)
schemathesis.openapi.format("uri", st.from_regex(r"\Ahttps?://[a-z0-9.-]{1,40}(:[0-9]{1,5})?(/[a-z0-9/]{0,20})?\Z"))

# A short look in every run; the soak profile looks for long.
EXAMPLES = max(5, settings().max_examples // 4)

# Every call API.md names, and what the command line asks beside them: settings and replicas.
PATHS = {
    "/v1/schedule": {"post"},
    "/v1/schedule/batch": {"post"},
    "/v1/explain": {"post"},
    "/v1/hints": {"post"},
    "/v1/reservations": {"get"},
    "/v1/reservations/cancel": {"post"},
    "/v1/reservations/{reservation_id}": {"get"},
    "/v1/reservations/{reservation_id}/confirm": {"post"},
    "/v1/reservations/{reservation_id}/cancel": {"post"},
    "/v1/reservations/{reservation_id}/renew": {"post"},
    "/v1/nodes": {"get", "put"},
    "/v1/nodes/{node_id}": {"get", "put", "delete"},
    "/v1/nodes/{node_id}/heartbeat": {"post"},
    "/v1/nodes/{node_id}/cordon": {"post"},
    "/v1/nodes/{node_id}/uncordon": {"post"},
    "/v1/nodes/{node_id}/events": {"post"},
    "/v1/bindings/{sandbox_id}": {"get", "put"},
    "/v1/templates": {"get"},
    "/v1/templates/{template_id}": {"get", "put", "delete"},
    "/v1/groups": {"get"},
    "/v1/warm-keys": {"get"},
    "/v1/artifacts": {"get", "put", "delete"},
    "/v1/settings": {"get"},
    "/v1/replicas": {"get"},
    "/v1/summary": {"get"},
    "/v1/decisions": {"get"},
    "/v1/audit": {"get"},
    "/healthz": {"get"},
    "/readyz": {"get"},
}


async def test_the_document_names_every_call(embedded_api: httpx.AsyncClient) -> None:
    document = (await embedded_api.get("/openapi.json")).json()
    assert {path: set(operations) for path, operations in document["paths"].items()} == PATHS


async def test_every_call_documents_messagepack_and_problems(embedded_api: httpx.AsyncClient) -> None:
    document = (await embedded_api.get("/openapi.json")).json()
    for operations in document["paths"].values():
        for operation in operations.values():
            assert set(operation["responses"]["200"]["content"]) == {"application/json", "application/msgpack"}
            assert "application/problem+json" in operation["responses"]["503"]["content"]
            assert "Retry-After" in operation["responses"]["503"]["headers"]
            assert set(operation.get("requestBody", {"content": {}})["content"]) in (
                set(),
                {"application/json", "application/msgpack"},
            )


async def test_every_operation_member_and_parameter_is_described(embedded_api: httpx.AsyncClient) -> None:
    document = (await embedded_api.get("/openapi.json")).json()
    wordless = [
        f"{model}.{name}"
        for model, schema in document["components"]["schemas"].items()
        for name, member in schema.get("properties", {}).items()
        if not member.get("description")
    ]
    for operations in document["paths"].values():
        for operation in operations.values():
            wordless += [] if operation.get("summary") else [operation["operationId"]]
            parameters = operation.get("parameters", ())
            wordless += [
                f"{operation['operationId']}.{each['name']}" for each in parameters if not each.get("description")
            ]
    assert wordless == [], "scheduler/api/http/descriptions.py is where a name gets its description"


async def test_every_described_name_occurs_in_the_document(embedded_api: httpx.AsyncClient) -> None:
    document = (await embedded_api.get("/openapi.json")).json()
    names = {
        place
        for model, schema in document["components"]["schemas"].items()
        for name in schema.get("properties", {})
        for place in (name, f"{model}.{name}")
    }
    for operations in document["paths"].values():
        for operation in operations.values():
            for each in operation.get("parameters", ()):
                names |= {each["name"], f"{operation['operationId']}.{each['name']}"}
    assert set(MEANINGS) <= names


async def test_operations_are_named_by_what_they_do(embedded_api: httpx.AsyncClient) -> None:
    document = (await embedded_api.get("/openapi.json")).json()
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names)
    assert {"schedule_sandbox", "confirm_reservation", "record_heartbeat", "lookup_binding"} <= set(names)


def test_the_documents_choices_are_the_domains() -> None:
    choices: list[tuple[Any, type[StrEnum]]] = [
        (answers.Status, NodeStatus),
        (answers.ReservationAnswer.model_fields["state"].annotation, ReservationState),
        (answers.ReservationAnswer.model_fields["lifecycle"].annotation, Lifecycle),
        (nodes.ListedNodeAnswer.model_fields["state"].annotation, DiscoveryState),
        (reservations.State, ReservationState),
        (heartbeats.SandboxEventBody.model_fields["event_type"].annotation, SandboxEventType),
    ]
    assert set(get_args(nodes.NodeSort)) == {sign + name for name in SORTS for sign in ("", "-")} | {""}
    for literal, enum in choices:
        assert set(get_args(literal)) == {member.value for member in enum}


@pytest.mark.parametrize("path", ["/docs", "/"])
async def test_a_page_brings_all_it_needs(embedded_api: httpx.AsyncClient, path: str) -> None:
    answer = await httpx.AsyncClient(transport=embedded_api._transport, base_url="http://scheduler").get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"""(src|href|@import|url\()\s*=?\s*["']?\w+:""", answer.text)
    assert "</html>" in answer.text


class LiveServer:
    """The application on a loopback port, over an embedded ledger, in a thread of its own."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        ledger = await open_ledger(options=StoreOptions(fake_server=fakeredis.FakeServer()))
        await ledger.settings.put(LedgerSettings(), "test")
        app = create_app(build_services(ledger), options=HttpOptions(request_timeout_ms=60_000))
        self.server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
        # Bound and listening before anyone is told: a connection then waits for the server, not the server for it.
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self._started.set()
        await self.server.serve(sockets=[listening])
        await ledger.close()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._started.wait(30)
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)


@pytest.fixture(scope="module")
def live_url() -> Iterator[str]:
    with LiveServer() as url:
        httpx.put(f"{url}/v1/nodes/node-a", json={"endpoint": "http://node-a:8000"}).raise_for_status()
        yield url


@pytest.fixture(scope="module")
def live_schema(live_url: str) -> Any:
    return schemathesis.openapi.from_url(f"{live_url}/openapi.json")


# What JSON Schema cannot say, and the checks that would need it to.
BEYOND_THE_SCHEMA = {
    # A key is ignored, broken or not, when nothing is created; and settings say which resources there are.
    ("/v1/schedule", "post"): "negative_data_rejection positive_data_acceptance",
    # A blank filter, limit or cursor is none.
    ("/v1/reservations", "get"): "negative_data_rejection",
    ("/v1/templates", "get"): "negative_data_rejection",
    ("/v1/decisions", "get"): "negative_data_rejection",
    ("/v1/audit", "get"): "negative_data_rejection",
    ("/v1/groups", "get"): "negative_data_rejection",
    # Likewise; and cursors of one key are numbers.
    ("/v1/warm-keys", "get"): "negative_data_rejection positive_data_acceptance",
    # Likewise; and which cursors there are depends on what the page is sorted by.
    ("/v1/nodes", "get"): "negative_data_rejection positive_data_acceptance",
    ("/v1/explain", "post"): "negative_data_rejection positive_data_acceptance",
    # How many go with what; and again resources.
    ("/v1/schedule/batch", "post"): "positive_data_acceptance",
    ("/v1/bindings/{sandbox_id}", "put"): "positive_data_acceptance",  # the pair must be one that is listed
    ("/v1/nodes", "put"): "positive_data_acceptance",  # one id may not be listed with two endpoints
    ("/v1/nodes/{node_id}", "delete"): "positive_data_acceptance",  # one of its two parameters, not both
}

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def sent_path_is_allowed(case: Any) -> bool:
    """The generator reads a percent sign in a text as an escape, so that `%01` is sent as a control character; and
    JSON Schema counts characters where ids are counted in bytes."""
    ids = [unquote(value) for value in (case.path_parameters or {}).values()]
    return all(
        sent.strip() and not CONTROL_CHARACTER.search(sent) and len(sent.encode()) <= ID_BYTES_MAX for sent in ids
    )


def is_as_sent(case: Any) -> bool:
    """White space around an id is trimmed, which no schema can say: what breaks it by that alone is allowed."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield unquote(value)
        elif isinstance(value, dict | list):
            for each in [*value, *value.values()] if isinstance(value, dict) else value:
                yield from texts(each)

    parts = (case.path_parameters, case.query, case.body)
    return all(trim(text) == text for part in parts for text in texts(part))


def sums_are_allowed(case: Any) -> bool:
    """Allocated and paused memory are each held to 2^53-1 by the schema, and so is their sum, which it cannot say."""
    snapshot = case.body.get("snapshot") if isinstance(case.body, dict) else None
    if not isinstance(snapshot, dict):
        return True
    parts = (snapshot.get("allocated_memory_bytes"), snapshot.get("paused_allocated_memory_bytes"))
    return sum(part for part in parts if isinstance(part, int | float)) <= SAFE_INTEGER_MAX


def full_fleet(response: Any) -> list[Any]:
    """What a request that no node of this fleet can take is exempt from: 503 with reasons is the right answer to it."""
    refused = response.status_code == 503 and response.json()["code"] == "no_nodes"
    return [CHECKS.get_one("not_a_server_error")] if refused else []


OPERATIONS = [(path, method) for path, methods in PATHS.items() for method in sorted(methods)]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_what_the_document_allows_and_forbids_is_answered_as_it_says(
    live_schema: Any, path: str, method: str, mode: GenerationMode
) -> None:
    operation = live_schema[path][method]
    stated = operation.definition.raw
    if mode is GenerationMode.NEGATIVE and not stated.get("parameters") and not stated.get("requestBody"):
        pytest.skip("it takes nothing that could be wrong")
    excluded = [CHECKS.get_one(name) for name in BEYOND_THE_SCHEMA.get((path, method), "").split()]

    # The generator drops what it made where that is no fault after all, sometimes most of it, by the order of its sets.
    @settings(
        max_examples=EXAMPLES, suppress_health_check=[*settings().suppress_health_check, HealthCheck.filter_too_much]
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if mode is GenerationMode.NEGATIVE:
            assume(is_as_sent(case))
        else:
            assume(sent_path_is_allowed(case) and sums_are_allowed(case))
        response = case.call(timeout=60)
        case.validate_response(response, excluded_checks=[*excluded, *full_fleet(response)])

    ask()
