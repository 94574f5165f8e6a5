"""Fixtures of the whole suite: real servers, the two backends, ledgers on a virtual clock.

A test that asks for `backend`, `ledger`, `open_ledger_on` or `services` runs twice, as
`[embedded]` and as `[real]`. Settings come from the mark:

    @pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
    async def test_…(ledger: Ledger, clock: VirtualClock) -> None: …
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from scheduler.domain.settings import LedgerSettings
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.lua_globals import look_in_lua
from tests.support.patience import be_patient
from tests.support.servers import RedisServer
from tests.support.watchdog import watch

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger

pytest_plugins = ["tests.support.certificates", "tests.support.second_look"]
pytest.register_assert_rewrite("tests.model.machine", "tests.support.recount")

OpenLedger = Callable[..., Awaitable["Ledger"]]


_configure = structlog.configure


def _configure_without_cache(**options: Any) -> None:
    """A logger that was used once under one test's configuration would keep it for ever."""
    _configure(**options | {"cache_logger_on_first_use": False})


structlog.configure = _configure_without_cache
# As it is by itself, but for tracebacks: drawn with the source and all locals, each would take more than a second.
_PLAIN = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _PLAIN])


@pytest.fixture(autouse=True)
def logging_stays_as_it_was() -> Iterator[None]:
    """What one test configures is nothing to the next."""
    root, before = logging.getLogger(), structlog.get_config()
    level = root.level
    yield
    root.setLevel(level)
    structlog.configure(**before)


# Modules with a generator of their own: for pauses, the time that callers are asked to wait, and random choices.
_VARYING = (
    "agentenv_scheduler_client.asking",
    "scheduler.api.status",
    "scheduler.connection.budget",
    "scheduler.ledger.runner",
    "scheduler.replica.background",
)


@pytest.fixture(autouse=True)
def numbers_are_drawn_alike() -> None:
    """A test that fails for one drawn number in thirty fails every time, or never."""
    for name in _VARYING:
        if name in sys.modules:
            sys.modules[name]._RANDOM.seed(11)


# `pytest --hypothesis-profile=soak` searches long; a failure prints the blob that replays it.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
# What judges a change says the same of the same code every time; the long searches draw new examples each run.
hypothesis_settings.register_profile("quick", max_examples=20, derandomize=True, **_COMMON)
hypothesis_settings.register_profile("default", max_examples=60, derandomize=True, **_COMMON)
hypothesis_settings.register_profile("long", max_examples=600, **_COMMON)
hypothesis_settings.register_profile("soak", max_examples=5_000, **_COMMON)
hypothesis_settings.load_profile(os.environ.get("SCHEDULER_TEST_HYPOTHESIS", "default"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ledger_settings(**fields): the settings the ledger of this test starts with")
    watch(config)
    look_in_lua()
    be_patient()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end: looking for garbage among them would find none, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """One real server for the whole run. Ask for `real_server`, which empties it, instead."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def shared_client(shared_server: RedisServer) -> Iterator[redis.Redis]:
    """Connected once: connecting takes longer than emptying the server."""
    with shared_server.client() as client:
        yield client


@pytest.fixture
def real_server(shared_server: RedisServer, shared_client: redis.Redis) -> RedisServer:
    """The shared real server, empty."""
    shared_client.flushall()
    return shared_server


@pytest.fixture
def private_server() -> Iterator[RedisServer]:
    """A real server of this test alone, to be killed, paused or configured."""
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["embedded", "real"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """A store of its own for this test, once embedded and once real."""
    if request.param == "embedded":
        from tests.support.embedded import empty_server

        return Backend("embedded", fake_server=empty_server())
    return Backend("real", server=request.getfixturevalue("real_server"))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger_settings(request: pytest.FixtureRequest) -> LedgerSettings:
    """The settings named by the mark `ledger_settings`; defaults without one."""
    mark = request.node.get_closest_marker("ledger_settings")
    return LedgerSettings(**mark.kwargs) if mark else LedgerSettings()


@pytest.fixture
async def open_ledger_on(backend: Backend, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
    """A factory: `await open_ledger_on(settings, domain=…, **store_options)`, closed at the end.

    Without `settings` nothing is written. Ledgers opened by one test share store and clock.
    """
    opened: list[Ledger] = []

    async def open_one(settings: LedgerSettings | None = None, **options: Any) -> Ledger:
        ledger = await backend.open(clock=options.pop("clock", clock), **options)
        opened.append(ledger)
        if settings is not None:
            await put_settings(ledger, settings)
        return ledger

    yield open_one
    for ledger in opened:
        await ledger.close()


@pytest.fixture
async def ledger(open_ledger_on: OpenLedger, ledger_settings: LedgerSettings) -> Ledger:
    """A ledger with settings, on the virtual clock."""
    return await open_ledger_on(ledger_settings)


@pytest.fixture
async def embedded_ledger(clock: VirtualClock) -> AsyncIterator[Ledger]:
    """For tests of the layers above the ledger: with default settings, on the virtual clock, and embedded only."""
    from tests.support.embedded import open_embedded

    ledger = await open_embedded(clock=clock)
    yield ledger
    await ledger.close()


@pytest.fixture
async def services(ledger: Ledger) -> Any:
    """What a replica's edges talk to, over `ledger`."""
    from scheduler.service import build_services

    return build_services(ledger)
