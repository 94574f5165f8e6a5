"""A whole replica in a thread of this process, its ledger inside: for callers that block; cheaper than a process."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scheduler.config import load_configuration
from scheduler.replica import Replica


@contextmanager
def replica_in_thread(**options: Any) -> Iterator[str]:
    """Its HTTP address. Options are keys of the configuration, `__` for a dot."""
    common: dict[str, Any] = {
        "redis_addr": "embedded",
        "domain": f"thread-{secrets.token_hex(6)}",
        "http.port": 0,
        "grpc.enabled": False,
        "metrics.enabled": False,
        "shutdown.drain": "0s",
        # A busy machine makes no node silent.
        "report_ttl": "10m",
        "binding_ttl": "30m",
    }
    settings = load_configuration(
        options=common | {name.replace("__", "."): value for name, value in options.items()}, environment={}
    ).settings
    address: list[str] = []
    ready, over = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    async def live() -> None:
        replica = Replica(settings)
        await replica.start()
        try:
            address.append(replica.listeners[0].address)
            ready.set()
            await asyncio.to_thread(over.wait)
        finally:
            await replica.stop()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait()
        if failed:
            raise failed[0]
        yield address[0]
    finally:
        over.set()
        thread.join()
