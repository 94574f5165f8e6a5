"""The client that ships with the package, against the real API and against a lossy way to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from agentenv_scheduler_client import (
    AsyncSchedulerClient,
    ColdSandbox,
    Conflict,
    InvalidRequest,
    NodeAddress,
    NodeRefused,
    NoNodes,
    NotFound,
    ReservationState,
    SchedulerError,
    StoreUnavailable,
    Unreachable,
)
from agentenv_scheduler_client._async.waiting import AsyncWaiting
from scheduler.api.http import create_app
from scheduler.service import Services
from tests.http.conftest import list_node

HINT = ColdSandbox(cpu_count=2, memory_mb=1024, images=("i",))


@pytest.fixture
async def client(services: Services) -> AsyncIterator[AsyncSchedulerClient]:
    transport = httpx.ASGITransport(create_app(services))
    async with AsyncSchedulerClient("http://scheduler", transport=transport) as opened:
        yield opened


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client paused between attempts, which it does not here."""
    paused: list[float] = []

    async def no_sleep(waiting: AsyncWaiting, seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(AsyncWaiting, "sleep", no_sleep)
    return paused


@pytest.fixture
async def two_nodes(api: httpx.AsyncClient) -> list[str]:
    for node_id in ("node-a", "node-b"):
        await list_node(api, node_id)
    return ["node-a", "node-b"]


async def states(api: httpx.AsyncClient) -> list[str]:
    return [one["state"] for one in (await api.get("/v1/reservations")).json()["reservations"]]


@pytest.mark.usefixtures("two_nodes")
async def test_create_places_starts_and_confirms(client: AsyncSchedulerClient, api: httpx.AsyncClient) -> None:
    async def start(node: NodeAddress) -> str:
        return f"sandbox-on-{node.node_id}"

    sandbox_id = await client.create(HINT, start)
    assert (await client.bindings.lookup(sandbox_id)).node.node_id == sandbox_id.removeprefix("sandbox-on-")
    assert await states(api) == ["confirmed"]


async def test_a_node_that_refuses_is_left_out_and_its_reservation_cancelled(
    client: AsyncSchedulerClient, api: httpx.AsyncClient, two_nodes: list[str]
) -> None:
    tried: list[str] = []

    async def start(node: NodeAddress) -> str:
        tried.append(node.node_id)
        if len(tried) == 1:
            raise NodeRefused
        return "s1"

    await client.create(HINT, start)
    assert sorted(tried) == two_nodes
    assert await states(api) == ["cancelled", "confirmed"]


@pytest.mark.usefixtures("two_nodes")
async def test_when_every_node_refuses_nothing_stays_reserved(
    client: AsyncSchedulerClient, api: httpx.AsyncClient
) -> None:
    async def start(node: NodeAddress) -> str:
        raise NodeRefused

    with pytest.raises(NoNodes) as caught:
        await client.create(HINT, start)
    assert caught.value.reasons == {"excluded": 2}
    with pytest.raises(NodeRefused):
        await client.create(HINT, start, nodes_tried_max=1)
    assert set(await states(api)) == {"cancelled"}


@pytest.mark.usefixtures("two_nodes")
async def test_a_block_that_ends_before_it_looked_at_its_node_is_cancelled(
    client: AsyncSchedulerClient, api: httpx.AsyncClient
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.place(HINT):
            1 / 0  # noqa: B018 - the crash
    async with client.place(HINT):
        pass
    assert await states(api) == ["cancelled", "cancelled"]


@pytest.mark.usefixtures("two_nodes")
async def test_a_task_cancelled_before_it_looked_at_its_node_cancels_and_stays_cancelled(
    client: AsyncSchedulerClient, api: httpx.AsyncClient
) -> None:
    entered = asyncio.Event()

    async def create() -> None:
        async with client.place(HINT):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(create())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await states(api) == ["cancelled"]


@pytest.mark.usefixtures("two_nodes")
async def test_errors_come_back_as_the_errors_they_were(client: AsyncSchedulerClient) -> None:
    with pytest.raises(NotFound):
        await client.bindings.lookup("nobody")
    with pytest.raises(InvalidRequest) as invalid:
        await client.reservations.confirm("r", "\x00")
    assert invalid.value.errors[0].field == "sandbox_id"
    async with client.place(HINT) as placement:
        await placement.confirm("s1")
        with pytest.raises(Conflict) as conflict:
            await client.reservations.cancel(placement.reservation.reservation_id)
        assert conflict.value.reservation is not None
        assert conflict.value.reservation.state is ReservationState.CONFIRMED
        with pytest.raises(Conflict):
            await client.reservations.renew(placement.reservation.reservation_id, 1)


async def test_renew_moves_the_deadline(client: AsyncSchedulerClient, two_nodes: list[str]) -> None:
    async with client.place(HINT, reservation_ttl_seconds=1.5) as placement:
        renewed = await client.reservations.renew(placement.reservation.reservation_id, 90)
        assert renewed.reservation.expires_at_ms == placement.reservation.created_at_ms + 90_000
        await placement.confirm("s1")


class LossyTransport(httpx.AsyncBaseTransport):
    """Delivers every request, and loses the answers it is told to lose."""

    def __init__(self, app: Any, lost: int) -> None:
        self._inner = httpx.ASGITransport(app)
        self._lost = lost

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        if self._lost > 0:
            self._lost -= 1
            raise httpx.ReadError("connection reset")
        return answer


@pytest.mark.usefixtures("two_nodes")
async def test_a_lost_answer_is_asked_for_again_and_reserves_once(
    services: Services, api: httpx.AsyncClient, pauses: list[float]
) -> None:
    transport = LossyTransport(create_app(services), lost=2)
    async with AsyncSchedulerClient("http://scheduler", transport=transport) as client:
        decision = await client.schedule(HINT)
    assert decision.replayed is True
    assert await states(api) == ["pending"]
    assert pauses == sorted(pauses)
    assert len(pauses) == 2


async def answering(answer: httpx.Response, **options: Any) -> SchedulerError:
    """The error a client raises when every answer is this one."""
    transport = httpx.MockTransport(lambda request: answer)
    async with AsyncSchedulerClient("http://scheduler", transport=transport, **options) as client:
        with pytest.raises(SchedulerError) as caught:
            await client.schedule(HINT)
    return caught.value


async def test_the_server_says_how_long_to_pause_and_the_client_gives_up_in_the_end(pauses: list[float]) -> None:
    problem = {"code": "store_unavailable", "detail": "gone", "status": 503}
    answer = httpx.Response(503, json=problem, headers={"Retry-After": "2"})
    error = await answering(answer, attempts=3)
    assert isinstance(error, StoreUnavailable)
    assert len(pauses) == 2
    assert all(2.0 <= pause <= 4.0 for pause in pauses)


async def test_a_refusal_is_an_answer_and_not_asked_again(pauses: list[float]) -> None:
    problem = {"code": "no_nodes", "detail": "no nodes available", "candidates": 1, "reasons": {"unhealthy": 1}}
    error = await answering(httpx.Response(503, json=problem, headers={"Retry-After": "1"}))
    assert isinstance(error, NoNodes)
    assert error.reasons == {"unhealthy": 1}
    assert pauses == []


async def test_what_a_balancer_answers_by_itself_is_an_unreachable_scheduler(pauses: list[float]) -> None:
    error = await answering(httpx.Response(502, text="<html>Bad Gateway</html>"))
    assert isinstance(error, Unreachable)
    assert len(pauses) == 3
