"""The lab's HTTP side says the same as its in-process side, against the real application."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from agentenv_scheduler_client import AsyncSchedulerClient
from scheduler.api.http import create_app
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import ReservationState
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NoNodes, SchedulerError
from scheduler.lab.clock import Agenda, VirtualClock
from scheduler.lab.http_surface import OverHttp
from scheduler.lab.node import SimulatedNode
from scheduler.lab.replay import Contender, Replay, ReplayOptions
from scheduler.lab.scratch import REPORT_TTL_MS, scratch_ledger
from scheduler.lab.surface import InProcess, code_of
from scheduler.lab.trace import NodeSpec, Trace, TraceRequest
from scheduler.service import Services, build_services

SETTINGS = LedgerSettings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=REPORT_TTL_MS)


@pytest.fixture
def agenda() -> Agenda:
    return Agenda(VirtualClock())


@pytest.fixture
async def lab_services(agenda: Agenda) -> AsyncIterator[Services]:
    async with scratch_ledger("embedded", SETTINGS, agenda.clock) as ledger:
        yield build_services(ledger)


@pytest.fixture
async def surface(lab_services: Services) -> AsyncIterator[OverHttp]:
    transport = httpx.ASGITransport(app=create_app(lab_services))
    async with AsyncSchedulerClient("http://scheduler", transport=transport, attempts=1) as client:
        yield OverHttp(client)


def a_request(cpu_count: int = 2) -> ScheduleRequest:
    return ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, cpu_count, 512, images=("app:1",)))


async def test_a_placement_and_its_end_over_http(surface: OverHttp) -> None:
    node = SimulatedNode(NodeSpec("a", 4, 8192))
    await surface.discover([node.address])
    await surface.heartbeat(node.heartbeat(1))
    decision = await surface.schedule(a_request())
    assert (decision.node, decision.strategy) == (node.address, Strategy.LEAST_LOADED)
    assert decision.reservation is not None
    assert decision.reservation.state is ReservationState.PENDING
    (seen,) = await surface.nodes()
    assert (seen.pending.cpu_count, seen.snapshot.cpu_count, seen.pressure.cpu) == (2, 4, 0.5)

    await surface.cancel(decision.reservation.reservation_id, "test")
    assert (await surface.nodes())[0].pending.cpu_count == 0
    other = await surface.schedule(a_request())
    assert other.reservation is not None
    await surface.confirm(other.reservation.reservation_id, "sandbox-1")
    event = SandboxEvent("sandbox-1", SandboxEventType.DELETE)
    await surface.report_events("a", node.service_instance_id, [event])
    assert (await surface.nodes())[0].pending.cpu_count == 0


async def test_refusals_come_back_with_their_reasons_and_other_errors_with_their_text(surface: OverHttp) -> None:
    node = SimulatedNode(NodeSpec("a", 4, 8192))
    await surface.discover([node.address])
    await surface.heartbeat(node.heartbeat(1))
    await surface.schedule(a_request())
    with pytest.raises(NoNodes) as refused:
        await surface.schedule(a_request(cpu_count=3))
    assert refused.value.reasons == {"insufficient_cpu": 1}
    await surface.drain(node.address)
    with pytest.raises(NoNodes) as drained:
        await surface.schedule(a_request())
    assert drained.value.reasons == {"lingering": 1}
    with pytest.raises(SchedulerError, match="HTTP 404"):
        await surface.confirm("absent", "sandbox-1")


async def test_a_replay_over_http_is_the_replay_in_process(surface: OverHttp, agenda: Agenda) -> None:
    nodes = (NodeSpec("a", 8, 16_384), NodeSpec("b", 4, 8192))
    requests = tuple(TraceRequest(700 * n, 3_000 * (n % 5), n % 3 + 1, 512, f"k{n % 4}") for n in range(40))
    contender = Contender(Strategy.LEAST_LOADED)
    over_http = await Replay(Trace(nodes, requests), surface, agenda, ReplayOptions()).run(contender)
    second = Agenda(VirtualClock())
    async with scratch_ledger("embedded", SETTINGS, second.clock) as ledger:
        replay = Replay(Trace(nodes, requests), InProcess(build_services(ledger)), second, ReplayOptions())
        assert over_http == await replay.run(contender)


async def test_of_several_replicas_each_is_called_in_turn() -> None:
    called: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        called.append(request.url.host)
        return httpx.Response(200, json={"nodes": []})

    clients = [
        AsyncSchedulerClient(f"http://replica-{number}", transport=httpx.MockTransport(answer)) for number in (1, 2, 3)
    ]
    surface = OverHttp(*clients)
    for _ in range(4):
        assert await surface.nodes() == ()
    assert called == ["replica-1", "replica-2", "replica-3", "replica-1"]
    for client in clients:
        await client.close()


async def test_a_replica_that_does_not_answer_is_a_failed_call_with_a_code() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    async with AsyncSchedulerClient("http://replica", transport=httpx.MockTransport(refuse), attempts=1) as client:
        with pytest.raises(SchedulerError, match="no answer") as refused:
            await OverHttp(client).nodes()
    assert code_of(refused.value) == "unanswered"
    assert code_of(NoNodes(1, {})) == "no_nodes"
