"""Ledger time: it goes on at real speed whatever the server's clock does. The virtual clock is the server's here."""

from __future__ import annotations

import pytest

from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import REPORT_TTL_MS, TTL_MS, Cluster
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

JUMP_MS = 600_000


async def alive(ledger: Ledger, clock: VirtualClock, seconds: float) -> None:
    """A replica sends its keepalives meanwhile."""
    for _ in range(round(seconds)):
        clock.advance(1_000)
        await ledger.settings.keepalive("replica")


async def test_silence_and_deadlines_are_noticed_after_a_clock_ran_ahead_for_a_moment(
    ledger: Ledger, cluster: Cluster, clock: VirtualClock
) -> None:
    clock.now_ms += JUMP_MS
    await alive(ledger, clock, 1)
    clock.now_ms -= JUMP_MS
    await ledger.settings.keepalive("replica")
    assert await ledger.time.skew_ms() == JUMP_MS
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=10_000)
    await alive(ledger, clock, 9)
    assert await cluster.state(reservation) == "pending"
    await alive(ledger, clock, 1)
    assert await cluster.state(reservation) == "expired"
    await alive(ledger, clock, REPORT_TTL_MS / 1000)
    (node,) = await ledger.nodes.list()
    assert node.status == "unhealthy"
    assert await ledger.time.skew_ms() == JUMP_MS


async def test_a_failover_to_a_slower_clock_stops_no_time(
    ledger: Ledger, cluster: Cluster, clock: VirtualClock
) -> None:
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=10_000)
    await alive(ledger, clock, 4)
    clock.now_ms -= 5_000
    await alive(ledger, clock, 6)
    # The keepalive that met the step counts from there on: it cost the second before it.
    assert await cluster.state(reservation) == "pending"
    await alive(ledger, clock, 1)
    assert await cluster.state(reservation) == "expired"


async def test_two_clocks_that_take_turns_do_not_add_up(ledger: Ledger, clock: VirtualClock) -> None:
    for _ in range(10):
        await alive(ledger, clock, 3)
        clock.now_ms -= 5_000
        await alive(ledger, clock, 3)
        clock.now_ms += 5_000
    await alive(ledger, clock, 3)
    assert await ledger.time.skew_ms() <= 1_000 * 10


async def test_the_offset_survives_everybody_that_knew_it(
    ledger: Ledger, open_ledger_on: OpenLedger, clock: VirtualClock
) -> None:
    clock.now_ms -= JUMP_MS
    await ledger.settings.keepalive("replica")
    another = await open_ledger_on()
    assert await another.time.skew_ms() == JUMP_MS
    cluster = Cluster(build_services(another), clock)
    await cluster.add()
    reservation = await cluster.place(reservation_ttl_ms=1_000)
    clock.advance(1_000)
    assert await cluster.state(reservation) == "expired"


async def test_time_never_runs_backwards(ledger: Ledger, cluster: Cluster, clock: VirtualClock) -> None:
    await cluster.add(cpu_count=10_000)
    before = 0
    for step in (0, 700, -1, -5_000, 3, 1_900, -700_000, 2_500, 90_000, -1, 800_000, 1, -100):
        clock.now_ms += step
        now = (await cluster.place(1, 1)).created_at_ms
        assert now >= before
        before = now


async def test_a_reset_goes_by_the_servers_clock_and_ends_nothing_early(
    ledger: Ledger, cluster: Cluster, clock: VirtualClock
) -> None:
    await cluster.add()
    clock.now_ms += JUMP_MS
    await cluster.report()
    clock.now_ms -= JUMP_MS
    reservation = await cluster.place()
    assert await ledger.time.reset() == JUMP_MS
    assert await ledger.time.skew_ms() == 0
    (node,) = await ledger.nodes.list()
    assert node.last_seen_ms == clock.now_ms
    await alive(ledger, clock, REPORT_TTL_MS / 1000 + 1)
    (node,) = await ledger.nodes.list()
    assert node.status == "unhealthy"
    assert await cluster.state(reservation) == "pending"
    await alive(ledger, clock, (JUMP_MS + TTL_MS) / 1000)
    assert await cluster.state(reservation) == "expired"


async def test_the_skew_is_exported(ledger: Ledger, clock: VirtualClock) -> None:
    clock.now_ms -= 1_500
    await ledger.settings.keepalive("replica")
    overview = build_services(ledger).overview
    await overview.refresh()
    assert b"agentenv_scheduler_clock_skew_seconds 1.5" in overview.page()


async def test_a_reset_of_a_right_clock_changes_nothing(ledger: Ledger, cluster: Cluster) -> None:
    await cluster.add()
    reservation = await cluster.place()
    assert await ledger.time.reset() == 0
    assert await cluster.state(reservation) == "pending"
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(report_ttl_ms=5_000)
async def test_a_long_time_without_anybody_is_no_step(
    ledger: Ledger, ledger_settings: LedgerSettings, cluster: Cluster, clock: VirtualClock
) -> None:
    await cluster.add()
    clock.advance(ledger_settings.report_ttl_ms + 1)
    (node,) = await ledger.nodes.list()
    assert node.status == "unhealthy"
