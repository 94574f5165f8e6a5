"""The two ledgers every script must work on: fakeredis inside the process, and a real server.

A `Backend` opens ledgers and raw clients on the same store, so that a test can look at what a
script wrote. Fixtures hand it out; see `tests/conftest.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fakeredis
import redis.asyncio

from scheduler.domain.settings import LedgerSettings
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from scheduler.connection.client import StoreOptions
    from scheduler.ledger.ledger import Ledger

# One CI run puts the `#!lua` shebang before every script, where a real server refuses a wrong slot.
SHEBANG = os.environ.get("SCHEDULER_TEST_SHEBANG", "") == "1"


@dataclass(frozen=True)
class Backend:
    """Where ledgers of one test live. `name` is `embedded` or `real`."""

    name: str
    fake_server: fakeredis.FakeServer | None = None
    server: RedisServer | None = None

    @property
    def redis_addr(self) -> str:
        return "embedded" if self.server is None else self.server.address

    def options(self, **changes: Any) -> StoreOptions:
        """Store options for this backend; every ledger opened with them shares one store."""
        from scheduler.connection.client import StoreOptions

        if self.server is None:
            return StoreOptions(fake_server=self.fake_server, **changes)
        return StoreOptions(shebang=SHEBANG, **changes)

    async def open(
        self,
        *,
        domain: str = "test",
        clock: Callable[[], int | None] | None = None,
        redis_addr: str | None = None,
        **changes: Any,
    ) -> Ledger:
        """A ledger without settings yet. Without `clock` it goes by the server's time.
        `redis_addr` other than the server's: a relay before it."""
        from scheduler.ledger.ledger import open_ledger

        timing: dict[str, Any] = {} if clock is None else {"clock": clock}
        options = self.options(**changes)
        return await open_ledger(redis_addr or self.redis_addr, domain=domain, options=options, **timing)

    def client(self) -> redis.asyncio.Redis:
        """A raw client on the same store; texts, not bytes, packed numbers escaped. Close it with `aclose()`."""
        if self.server is None:
            return fakeredis.FakeAsyncRedis(server=self.fake_server, decode_responses=True)
        return redis.asyncio.Redis(
            host="127.0.0.1", port=self.server.port, decode_responses=True, encoding_errors="backslashreplace"
        )

    async def flush(self) -> None:
        """Empty the store, for another ledger of the same test."""
        client = self.client()
        await client.flushall()
        await client.aclose()


async def put_settings(ledger: Ledger, settings: LedgerSettings, replica_id: str = "test-replica") -> None:
    """Write `settings` as a lone replica would at its start."""
    outcome = await ledger.settings.put(settings, replica_id)
    assert outcome.status in {"written", "same", "adopted"}, outcome
