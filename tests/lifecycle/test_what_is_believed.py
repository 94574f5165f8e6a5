"""The smallest inputs at which 0.1 believed what was not true, through both wires and on both ledgers.

A1: a booting sandbox counted twice. A2, A3: absence. A4, A8: ends. A5, A6: replaced processes. A9: moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler.domain.node import NodeAddress
from scheduler.domain.placement import Strategy
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.grpc.support import serving
from tests.http.conftest import open_client
from tests.lifecycle.cluster import REPORT_TTL_MS
from tests.lifecycle.wires import CPUS, GrpcWire, HttpWire, Wire
from tests.support.clock import VirtualClock

pytestmark = pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)


@pytest.fixture(params=["http", "grpc"])
async def wire(request: pytest.FixtureRequest, ledger: Ledger) -> AsyncIterator[Wire]:
    """A listed node n1 of 16 CPUs that has not reported yet."""
    services = build_services(ledger)
    await services.nodes.replace([NodeAddress("n1", "http://n1:8000")], [])
    if request.param == "http":
        async with open_client(services) as api:
            yield HttpWire(api)
    else:
        async with serving(services) as port:
            yield GrpcWire(port)


async def full(wire: Wire, clock: VirtualClock) -> None:
    """Report 1 lists nothing; S(16), confirmed as s0."""
    await wire.report([], sequence=1)
    clock.advance(2_000)
    reservation_id = await wire.schedule(CPUS)
    assert reservation_id is not None
    await wire.confirm(reservation_id, "s0")


async def test_a1_a_booting_sandbox_is_counted_once(wire: Wire) -> None:
    await wire.report([])
    for _ in range(4):
        assert await wire.schedule(2)
    await wire.report(["s1", "s2", "s3", "s4"], 8, sandbox_starting_count=4)
    for _ in range(4):
        assert await wire.schedule(2)
    assert await wire.schedule(1) is None


async def test_a1_a_booting_sandbox_that_nobody_confirms_is_counted_once(wire: Wire) -> None:
    await wire.report([])
    for _ in range(4):
        await wire.heartbeat_schedule(2)
    await wire.report(["s1", "s2", "s3", "s4"], 8, sandbox_starting_count=4)
    for _ in range(4):
        assert await wire.schedule(2)
    assert await wire.schedule(1) is None


async def test_a2_a_report_sampled_before_the_create_proves_nothing(wire: Wire, clock: VirtualClock) -> None:
    await full(wire, clock)
    clock.advance(15_500)
    await wire.report([], sequence=2)
    assert await wire.schedule(CPUS) is None
    assert await wire.node_of("s0") == "n1"


async def test_a3_what_ended_between_two_reports_is_free_with_the_second(wire: Wire, clock: VirtualClock) -> None:
    await full(wire, clock)
    # Where reports carry no sequence one may be a copy, so binding_grace stands beside the rule.
    clock.advance(2_000 if wire.sequenced else 15_000)
    await wire.report([], sequence=2)
    assert await wire.schedule(CPUS) is None
    clock.advance(2_000 if wire.sequenced else 15_000)
    await wire.report([], sequence=3)
    assert await wire.schedule(CPUS)
    assert await wire.node_of("s0") is None


async def test_a4_a_delete_event_frees_what_a_report_listed_at_once(wire: Wire, clock: VirtualClock) -> None:
    await full(wire, clock)
    await wire.report(["s0"], CPUS, sequence=2)
    assert await wire.schedule(CPUS) is None
    await wire.event("delete", "s0")
    assert await wire.schedule(CPUS)


async def test_a5_a_replaced_process_stays_replaced(wire: Wire) -> None:
    await wire.report([], sequence=1)
    await wire.report([], sequence=2)
    await wire.report(["s1", "s2"], CPUS, instance="i-2", sequence=1)
    await wire.report([], instance="i-1", sequence=1)
    await wire.event("delete", "s1", instance="i-1")
    assert await wire.schedule(CPUS) is None
    assert await wire.node_of("s1") == "n1"
    assert not await wire.unregister("i-1")
    assert await wire.unregister("i-2")


async def test_a5_ids_that_alternate_are_taken_back_once_the_other_is_silent(wire: Wire, clock: VirtualClock) -> None:
    await wire.report(["s1"], 2, instance="blue", sequence=5)
    await wire.report(["s1"], 2, instance="green", sequence=1)
    await wire.report([], instance="blue", sequence=6)
    assert await wire.node_of("s1") == "n1"
    clock.advance(REPORT_TTL_MS + 1)
    await wire.report(["s2"], 2, instance="blue", sequence=7)
    assert await wire.node_of("s2") == "n1"


async def test_a6_a_sequence_that_begins_anew_is_a_restart_once_the_last_report_is_old(
    wire: Wire, clock: VirtualClock
) -> None:
    if not wire.sequenced:
        return  # scheduler.v1 carries no sequence, so none can begin anew
    await wire.report(["s1"], CPUS, sequence=9)
    await wire.report([], sequence=1)
    assert await wire.schedule(CPUS) is None
    clock.advance(REPORT_TTL_MS + 1)
    await wire.report([], sequence=2)
    assert await wire.schedule(CPUS)


async def test_a8_a_create_told_after_its_delete_holds_nothing(wire: Wire) -> None:
    await wire.report([])
    await wire.heartbeat_schedule(4)
    await wire.event("delete", "s2", 4)
    await wire.event("create", "s2", 4)
    assert await wire.schedule(CPUS)


async def test_a9_a_roster_takes_no_binding_from_a_fresh_node(wire: Wire, ledger: Ledger, clock: VirtualClock) -> None:
    await full(wire, clock)
    await build_services(ledger).nodes.replace(
        [NodeAddress("n1", "http://n1:8000"), NodeAddress("n2", "http://n2:8000")], []
    )
    await wire.report(["s0"], CPUS, node="n2", instance="other")
    assert await wire.node_of("s0") == "n1"
