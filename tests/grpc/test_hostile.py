"""Anything a protobuf message can hold, sent to every method: a status that fits, and a server that lives."""

from __future__ import annotations

import asyncio
from typing import Any

import fakeredis
import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.grpc.generated import reservations_v1alpha_pb2, scheduler_v1_pb2
from scheduler.connection.options import StoreOptions
from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import GroupSettings, LedgerSettings
from scheduler.ledger.ledger import open_ledger
from scheduler.service import build_services
from tests.grpc.support import Port, serving
from tests.support.backends import put_settings

TEXTS = st.one_of(
    st.sampled_from(["", " ", "a", "b", "i", "c1", "iroh", "s1", " a ", "a:claims", "{}", "%", "a|1:b", "ü" * 200]),
    st.sampled_from(["\x00", "a\nb", "\x1f", "\u2028", "x" * 255, "x" * 256, "x" * 70_000, "🂡", "{not json", "0b12"]),
    st.text(max_size=20),
)
EDGES = {
    FieldDescriptor.TYPE_UINT32: [0, 1, 2**31, 2**32 - 1],
    FieldDescriptor.TYPE_UINT64: [0, 1, 2**53, 2**63, 2**64 - 1],
    FieldDescriptor.TYPE_INT64: [0, 1, -1, -(2**63), 2**63 - 1],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_ENUM: [0, 1, 2, 4, 5, 99],
}
SERVICES = (
    (scheduler_v1_pb2, "Scheduler"),
    (reservations_v1alpha_pb2, "Reservations"),
)
FITTING = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "UNAVAILABLE",
    "RESOURCE_EXHAUSTED",
}


@st.composite
def filled(draw: st.DrawFn, message_type: type[Message]) -> Message:
    """A message with any of its fields set to something nasty."""
    message = message_type()
    _fill(draw, message, message.DESCRIPTOR)
    return message


def _fill(draw: st.DrawFn, message: Any, descriptor: Descriptor, depth: int = 0) -> None:
    for field in descriptor.fields:
        if draw(st.integers(0, 3)) == 0:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries, key = getattr(message, field.name), draw(TEXTS)
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                entries[key] = _value(draw, value)
            else:
                _fill(draw, entries[key], value.message_type, depth + 1)
        elif field.is_repeated:
            for _ in range(draw(st.sampled_from([1, 2, 70]))):
                _append(draw, getattr(message, field.name), field, depth)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            _fill(draw, getattr(message, field.name), field.message_type, depth + 1)
        else:
            setattr(message, field.name, _value(draw, field))


def _append(draw: st.DrawFn, values: Any, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is None:
        values.append(_value(draw, field))
    else:
        _fill(draw, values.add(), field.message_type, depth + 1)


def _value(draw: st.DrawFn, field: FieldDescriptor) -> Any:
    return draw(TEXTS) if field.type == FieldDescriptor.TYPE_STRING else draw(st.sampled_from(EDGES[field.type]))


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, Message]:
    module, service = draw(st.sampled_from(SERVICES))
    descriptor = module.DESCRIPTOR.services_by_name[service]
    method = draw(st.sampled_from(list(descriptor.methods)))
    request: Message = draw(filled(getattr(module, method.input_type.name)))
    return f"/{descriptor.full_name}/{method.name}", request


@given(st.lists(calls(), min_size=1, max_size=12), st.sampled_from(list(Strategy)))
def test_every_call_has_a_status_that_fits(sent: list[tuple[str, Message]], strategy: Strategy) -> None:
    asyncio.run(_send(sent, strategy))


async def _send(sent: list[tuple[str, Message]], strategy: Strategy) -> None:
    ledger = await open_ledger("embedded", options=StoreOptions(fake_server=fakeredis.FakeServer()))
    await put_settings(
        ledger, LedgerSettings(strategy=strategy, locality_enabled=True, groups=GroupSettings(max_sandbox_count=2))
    )
    services = build_services(ledger)
    await services.nodes.replace([NodeAddress("a", "http://a:8000")], [NodeAddress("b", "http://b:8000")])
    async with serving(services) as port:
        for path, request in sent:
            status = await _status(port, path, request)
            assert status in FITTING, f"{path} answered {status} to {request}"
        assert (await _status(port, "/scheduler.v1.Scheduler/ListNodes", scheduler_v1_pb2.ListNodesRequest())) == "OK"
    await ledger.close()


async def _status(port: Port, path: str, request: Message) -> str:
    try:
        await port.raw(path)(request.SerializeToString(), timeout=30)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"
