"""Real servers of the fault tests: one a test, to be broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.servers import RedisServer

StartServer = Callable[..., RedisServer]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """`start_server(persistence="always")`: a running server that ends with the test."""
    with ExitStack() as running:
        yield lambda *arguments, **options: running.enter_context(RedisServer(*arguments, **options))
