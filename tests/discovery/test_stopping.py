"""A replica that watches Kubernetes stops whenever it is asked to."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import ssl

import pytest

from scheduler.config import DiscoverySettings, KubernetesSettings, ReplicaSettings, Settings, StoreSettings
from scheduler.config.groups import DiscoveryMode
from scheduler.connection import embedded
from scheduler.discovery import kubernetes
from scheduler.discovery.reflector import ReflectorTimes
from scheduler.replica import Replica, process
from tests.discovery.stub_api import SLICES, StubApi, endpoint, endpoint_slice, served
from tests.support.backends import Backend

# Found, not imported: only the test process that runs these needs its hundreds of modules.
if importlib.util.find_spec("kubernetes_asyncio") is None:
    pytest.skip("the kubernetes extra is not installed", allow_module_level=True)

TIMES = 100
SECONDS = 60.0


@pytest.fixture
def settings(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A replica without listeners. Discovery calls the ledger all the time, so that stops meet calls."""
    monkeypatch.setattr(embedded, "_shared", [])
    monkeypatch.setattr(process, "open_listeners", lambda *_: ([], []))
    # The machine's certificates are read once, not for each API client.
    monkeypatch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
    eager = functools.partial(
        kubernetes.DiscoveryTimes,
        settle_seconds=0.0,
        renew_seconds=0.001,
        rewrite_seconds=0.0,
        reflector=ReflectorTimes(retry_seconds=0.01, retry_seconds_max=0.05),
    )
    monkeypatch.setattr(kubernetes, "DiscoveryTimes", eager)
    return Settings(
        store=StoreSettings(redis_addr=backend.redis_addr),
        discovery=DiscoverySettings(DiscoveryMode.KUBERNETES, kubernetes=KubernetesSettings("prod", "nodes", 8000)),
        replica=ReplicaSettings(drain_ms=0, grace_ms=0),
    )


async def test_a_replica_stops_a_hundred_times_in_a_row(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kubernetes_asyncio.client import ApiClient, Configuration

    caplog.set_level(logging.WARNING, "scheduler.cancellation")
    api = StubApi()
    async with served(api) as address:
        monkeypatch.setattr(kubernetes, "in_cluster_client", lambda: ApiClient(Configuration(host=address)))
        for number in range(TIMES):
            stopped = await start_and_stop(api, settings, turns=number)
            assert stopped, f"stop {number} goes on after {SECONDS:g} s"
    again = [record for record in caplog.records if record.name == "scheduler.cancellation"]
    assert not again, "a task was cancelled more than once"


async def start_and_stop(api: StubApi, settings: Settings, turns: int) -> bool:
    replica = Replica(settings)
    await replica.start()
    api.put(SLICES, endpoint_slice("s1", endpoint("p1", f"10.0.0.{turns}")))
    for _ in range(turns):
        await asyncio.sleep(0)
    # Not asyncio.timeout: what it cancels need not end either.
    stopping = asyncio.create_task(replica.stop())
    done, _ = await asyncio.wait([stopping], timeout=SECONDS)
    if done:
        stopping.result()
    return bool(done) and all(task.done() for task in replica._background_tasks)
