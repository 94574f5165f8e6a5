"""A gRPC server over services whose ledger is scripted, for tests of the port itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import grpc

from scheduler.api.grpc import GrpcOptions, GrpcServer, create_server
from scheduler.api.grpc.generated import reservations_v1alpha_pb2_grpc, scheduler_v1_pb2_grpc
from scheduler.observability.call_log import CallLog
from scheduler.observability.metrics import Metrics
from scheduler.service.artifacts import ArtifactService
from scheduler.service.bindings import BindingService
from scheduler.service.decisions import DecisionService
from scheduler.service.nodes import NodeService
from scheduler.service.placement import PlacementService
from scheduler.service.reservations import ReservationService
from scheduler.service.unlisted import UnlistedResources
from tests.support.embedded import unopened_ledger


class Scripted:
    """Stands where a noun of the ledger stands: each method does what the test says and remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.behaviours: dict[str, Callable[..., Awaitable[Any]]] = {}

    def answers(self, method: str, value: Any) -> None:
        async def behave(*_: Any) -> Any:
            return value

        self.behaviours[method] = behave

    def fails(self, method: str, error: BaseException) -> None:
        async def behave(*_: Any) -> Any:
            raise error

        self.behaviours[method] = behave

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **_: Any) -> Any:
            self.calls.append((method, arguments))
            return await self.behaviours[method](*arguments)

        return call


@dataclass
class Port:
    """A started server and how to speak to it."""

    server: GrpcServer
    channel: grpc.aio.Channel
    services: Any

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def scheduler(self) -> Any:
        return scheduler_v1_pb2_grpc.SchedulerStub(self.channel)  # type: ignore[no-untyped-call]

    @property
    def reservations(self) -> Any:
        return reservations_v1alpha_pb2_grpc.ReservationsStub(self.channel)  # type: ignore[no-untyped-call]

    def raw(self, path: str) -> Callable[..., Awaitable[bytes]]:
        """Bytes to any path, as grpcurl could."""
        method: Any = self.channel.unary_unary(path)
        return method  # type: ignore[no-any-return]


def scripted_services() -> SimpleNamespace:
    names = ("placement", "nodes", "reservations", "bindings", "artifacts", "cpu_configs", "readiness", "audit")
    services = SimpleNamespace(**{name: Scripted() for name in names})
    services.readiness.answers("check", None)
    services.cpu_configs.answers("after_heartbeat", "")
    services.audit.answers("note_cancelled", None)
    return services


def over_scripted_ledger(nouns: SimpleNamespace) -> Any:
    """Real services, so that what they clean is cleaned; what they ask is what a test scripts."""
    metrics, calls = Metrics(), CallLog(0)
    return SimpleNamespace(
        placement=PlacementService(nouns.placement, metrics, calls, DecisionService(unopened_ledger().journals)),
        nodes=NodeService(
            nouns.nodes, metrics, nouns.cpu_configs, calls, UnlistedResources(unopened_ledger().settings)
        ),
        reservations=ReservationService(nouns.reservations, metrics, calls),
        bindings=BindingService(nouns.bindings, metrics, calls),
        artifacts=ArtifactService(nouns.artifacts, metrics),
        readiness=nouns.readiness,
        audit=nouns.audit,
    )


@asynccontextmanager
async def serving(services: Any, **options: Any) -> AsyncIterator[Port]:
    """The server on a free loopback port, stopped without grace at the end."""
    served = over_scripted_ledger(services) if isinstance(services, SimpleNamespace) else services
    server = create_server(served, GrpcOptions(address="127.0.0.1:0", **options))
    await server.start()
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=unlimited) as channel:
        try:
            yield Port(server, channel, services)
        finally:
            await server.stop(None)


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    """Status code and text of a call that must fail."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    raise AssertionError(f"the call answered {answer!r}")
