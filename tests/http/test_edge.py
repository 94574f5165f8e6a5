"""What happens to every request: ids, deadlines, load, defects, and the form of answers."""

from __future__ import annotations

import asyncio
import re

import httpx
import msgpack
import pytest

from scheduler import deadline
from scheduler.api.http import HttpOptions, create_app, create_metrics_app
from scheduler.connection.replicas import RedisReplicas
from scheduler.domain.placement import Decision, ScheduleRequest
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import (
    DeadlineExceeded,
    NotRebuilt,
    Overloaded,
    SchedulerError,
    ScriptError,
    StoreUnavailable,
    StoreUnusable,
)
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.http.conftest import open_client
from tests.support.backends import put_settings
from tests.support.embedded import fail_with, note_calls, sent_to, unopened_ledger


async def test_a_request_id_is_taken_over_when_it_is_fit_to_be_logged(embedded_api: httpx.AsyncClient) -> None:
    answer = await embedded_api.get("/healthz", headers={"X-Request-Id": "req-1.A_z"})
    assert answer.headers["x-request-id"] == "req-1.A_z"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "a\tb", "a;b", 'a"'])
async def test_an_unfit_request_id_is_replaced(embedded_api: httpx.AsyncClient, given: str) -> None:
    answer = await embedded_api.get("/nowhere", headers={"X-Request-Id": given})
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_the_request_id_reaches_the_reservation(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = note_calls(monkeypatch, embedded_ledger.placements, "schedule")
    await embedded_api.put("/v1/nodes/a", json={"endpoint": "http://a:1"})
    await embedded_api.post("/v1/schedule", json={"hint": {"kind": "sandbox"}}, headers={"X-Request-Id": "r-7"})
    ((request,),) = asked
    assert isinstance(request, ScheduleRequest)
    assert (request.request_id, request.caller) == ("r-7", "anonymous")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnavailable("no route to the ledger"), 503, "store_unavailable"),
        (StoreUnusable("READONLY"), 503, "store_unavailable"),
        (NotRebuilt("rebuilding"), 503, "not_rebuilt"),
        (Overloaded("a backlog"), 503, "overloaded"),
        (DeadlineExceeded("too late"), 504, "deadline_exceeded"),
        (ScriptError("@user_script:7: attempt to index nil"), 500, "internal"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/bindings/s1", "/v1/nodes", "/v1/reservations/r1"])
async def test_what_the_ledger_says_reaches_the_caller_as_a_problem(
    embedded_api: httpx.AsyncClient,
    embedded_ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    error: SchedulerError,
    status: int,
    code: str,
    path: str,
) -> None:
    fail_with(monkeypatch, embedded_ledger, error)
    answer = await embedded_api.get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "user_script" not in answer.text


async def test_what_a_caller_is_not_shown_of_an_inner_error_is_in_the_log(
    embedded_api: httpx.AsyncClient,
    embedded_ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail_with(monkeypatch, embedded_ledger, ScriptError("schedule_sandbox: attempt to index nil"))
    assert (await embedded_api.post("/v1/schedule")).status_code == 500
    # Where a test before this one configured logging, it goes by way of the standard library.
    written = capsys.readouterr()
    assert "schedule_sandbox: attempt to index nil" in written.out + written.err + caplog.text


async def test_a_defect_is_a_problem_without_its_trace(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(request: ScheduleRequest) -> Decision:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(embedded_ledger.placements, "schedule", broken)
    answer = await embedded_api.post("/v1/schedule")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PATCH", "/v1/nodes/a", "DELETE, GET, PUT"),
        ("GET", "/v1/schedule", "POST"),
        ("DELETE", "/healthz", "GET"),
        ("POST", "/v1/artifacts", "DELETE, GET, PUT"),
    ],
)
async def test_a_wrong_method_is_answered_with_the_right_ones(
    embedded_api: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    answer = await embedded_api.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow
    assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/v1", "/v1/nodes/", "/v1/nodes/a/b", "/v2/schedule", "/%2e%2e/etc"])
async def test_an_unknown_path_is_a_problem_too(embedded_api: httpx.AsyncClient, path: str) -> None:
    answer = await embedded_api.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("accept", "content_type", "packed"),
    [
        (None, None, False),
        ("*/*", "application/json", False),
        ("*/*", "application/msgpack", True),
        ("application/msgpack", None, True),
        ("application/msgpack", "application/json", True),
        ("application/x-msgpack;q=0.9, */*", None, True),
        ("application/json", "application/msgpack", False),
        ("text/html", "application/json", False),
        ("application/msgpack;q=0", "application/json", False),
        ("application/msgpack; Q = 0.00; x=1, application/json", "application/msgpack", False),
        ("application/json;q=0, application/msgpack;q=0.5", None, True),
    ],
)
async def test_answers_come_in_the_form_that_was_asked_for(
    embedded_api: httpx.AsyncClient, accept: str | None, content_type: str | None, packed: bool
) -> None:
    body = {"method": "GET", "path": "/"}
    headers = {name: value for name, value in (("Accept", accept), ("Content-Type", content_type)) if value}
    content = msgpack.packb(body) if content_type == "application/msgpack" else b'{"method":"GET","path":"/"}'
    answer = await embedded_api.post("/v1/hints", content=content, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == ("application/msgpack" if packed else "application/json")
    found = msgpack.unpackb(answer.content) if packed else answer.json()
    assert found == {"hint": None, "warnings": []}


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/v1/nodes", 200), ("/nowhere", 404)])
async def test_head_is_get_without_the_body(embedded_ledger: Ledger, path: str, status: int) -> None:
    transport = httpx.ASGITransport(create_app(build_services(embedded_ledger)))
    async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
        answer = await client.head(path)
        assert (answer.status_code, answer.content) == (status, b"")
        assert answer.headers["content-length"] == (await client.get(path)).headers["content-length"]


async def test_problems_speak_messagepack_as_well(embedded_api: httpx.AsyncClient) -> None:
    for path in ("/v1/bindings/nobody", "/nowhere"):
        answer = await embedded_api.get(path, headers={"Accept": "application/msgpack"})
        assert msgpack.unpackb(answer.content)["code"] == "not_found"


async def test_a_caller_may_shorten_its_deadline(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    async def look(request: ScheduleRequest) -> Decision:
        seen.append(deadline.left_ms() or 0)
        raise Overloaded("seen")

    monkeypatch.setattr(embedded_ledger.placements, "schedule", look)
    for wanted in (None, "250ms", "1h"):
        await embedded_api.post("/v1/schedule", headers={"X-Request-Timeout": wanted} if wanted else {})
    assert 9_000 < seen[0] <= 10_000
    assert 0 < seen[1] <= 250
    assert 9_000 < seen[2] <= 10_000


@pytest.mark.parametrize("wanted", ["0.0000001ms", "1ns"])
async def test_a_deadline_that_has_passed_before_anything_began_is_answered_as_one(
    api: httpx.AsyncClient, wanted: str
) -> None:
    answer = await api.get("/v1/nodes", headers={"X-Request-Timeout": wanted})
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")


@pytest.mark.parametrize("wanted", ["0s", "-1s", "soon", "5"])
async def test_a_deadline_that_is_none_is_refused(embedded_api: httpx.AsyncClient, wanted: str) -> None:
    answer = await embedded_api.get("/v1/nodes", headers={"X-Request-Timeout": wanted})
    assert answer.json()["errors"][0]["field"] == "X-Request-Timeout"


@pytest.mark.parametrize("begun", [[], [b'{"method":']], ids=["none of it", "half of it"])
async def test_a_body_that_does_not_arrive_is_held_to_the_deadline(
    embedded_api: httpx.AsyncClient, begun: list[bytes]
) -> None:
    async def half() -> object:
        for part in begun:
            yield part
        await asyncio.Event().wait()

    headers = {"X-Request-Timeout": "20ms", "Content-Type": "application/json"}
    answer = await embedded_api.post("/v1/hints", content=half(), headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")


async def test_beyond_the_load_limit_requests_are_refused_early_and_health_is_not(
    embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def wait(request: ScheduleRequest) -> Decision:
        begun.release()
        await go_on.wait()
        raise StoreUnavailable("done")

    monkeypatch.setattr(embedded_ledger.placements, "schedule", wait)
    services = build_services(embedded_ledger)
    async with open_client(services, HttpOptions(in_flight_max=2)) as api:
        waiting = [asyncio.create_task(api.post("/v1/schedule")) for _ in range(2)]
        for _ in waiting:
            await begun.acquire()
        refused = await api.post("/v1/schedule")
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert (await api.get("/healthz")).status_code == 200
        assert (await api.get("/readyz")).status_code == 200
        go_on.set()
        assert [answer.json()["code"] for answer in await asyncio.gather(*waiting)] == ["store_unavailable"] * 2
        assert (await api.get("/v1/nodes")).status_code == 200
    assert b"agentenv_scheduler_http_shed_total 1.0" in services.metrics.page()


@pytest.mark.parametrize("path", ["/healthz?verbose", "/readyz?probe=1", "/metrics?name[]=up"])
async def test_probes_and_scrapers_may_bring_parameters_of_their_own(
    embedded_api: httpx.AsyncClient, path: str
) -> None:
    assert (await embedded_api.get(path)).status_code == 200


async def test_readiness_says_whose_settings_are_in_force(
    embedded_api: httpx.AsyncClient, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_settings(embedded_ledger, LedgerSettings(revision=3))
    found = await embedded_ledger.settings.get()
    assert found is not None
    ready = await embedded_api.get("/readyz")
    assert ready.json() == {
        "status": "ready",
        "settings": {"strategy": "round_robin", "revision": 3, "epoch": found[1]},
        "redis_replicas": None,
    }
    replicas = embedded_ledger.client.replicas = RedisReplicas(wanted=1, patience_ms=0)
    replicas.note(0)
    ready = await embedded_api.get("/readyz")
    assert (ready.status_code, ready.json()["redis_replicas"]) == (200, {"online": 0, "wanted": 1})
    async with open_client(build_services(unopened_ledger())) as never_opened:
        assert (await never_opened.get("/readyz")).status_code == 503
    fail_with(monkeypatch, embedded_ledger, StoreUnavailable("gone"))
    assert (await embedded_api.get("/readyz")).json()["code"] == "store_unavailable"
    assert (await embedded_api.get("/healthz")).json() == {"status": "ok"}


async def test_a_draining_replica_is_not_ready_and_still_answers(embedded_ledger: Ledger) -> None:
    services = build_services(embedded_ledger)
    async with open_client(services) as api:
        services.readiness.drain()
        assert (await api.get("/readyz")).json()["code"] == "overloaded"
        assert (await api.get("/v1/nodes")).status_code == 200


async def test_metrics_show_agentenvs_names_with_all_statuses(embedded_ledger: Ledger) -> None:
    services = build_services(embedded_ledger)
    async with open_client(services) as api:
        await api.put("/v1/nodes/a", json={"endpoint": "http://a:1"})
        await api.post("/v1/nodes/a/heartbeat", json={"service_instance_id": "i", "snapshot": {"status": "ready"}})
        await api.post("/v1/schedule")
        await services.overview.refresh()
        page = (await api.get("/metrics")).text
    assert 'agentenv_scheduler_schedule_assignments_total{strategy="round_robin"} 1.0' in page
    bucket = "agentenv_scheduler_schedule_duration_seconds_bucket"
    for bound in ("0.001", "0.5", "1", "2.5", "1800", "+Inf"):
        assert f'{bucket}{{le="{bound}",status="ok",strategy="round_robin"}} ' in page
    for status, count in (("ready", 1), ("connecting", 0), ("unhealthy", 0), ("lingering", 0), ("unspecified", 0)):
        assert f'agentenv_scheduler_observed_nodes{{status="{status}"}} {count}.0' in page
    route = 'method="POST",route="/v1/nodes/{node_id}/heartbeat",status="200"'
    assert f"agentenv_scheduler_http_request_duration_seconds_count{{{route}}} 1.0" in page


async def test_a_scrape_asks_the_ledger_nothing(embedded_ledger: Ledger) -> None:
    app = create_metrics_app(build_services(embedded_ledger))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://metrics") as client:
        answer = await client.get("/any/path")
    assert answer.status_code == 200
    assert "agentenv_scheduler_ledger_up 0.0" in answer.text
    assert sent_to(embedded_ledger) == 0
