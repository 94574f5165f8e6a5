"""Embedded ledgers for tests of the layers above the ledger: quick to open, with a domain of their own.

They share one server of the process, where scripts are compiled once. What is provoked or looked at is replaced in one
place: `fail_with` where the client talks to the server, `note_calls` at one method. `empty_server` is for whoever needs
a server of its own: the data is its own, the interpreter with its compiled scripts is not.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fakeredis import FakeServer

from scheduler.connection import embedded
from scheduler.connection.address import parse_address
from scheduler.connection.client import StoreClient, StoreOptions
from scheduler.connection.scripts import ScriptLibrary
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import SchedulerError
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.runner import server_clock
from tests.support.backends import put_settings

_domains = itertools.count()
_of_thread = threading.local()
# More than all scripts of the product and of tests; tests that write scripts by the hundred begin a new interpreter.
_SCRIPTS_KEPT = 120


def empty_server() -> FakeServer:
    """A server without data. Those of one thread share an interpreter: compiling the scripts for every test anew would
    take longer than most tests, and no script leaves anything in it, since globals are refused."""
    interpreter = getattr(_of_thread, "interpreter", None)
    if interpreter is None or len(interpreter["_lua_runtime"]) > _SCRIPTS_KEPT:
        first = FakeServer()
        embedded.embedded_pool(first, 1)  # gives it an interpreter that keeps what it compiled
        interpreter = {name: value for name, value in vars(first).items() if name.startswith("_lua_")}
        _of_thread.interpreter = interpreter
    server = FakeServer()
    vars(server).update(interpreter)
    return server


@functools.cache
def _shared() -> tuple[StoreOptions, ScriptLibrary]:
    return StoreOptions(fake_server=embedded.new_server()), ScriptLibrary.load()


def unopened_ledger(clock: Callable[[], int | None] = server_clock) -> Ledger:
    """A ledger without settings, to which nothing was sent; enough for whoever asks it nothing."""
    options, library = _shared()
    return Ledger(StoreClient(parse_address("embedded"), options, library), f"test-{next(_domains)}", clock)


async def open_embedded(
    settings: LedgerSettings | None = None, clock: Callable[[], int | None] = server_clock
) -> Ledger:
    """A ledger with settings. What opening it took is not counted by `sent_to`."""
    ledger = unopened_ledger(clock)
    await put_settings(ledger, settings or LedgerSettings())
    ledger.client.statistics.attempts = 0
    return ledger


def fail_with(monkeypatch: pytest.MonkeyPatch, ledger: Ledger, error: SchedulerError) -> None:
    """Every call of the ledger raises `error` from now on, as one would whose server cannot be reached."""

    async def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(ledger.client._attempts, "until_answered", fail)


def sent_to(ledger: Ledger) -> int:
    """How often the server was asked since the ledger was opened."""
    return ledger.client.statistics.attempts


def note_calls(monkeypatch: pytest.MonkeyPatch, noun: object, method: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a method of the ledger, which is then made."""
    noted: list[tuple[Any, ...]] = []
    call = getattr(noun, method)

    async def note(*arguments: Any, **named: Any) -> Any:
        noted.append(arguments)
        return await call(*arguments, **named)

    monkeypatch.setattr(noun, method, note)
    return noted
