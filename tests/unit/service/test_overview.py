"""The metrics page is kept true in the background: what it says of an outage, and what it no longer says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scheduler.errors import SchedulerError, StoreUnavailable, StoreUnusable, WritesRefused
from scheduler.ledger.ledger import Ledger
from scheduler.service import Services, build_services
from scheduler.service.overview import REFRESH_SECONDS
from tests.support.embedded import fail_with, note_calls, open_embedded
from tests.support.virtual_time import virtually


@pytest.fixture
def services(embedded_ledger: Ledger) -> Services:
    return build_services(embedded_ledger)


def shown(services: Services, name: str) -> list[str]:
    """The values of a family's series."""
    lines = services.overview.page().decode().splitlines()
    return [line.rpartition(" ")[2] for line in lines if line.startswith(f"agentenv_scheduler_{name}")]


async def test_before_the_first_look_nothing_is_claimed(services: Services) -> None:
    assert shown(services, "ready") == shown(services, "ledger_up") == ["0.0"]
    assert shown(services, "observed_nodes") == []


async def test_an_outage_shows_at_once_and_takes_the_ledgers_figures_off_the_page(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await services.overview.begin()
    assert shown(services, "ready") == shown(services, "ledger_up") == ["1.0"]
    assert len(shown(services, "observed_nodes")) == 5
    with monkeypatch.context() as outage:
        fail_with(outage, embedded_ledger, StoreUnavailable("gone"))
        await services.overview.look()
        assert shown(services, "ready") == shown(services, "ledger_up") == ["0.0"]
        assert shown(services, "observed_nodes") == []
        await services.overview.refresh_when_due()
    await services.overview.look()
    await services.overview.refresh_when_due()
    assert len(shown(services, "observed_nodes")) == 5, "once it is back, its figures are too, without waiting"


@pytest.mark.parametrize("error", [StoreUnusable("read-only"), WritesRefused("maxmemory")])
async def test_a_ledger_that_answers_and_is_not_fit_is_up_but_the_replica_not_ready(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: SchedulerError
) -> None:
    fail_with(monkeypatch, embedded_ledger, error)
    await services.overview.look()
    assert shown(services, "ready") == ["0.0"]
    assert shown(services, "ledger_up") == ["1.0"]


async def test_a_replica_that_leaves_is_not_ready_and_its_ledger_is_no_worse(services: Services) -> None:
    await services.overview.look()
    services.readiness.drain()
    for look in (asyncio.sleep(0), services.overview.look()):
        await look
        assert shown(services, "ready") == ["0.0"]
        assert shown(services, "ledger_up") == ["1.0"]


async def test_figures_that_cannot_be_read_are_not_shown_for_new(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await services.overview.look()
    await services.overview.refresh()
    fail_with(monkeypatch, embedded_ledger, StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable):
        await services.overview.refresh_when_due()
    assert shown(services, "observed_nodes") == []


def slowly(call: Callable[[], Awaitable[dict[str, int]]], seconds: float) -> Callable[[], Awaitable[dict[str, int]]]:
    async def slow() -> dict[str, int]:
        await asyncio.sleep(seconds)
        return await call()

    return slow


@pytest.mark.parametrize(("reading_seconds", "apart"), [(0.0, REFRESH_SECONDS), (2.0, 200.0)])
def test_reading_takes_at_most_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, reading_seconds: float, apart: float
) -> None:
    async def story() -> None:
        ledger = await open_embedded()
        services = build_services(ledger)
        monkeypatch.setattr(ledger.settings, "stats", slowly(ledger.settings.stats, reading_seconds))
        reads = note_calls(monkeypatch, ledger.settings, "stats")
        await services.overview.look()
        await services.overview.refresh_when_due()
        assert len(reads) == 1
        await asyncio.sleep(apart - reading_seconds - 0.5)
        await services.overview.refresh_when_due()
        assert len(reads) == 1
        await asyncio.sleep(0.5)
        await services.overview.refresh_when_due()
        assert len(reads) == 2

    virtually(story())


def test_the_first_page_does_not_wait_for_a_slow_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        ledger = await open_embedded()
        services = build_services(ledger)
        monkeypatch.setattr(ledger.settings, "stats", slowly(ledger.settings.stats, 30.0))
        await services.overview.begin()
        assert asyncio.get_running_loop().time() == 1.0
        assert shown(services, "ready") == ["1.0"]

    virtually(story())


async def test_what_the_clients_of_the_ledger_count_is_shown(services: Services, embedded_ledger: Ledger) -> None:
    embedded_ledger.client.statistics.retries = 7
    embedded_ledger.client.statistics.connections_in_use = 2
    page = services.overview.page().decode()
    assert 'agentenv_scheduler_store_retries_total{client="ledger"} 7.0' in page
    assert 'agentenv_scheduler_store_connections_in_use{client="ledger"} 2.0' in page
